# SPDX-License-Identifier: Apache-2.0
"""Cuts off broker users that send too many events, for some time.

The events of all workers pass through the same queues. If a guest publishes as fast as it can, it fills these queues,
and the results of all other tenants wait behind its events. With 8,000 events a second, the actions of other tenants
were 11 s late after 20 s. RabbitMQ has no setting that limits how fast a user publishes.

So the operator counts the events that it receives from each user. If a user exceeds its allowance
(:mod:`simyard.messaging.allowance`), the operator closes the user's connections and forbids new ones. It releases the
user after a pause. Each further pause of the user is twice as long, up to :data:`MAX_PAUSE_SECONDS`.

The broker stores which users are in quarantine, as a limit of 0 connections. A new operator reads these limits, and
releases the users after a pause.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from prometheus_client import Counter, Gauge

from simyard.api.names import WORKER_POOLS, Reason
from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool
from simyard.fleet.broker.logins import ALONE, OF_POOL
from simyard.fleet.broker.provisioning import Broker
from simyard.fleet.recorder import Recorder
from simyard.fleet.registry import Registry, find_removed
from simyard.fleet.timing import PRODUCTION, Timing
from simyard.fleet.work_queue import KeyQueue
from simyard.messaging.allowance import Allowances
from simyard_adapter.wire import name_pool_user, name_standalone_user

log = logging.getLogger(__name__)

QUARANTINED = Gauge("simyard_broker_quarantined_users", "Broker users that are cut off because they sent too much.")
QUARANTINES = Counter("simyard_broker_quarantines_total", "Number of times that a broker user was cut off.")
MAX_PAUSE_SECONDS = 900.0
GOOD_SECONDS = 3600.0
"""If a user stays within its allowance for this time, its next quarantine has the duration of a first one."""
MAX_REMEMBERED = 10_000
EARLIER = ""
"""Key of the pass that finds the users that an earlier operator has cut off."""


@dataclass(frozen=True, slots=True)
class _Pause:
    """Last pause of a user: its duration in seconds, and its end on the quarantine's clock."""

    seconds: float
    ends_at: float


class Quarantine:
    """Component that counts events, and cuts off and releases broker users. ``clock`` is a steady clock, in seconds."""

    def __init__(
        self,
        registry: Registry,
        broker: Broker,
        recorder: Recorder,
        clock: Callable[[], float],
        timing: Timing = PRODUCTION,
    ) -> None:
        self._timing = timing
        self._registry = registry
        self._broker = broker
        self._recorder = recorder
        self._clock = clock
        self._allowances = Allowances(self._count_workers)
        self._until: dict[str, float] = {}
        self._earlier: dict[str, _Pause] = {}
        self._queue = KeyQueue("quarantine", self._enforce)
        QUARANTINED.set_function(lambda: len(self._until))

    def count_event(self, user: str, size: int) -> bool:
        """Count an event of ``size`` bytes of a broker user; return whether the user is within its allowance.

        The call that exceeds the allowance begins the quarantine.
        """
        if user in self._until:
            return False
        if not self._exists(user) or self._allowances.spend(user, self._clock(), size):
            return True  # the pool is deleted, and its user will be deleted too
        self._begin(user)
        return False

    async def run(self) -> NoReturn:
        """Cut off and release users until cancelled."""
        await self._broker.prepared.wait()
        self._queue.add(EARLIER)
        await self._queue.run()

    async def enforce(self, user: str) -> None:
        """Cut off or release a user now, and wait until the broker has done this."""
        await self._queue.pass_now([user])

    def _exists(self, user: str) -> bool:
        if user.startswith(OF_POOL):
            return self._registry.pools.count("uid", user.removeprefix(OF_POOL)) > 0
        return self._registry.find_worker(user.removeprefix(ALONE)) is not None

    def pool_changed(self, old: WorkerPool | None, new: WorkerPool | None) -> None:
        """Forget the allowance of a deleted pool."""
        if (left := find_removed(old, new)) is not None:
            self._forget(name_pool_user(left.metadata.uid))

    def worker_changed(self, old: Worker | None, new: Worker | None) -> None:
        """Forget the allowance of a deleted Worker that had no pool."""
        if (left := find_removed(old, new)) is not None:
            self._forget(name_standalone_user(left.metadata.uid))

    def _forget(self, user: str) -> None:
        self._allowances.forget(user)
        self._earlier.pop(user, None)

    def _begin(self, user: str) -> None:
        pause = self._timing.quarantine_first_seconds
        if (earlier := self._earlier.get(user)) is not None and self._clock() < earlier.ends_at + GOOD_SECONDS:
            pause = min(2 * earlier.seconds, MAX_PAUSE_SECONDS)
        log.warning("broker user %s sends too many events: it is cut off for %g s", user, pause)
        QUARANTINES.inc()
        for pool in self._registry.pools.list_by("uid", user.removeprefix(OF_POOL)):
            note = f"The workers of the pool send too many events: they are disconnected for {pause:g} s."
            self._recorder.emit(WORKER_POOLS, pool.metadata, Reason.WORKERS_CUT_OFF, note, warning=True)
        self._hold(user, pause)

    def _hold(self, user: str, pause: float) -> None:
        until = self._until[user] = self._clock() + pause
        self._earlier[user] = _Pause(pause, until)
        while len(self._earlier) > MAX_REMEMBERED:
            self._earlier.pop(next(iter(self._earlier)))
        self._queue.add(user)

    async def _enforce(self, user: str) -> float | None:
        """Cut off a user whose pause has begun, or release a user whose pause has ended.

        Returns the seconds until the end of the pause; None after the end.
        """
        if user == EARLIER:
            for earlier in await self._broker.cut_off_users():
                if earlier not in self._until:
                    self._hold(earlier, self._timing.quarantine_first_seconds)
            return None
        if (left := self._until[user] - self._clock()) > 0:
            await self._broker.cut_off(user)
            return left
        await self._broker.release(user)
        self._allowances.forget(user)
        del self._until[user]
        return None

    def _count_workers(self, user: str) -> int:
        return self._registry.workers.count("pool", user.removeprefix(OF_POOL)) if user.startswith(OF_POOL) else 1
