# SPDX-License-Identifier: Apache-2.0
"""Choice of the takers of a pool, the workers that take requests from the pool's queue.

Each further consumer of a quorum queue costs the broker more than the previous one. Most pools are started long before
their first call, or run only ServiceActions, which do not come through this queue. At first only a few workers are
therefore takers; all workers become takers when the pool is used.
"""

from __future__ import annotations

import itertools

STANDING_TAKERS = 16
"""Number of free workers that take the first calls on a pool; in a smaller pool, all workers take them."""


class PoolTakers:
    """Ready workers of one pool, by uid; each change updates one worker, without a look at all others."""

    def __init__(self) -> None:
        self._standing: set[str] = set()
        self._free: dict[str, None] = {}
        self._busy: dict[str, None] = {}

    def __bool__(self) -> bool:
        """Return whether there are any ready workers."""
        return bool(self._standing or self._free or self._busy)

    def set_state(self, uid: str, *, ready: bool, told: bool, busy: bool) -> None:
        """Update the state of a worker.

        Args:
            uid: Uid of the worker.
            ready: True if the worker accepts actions: it is ready and does not drain.
            told: True if the request to take was sent to its adapter, or is being sent.
            busy: True if it runs an action that was assigned to it; as long as the action runs, it takes no requests.
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

    def choose_to_tell(self, *, used: bool, most: int) -> list[str]:
        """Return the workers that must become takers now: all workers if the pool is ``used``, else the missing takers.

        ``most`` is the maximum number of workers to return.
        """
        if used:
            return list(itertools.islice(itertools.chain(self._free, self._busy), most))
        missing = max(0, STANDING_TAKERS - len(self._standing))
        return list(itertools.islice(self._free, min(most, missing)))
