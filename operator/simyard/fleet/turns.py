# SPDX-License-Identifier: Apache-2.0
"""Chooses the next key for a pass, in fair turns between groups of keys. The module does no I/O.

All tenants share one queue of work. Without turns, a pool that starts 10,000 workers would put 10,000 writes before the
first write of a pool that starts one worker. So each key belongs to a *group*, such as its tenant. The groups take
turns (round robin), and within a group, the oldest key is next.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Turns(Generic[K]):
    """Keys that are ready for a pass, by group. The keys of a group leave in the order of their arrival."""

    def __init__(self) -> None:
        self._groups: OrderedDict[Hashable, deque[K]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._groups)

    def add(self, group: Hashable, key: K) -> None:
        """Add a key behind the other keys of its group."""
        self._groups.setdefault(group, deque()).append(key)

    def pop(self) -> K:
        """Remove and return the oldest key of the group whose turn it is.

        Raises:
            KeyError: there is no key.
        """
        group, keys = self._groups.popitem(last=False)
        key = keys.popleft()
        if keys:
            self._groups[group] = keys
        return key

    def list_oldest(self) -> Iterator[K]:
        """Return the oldest key of each group."""
        return (keys[0] for keys in self._groups.values())
