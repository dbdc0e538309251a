# SPDX-License-Identifier: Apache-2.0
"""Comparison of a live object with a manifest."""

from __future__ import annotations

from typing import Any


def contains(live: Any, wanted: Any) -> bool:
    """Return whether ``live`` contains everything in ``wanted``.

    ``live`` may contain more, such as defaults and fields of other writers. The order of objects in a list does not
    matter, because server-side apply merges such lists. Quantities in ``wanted`` must have the form in which the API
    server returns them (``500m``, not ``0.5``).
    """
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(name in live and contains(live[name], wanted[name]) for name in wanted)
    if isinstance(wanted, list) and wanted and all(isinstance(item, dict) for item in wanted):
        return isinstance(live, list) and all(any(contains(found, item) for found in live) for item in wanted)
    return bool(live == wanted)
