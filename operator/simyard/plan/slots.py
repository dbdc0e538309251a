# SPDX-License-Identifier: Apache-2.0
"""Names of a pool's workers. Each name has the number of a slot, so that one worker cannot be created twice."""

from __future__ import annotations

from collections.abc import Container
from itertools import count


def make_worker_name(pool: str, slot: int) -> str:
    """Return the name of the worker in a slot."""
    return f"{pool}-{slot}"


def find_free_slots(pool: str, wanted: int, taken: Container[str]) -> list[str]:
    """Return the names of the ``wanted`` lowest free slots."""
    names: list[str] = []
    slots = count()
    while len(names) < wanted:
        name = make_worker_name(pool, next(slots))
        if name not in taken:
            names.append(name)
    return names
