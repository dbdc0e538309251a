# SPDX-License-Identifier: Apache-2.0
"""Checks texts against the limits of the objects that keep them.

The frontend refuses a text above its limit before it creates an object. The error has the name of the OCCI attribute.
"""

from __future__ import annotations

from collections.abc import Mapping

from simyard.frontend.entities.computes import HOSTNAME, SSH_PUBLIC_KEY
from simyard.occi.errors import OcciError
from simyard.occi.model import SUMMARY, TARGET, TITLE, Mixin

MAX_COMPUTE_CHARACTERS: Mapping[str, int] = {TITLE: 256, SUMMARY: 1024, HOSTNAME: 253, "occi.compute.userdata": 65_536}
"""Maximum number of characters in the texts of a compute (Worker), by attribute."""
MAX_LINK_CHARACTERS: Mapping[str, int] = {TITLE: 1024, TARGET: 2048}
MAX_KEYS, MAX_KEY_CHARACTERS = 16, 8192
MAX_MIXIN_CHARACTERS: Mapping[str, int] = {"scheme": 768, "term": 255, "title": 1024, "location": 512}


def check_lengths(texts: Mapping[str, str], limits: Mapping[str, int] = MAX_COMPUTE_CHARACTERS) -> None:
    """Raise an error if a text is too long; ``texts`` are the texts by the names of their attributes.

    Raises:
        OcciError: 400.
    """
    for name, text in texts.items():
        if len(text) > limits[name]:
            raise OcciError(400, f"attribute {name}: has {len(text)} characters; at most {limits[name]} are possible")


def check_keys(keys: list[str]) -> None:
    """Raise an error if there are too many public keys, or if a key is too long.

    Raises:
        OcciError: 400.
    """
    if len(keys) > MAX_KEYS:
        raise OcciError(400, f"attribute {SSH_PUBLIC_KEY}: the value has more than {MAX_KEYS} keys; send fewer")
    if any(len(key) > MAX_KEY_CHARACTERS for key in keys):
        raise OcciError(400, f"attribute {SSH_PUBLIC_KEY}: a key has more than {MAX_KEY_CHARACTERS} characters")


def check_definition(mixin: Mixin) -> None:
    """Raise an error if a text of a mixin is too long.

    Raises:
        OcciError: 400.
    """
    texts = {"scheme": mixin.scheme, "term": mixin.term, "title": mixin.title, "location": mixin.location}
    for name, text in texts.items():
        if len(text) > MAX_MIXIN_CHARACTERS[name]:
            problem = f"its {name} has {len(text)} characters; at most {MAX_MIXIN_CHARACTERS[name]} are possible"
            raise OcciError(400, f"Category: the mixin {mixin.term[:40]}: {problem}")
