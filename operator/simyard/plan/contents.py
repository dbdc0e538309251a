# SPDX-License-Identifier: Apache-2.0
"""Comparison of a live object with a manifest."""

from __future__ import annotations

from typing import Any


def contains(live: Any, wanted: Any) -> bool:
    """Return whether ``live`` contains everything in ``wanted``.

    ``live`` may hold more, such as defaults and fields of other writers. Lists of objects are compared without their
    order, because server-side apply merges them. Values must have the form of the API server (``500m``, not ``0.5``).
    """
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(name in live and contains(live[name], wanted[name]) for name in wanted)
    if isinstance(wanted, list) and wanted and all(isinstance(item, dict) for item in wanted):
        return isinstance(live, list) and all(any(contains(found, item) for found in live) for item in wanted)
    return bool(live == wanted)
