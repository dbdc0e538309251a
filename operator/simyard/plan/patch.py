"""The smallest JSON merge patch (RFC 7396) that turns one object into another."""

from __future__ import annotations

from simyard.api.base import Json


def merge_patch(old: Json, new: Json) -> Json:
    """Only what differs; fields that are gone are null. Empty when nothing differs."""
    patch: Json = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            if inner := merge_patch(before, value):
                patch[name] = inner
        elif name not in old or before != value:
            patch[name] = value
    return patch
