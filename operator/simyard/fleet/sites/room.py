# SPDX-License-Identifier: Apache-2.0
"""Reserves places at sites for Workers that are about to be created, and wakes pools that wait for a place."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from simyard.kube.cache import Key

GATHER_SECONDS = 0.1
SECONDS_PER_POOL = 1 / 500
"""Delay, for each waiting pool, before the waiting pools get a pass for a free place.

With many waiting pools, more free places share one round of passes."""


class Room:
    """Record of the reserved places at sites, and of the pools that wait for a place.

    It calls ``wake`` with a waiting pool and a delay in seconds.

    Attributes:
        reserved: number of Workers at each site that plans create and that the API server has not stored yet.
    """

    def __init__(self, wake: Callable[[Key, float], None]) -> None:
        self.reserved: Counter[str] = Counter()
        self._wake = wake
        self._waiting: set[Key] = set()
        self._told_until = float("-inf")
        self._time = asyncio.get_running_loop().time

    @contextlib.contextmanager
    def reserve(self, sites: Iterable[str]) -> Iterator[Counter[str]]:
        """Reserve one place for each item of ``sites``; the end of the context releases the places not occupied."""
        places = Counter(sites)
        self.reserved.update(places)
        try:
            yield places
        finally:
            self.reserved.subtract(places)
            if places.total() > 0:
                self.place_freed()

    def occupy(self, places: Counter[str], site: str) -> None:
        """Occupy one of the reserved places, after its Worker was created."""
        places[site] -= 1
        self.reserved[site] -= 1

    def set_waiting(self, key: Key, *, waits: bool) -> None:
        """Record whether a pool waits for a place."""
        if not waits:
            self._waiting.discard(key)
            return
        self._waiting.add(key)
        if (left := self._told_until - self._time()) > 0:
            self._wake(key, left)

    def place_freed(self) -> None:
        """Ask for passes over the waiting pools, because a place is free.

        Places that become free at almost the same time share these passes.
        """
        if not self._waiting or self._time() < self._told_until:
            return
        seconds = GATHER_SECONDS + len(self._waiting) * SECONDS_PER_POOL
        self._told_until = self._time() + seconds
        for key in self._waiting:
            self._wake(key, seconds)
