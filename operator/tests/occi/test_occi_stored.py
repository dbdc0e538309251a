# SPDX-License-Identifier: Apache-2.0
"""Stored objects: the CRDs admit only values that every rendering can contain."""

from __future__ import annotations

import re

from simyard.api.occi import NAME_PATTERN, PATH_PATTERN, URI_PATTERN
from simyard.occi import grammar


def test_what_is_stored_of_categories_and_links_can_be_written_in_every_rendering() -> None:
    for stored, written in (
        (URI_PATTERN, grammar.URI),
        (NAME_PATTERN, grammar.TERM),
        (NAME_PATTERN, grammar.ATTRIBUTE_NAME),
    ):
        for code in range(0x180):
            text = f"a{chr(code)}"
            assert bool(re.fullmatch(stored.strip("^$"), text)) == bool(written.fullmatch(text)), hex(code)
    assert URI_PATTERN.replace("^", "^/").replace("+$", "*$") == PATH_PATTERN
