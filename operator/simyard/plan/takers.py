"""Which workers of a pool take from its queue: a few as long as nobody uses the pool, then all.

A consumer costs the broker the more the more of them a quorum queue has, so a pool whose workers are only started, or
are only given what waits (ServiceActions), shall not pay for one per worker.
"""

from __future__ import annotations

import itertools

STANDING_TAKERS = 16
"""So many free workers of a pool take the first calls on it; a smaller pool behaves as if all its workers did."""


class PoolTakers:
    """The ready workers of one pool, by uid: kept worker by worker, so that no change costs a look at all of them."""

    def __init__(self) -> None:
        self._standing: set[str] = set()
        self._free: dict[str, None] = {}
        self._busy: dict[str, None] = {}

    def __bool__(self) -> bool:
        """Whether there is anything to keep."""
        return bool(self._standing or self._free or self._busy)

    def place(self, uid: str, *, ready: bool, told: bool, busy: bool) -> None:
        """Note the state of a worker.

        Args:
            uid: the worker's.
            ready: it takes actions: it is ready and does not drain.
            told: its adapter was told to take, or is being told.
            busy: it runs what it was given by name, and takes nothing meanwhile.
        """
        self._standing.discard(uid)
        self._free.pop(uid, None)
        self._busy.pop(uid, None)
        if not ready:
            return
        if not told:
            (self._busy if busy else self._free)[uid] = None
        elif not busy:
            self._standing.add(uid)

    def to_tell(self, *, used: bool, most: int) -> list[str]:
        """Whom to tell now, at most so many: all when the pool is ``used``, else as many as are missing."""
        if used:
            return list(itertools.islice(itertools.chain(self._free, self._busy), most))
        missing = max(0, STANDING_TAKERS - len(self._standing))
        return list(itertools.islice(self._free, min(most, missing)))
