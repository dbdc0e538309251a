# SPDX-License-Identifier: Apache-2.0
"""Choice of the takers of a pool. Takers are the workers that take requests from the pool's queue.

Each further consumer of a quorum queue costs the broker more than the consumer before it. Most pools start long before
their first call, or run only ServiceActions, which do not come through this queue. So at first, only a few workers are
takers. All workers become takers when a client calls an action of the pool.
"""

from __future__ import annotations

import itertools

STANDING_TAKERS = 16
"""Number of free workers that are takers before a client calls the pool; in a smaller pool, all workers are takers."""


class PoolTakers:
    """Record of the ready workers of one pool: the takers, and the workers that are not takers yet.

    A change of one worker does not read the other workers.
    """

    def __init__(self) -> None:
        self._standing: set[str] = set()
        self._free: dict[str, None] = {}
        self._busy: dict[str, None] = {}

    def __bool__(self) -> bool:
        """Return whether there are any ready workers."""
        return bool(self._standing or self._free or self._busy)

    def set_state(self, uid: str, *, ready: bool, told: bool, busy: bool) -> None:
        """Record the state of a worker.

        Args:
            uid: Uid of the worker.
            ready: True if the worker accepts actions: it is ready and does not drain.
            told: True if the adapter got the request to become a taker, or the request is being sent.
            busy: True if the worker runs a ServiceAction, and so takes no requests from the pool's queue now.
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
        """Return at most ``most`` workers that must become takers now.

        If the pool is ``used``, every worker must become a taker; else enough workers for ``STANDING_TAKERS`` takers.
        """
        if used:
            return list(itertools.islice(itertools.chain(self._free, self._busy), most))
        missing = max(0, STANDING_TAKERS - len(self._standing))
        return list(itertools.islice(self._free, min(most, missing)))
