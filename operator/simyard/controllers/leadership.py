# SPDX-License-Identifier: Apache-2.0
"""The work of the leading operator, from the moment at which it gets the Lease until it releases the Lease."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from simyard.controllers.progress import MAX_STALLED_SECONDS, FinalizerProgress
from simyard.fleet.fleet import Fleet
from simyard.kube.lease import Lease

log = logging.getLogger(__name__)


class Leadership:
    """The memo that kopf passes to its handlers: the fleet, the Lease, and the task of the leader.

    kopf copies the memo for each object. So only the constructor assigns fields, except for the task, which handlers of
    objects do not use.
    """

    def __init__(
        self,
        lease: Lease,
        fleet: Fleet,
        on_failure: Callable[[], None],
        max_stalled_seconds: float = MAX_STALLED_SECONDS,
    ) -> None:
        """Store the parts, but start nothing. The object calls ``on_failure`` when the leader's work has failed."""
        self.lease = lease
        self.fleet = fleet
        self.progress = FinalizerProgress(asyncio.get_running_loop().time, max_stalled_seconds)
        self._on_failure = on_failure
        self._work: asyncio.Task[None] | None = None
        fleet.registry.pools.subscribe(self.progress.apply_change)
        fleet.registry.sites.subscribe(self.progress.apply_change)

    @property
    def leads(self) -> bool:
        """True from the moment at which this process got the Lease."""
        return self._work is not None

    async def begin(self) -> None:
        """Wait for the Lease, start the fleet, and return when its caches have all objects."""
        await self.lease.acquire()
        self._work = asyncio.create_task(self._lead(), name="leading")
        self._work.add_done_callback(self._ended)
        await self.fleet.registry.wait_until_synced()

    async def end(self) -> None:
        """Stop the fleet and release the Lease, so that the next leader need not wait until the Lease expires."""
        if self._work is None:
            return
        self._work.cancel()
        await asyncio.wait([self._work])
        if self._work.cancelled():
            await self.lease.release()

    def raise_failure(self) -> None:
        """Raise the error that ended the leader's work, if the work has failed."""
        if self._work is not None and self._work.done() and not self._work.cancelled():
            self._work.result()

    async def _lead(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.lease.hold(), name="lease")
            group.create_task(self.fleet.run(), name="fleet")
            group.create_task(self.progress.watch(), name="progress of kopf")

    def _ended(self, work: asyncio.Task[None]) -> None:
        if not work.cancelled() and work.exception() is not None:
            self._on_failure()
