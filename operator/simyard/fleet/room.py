"""Places at sites: those that are about to be taken, and the pools that wait for one."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from simyard.kube.cache import Key

GATHER_SECONDS = 0.1
SECONDS_PER_POOL = 1 / 500
"""A place that becomes free is told to every pool that waits; the more of them, the more seldom."""


class Room:
    """Counts Workers that are being made, by site, and calls ``wake`` with pools and seconds when a place is free.

    Attributes:
        reserved: Workers of each site that plans have decided to make and the API server has not stored yet.
    """

    def __init__(self, wake: Callable[[Key, float], None]) -> None:
        self.reserved: Counter[str] = Counter()
        self._wake = wake
        self._waiting: set[Key] = set()
        self._told_until = float("-inf")
        self._time = asyncio.get_running_loop().time

    @contextlib.contextmanager
    def hold(self, sites: Iterable[str]) -> Iterator[Counter[str]]:
        """Keep places until :meth:`take` is called for them; what is left in the end is free for others."""
        places = Counter(sites)
        self.reserved.update(places)
        try:
            yield places
        finally:
            self.reserved.subtract(places)
            if places.total() > 0:
                self.freed()

    def take(self, places: Counter[str], site: str) -> None:
        """A Worker has been made at one of these places."""
        places[site] -= 1
        self.reserved[site] -= 1

    def wait(self, key: Key, *, waits: bool) -> None:
        """Whether a pool waits for room."""
        if not waits:
            self._waiting.discard(key)
            return
        self._waiting.add(key)
        if (left := self._told_until - self._time()) > 0:
            self._wake(key, left)

    def freed(self) -> None:
        """A place has become free; others that do within a moment are told together."""
        if not self._waiting or self._time() < self._told_until:
            return
        seconds = GATHER_SECONDS + len(self._waiting) * SECONDS_PER_POOL
        self._told_until = self._time() + seconds
        for key in self._waiting:
            self._wake(key, seconds)
