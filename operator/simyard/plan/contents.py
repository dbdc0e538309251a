"""Whether an object of the API server is as a manifest says."""

from __future__ import annotations

from typing import Any


def contains(live: Any, wanted: Any) -> bool:
    """Whether everything in ``wanted`` stands in ``live``, which may hold more: defaults, and what others have added.

    Lists of objects are compared without their order, as server-side apply merges them. Values must be written as the
    API server writes them (``500m``, not ``0.5``).
    """
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(name in live and contains(live[name], wanted[name]) for name in wanted)
    if isinstance(wanted, list) and wanted and all(isinstance(item, dict) for item in wanted):
        return isinstance(live, list) and all(any(contains(found, item) for found in live) for item in wanted)
    return bool(live == wanted)
