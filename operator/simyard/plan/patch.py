# SPDX-License-Identifier: Apache-2.0
"""Computation of the smallest JSON merge patch (RFC 7396) that turns one object into another."""

from __future__ import annotations

from simyard.api.base import Json


def make_merge_patch(old: Json, new: Json) -> Json:
    """Return a patch with the fields of ``new`` that differ from ``old``; a removed field is null in the patch."""
    patch: Json = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            if inner := make_merge_patch(before, value):
                patch[name] = inner
        elif name not in old or before != value:
            patch[name] = value
    return patch
