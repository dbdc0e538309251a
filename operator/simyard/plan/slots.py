"""The names of a pool's workers: slots, so that creating one twice is impossible."""

from __future__ import annotations

from collections.abc import Container
from itertools import count


def worker_name(pool: str, slot: int) -> str:
    """The name of the worker in a slot."""
    return f"{pool}-{slot}"


def free_slots(pool: str, wanted: int, taken: Container[str]) -> list[str]:
    """The names of the lowest free slots."""
    names: list[str] = []
    slots = count()
    while len(names) < wanted:
        name = worker_name(pool, next(slots))
        if name not in taken:
            names.append(name)
    return names
