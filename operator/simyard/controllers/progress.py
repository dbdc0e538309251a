# SPDX-License-Identifier: Apache-2.0
"""Check that kopf makes progress, from the objects that wait for kopf.

Some failures of kopf are silent: the process runs, but kopf does not add or remove finalizers any more. An answer with
status 400 to one discovery request is enough. So this module looks at the objects. A pool or site waits for kopf while
it has no finalizer, and while it is being deleted and still has its finalizer. If objects wait and kopf handles none of
them, kopf stands still. Then the process must end, so that the next process starts kopf again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NoReturn

from prometheus_client import Gauge

from simyard.api.names import FINALIZER
from simyard.kube.cache import HasMetadata

STALLED = Gauge(
    "simyard_kopf_stalled_seconds", "How long objects have waited for kopf's finalizers without any of them moving on."
)
MAX_STALLED_SECONDS = 45.0
"""Maximum time without progress. It is longer than the interval of :meth:`FinalizerProgress.report_handler`."""
LOOK_SECONDS = 1.0


class StandstillError(Exception):
    """Error: kopf does not handle the objects that wait for it. Only a new process helps."""


class FinalizerProgress:
    """Record of the pools and sites that wait for kopf, by uid, each with the start of its wait."""

    def __init__(self, clock: Callable[[], float], max_stalled_seconds: float = MAX_STALLED_SECONDS) -> None:
        """Create an empty record; ``clock`` returns the seconds of a monotonic clock."""
        self._clock = clock
        self._max_stalled = max_stalled_seconds
        self._since: dict[str, float] = {}
        self._moved = clock()

    def apply_change(self, old: HasMetadata | None, new: HasMetadata | None) -> None:
        """Record a change of an object that its cache reports."""
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid or not _waits(new)):
            self._move(old.metadata.uid)
        if new is not None and _waits(new):
            self._since.setdefault(new.metadata.uid, self._clock())

    def report_handler(self, uid: str) -> None:
        """Record that a handler of kopf runs for an object. The wait of the object starts again now."""
        if uid in self._since:
            self._move(uid)
            self._since[uid] = self._clock()

    def measure_stalled_seconds(self) -> float:
        """Return the seconds for which objects have waited while kopf handled no object; 0 if no object waits."""
        oldest = next(iter(self._since.values()), None)
        return 0.0 if oldest is None else self._clock() - max(oldest, self._moved)

    async def watch(self) -> NoReturn:
        """Check the progress every second until kopf stands still.

        Raises:
            StandstillError: objects have waited for the maximum time, and kopf has handled none of them.
        """
        while True:
            STALLED.set(stalled := self.measure_stalled_seconds())
            if stalled > self._max_stalled:
                raise StandstillError(f"kopf stands still: pools or sites have waited for it for {stalled:.0f} s")
            await asyncio.sleep(LOOK_SECONDS)

    def _move(self, uid: str) -> None:
        if self._since.pop(uid, None) is not None:
            self._moved = self._clock()


def _waits(item: HasMetadata) -> bool:
    deleted = item.metadata.deletion_timestamp is not None
    return deleted == (FINALIZER in item.metadata.finalizers)
