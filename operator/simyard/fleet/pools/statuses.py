# SPDX-License-Identifier: Apache-2.0
"""Writes the statuses of pools, and reports their changes as Events and metrics."""

from __future__ import annotations

import asyncio
from collections import Counter

from prometheus_client import Gauge

from simyard.api import names
from simyard.api.names import Reason
from simyard.api.worker_pool import WorkerPool, WorkerPoolStatus
from simyard.fleet.pools.memory import PoolMemory
from simyard.fleet.pools.starts import report_start_begun, report_start_finished
from simyard.fleet.recorder import Recorder
from simyard.fleet.registry import Registry, get_time
from simyard.fleet.status_writes import write_status
from simyard.fleet.timing import PRODUCTION, Timing
from simyard.fleet.work_queue import RateLimit
from simyard.kube.cache import make_key
from simyard.plan.pool import PoolPlan
from simyard.plan.relevance import is_available
from simyard.plan.start import publish_start
from simyard.plan.texts import format_count_is

WORKERS = Gauge("simyard_workers", "Workers of all pools, by state.", ["state"])
STATUS_DELAY_SECONDS = 0.5
"""Delay before a status write, so that several changes share one write.

A change of the condition Available is written without this delay."""
UNURGENT_PER_SECOND = 50.0
"""Maximum rate of status writes that are not urgent, over all pools."""


class PoolStatuses:
    """Writer of the statuses, Events and metrics of all pools."""

    def __init__(self, registry: Registry, recorder: Recorder, timing: Timing = PRODUCTION) -> None:
        self._timing = timing
        self._registry = registry
        self._recorder = recorder
        self._clock = asyncio.get_running_loop().time
        self._budget = RateLimit(UNURGENT_PER_SECOND, self._clock)
        self._counted: dict[str, Counter[str]] = {}
        self._sums: Counter[str] = Counter()

    async def write(self, pool: WorkerPool, memory: PoolMemory) -> float | None:
        """Write the status if it is due; otherwise return the seconds until it is due.

        The status of a pool is written at most once a second. A change of the condition Available can add one more
        write in this second. Any other change waits for further changes, and for the budget that all pools share.
        """
        current = self._registry.pools.get(*make_key(pool))
        if current is None or current.metadata.uid != pool.metadata.uid or current.status == memory.status:
            memory.due_at = None
            return None
        time = self._clock()
        if memory.due_at is None:
            memory.due_at = time + max(STATUS_DELAY_SECONDS, self._budget.reserve())
        turns = is_available(current.status) != is_available(memory.status)
        waits = max(memory.due_at, memory.written_at + self._timing.status_spacing_seconds) - time
        if turns:
            waits = min(waits, memory.turned_at + self._timing.status_spacing_seconds - time)
        if waits > 0:
            return waits
        memory.due_at = None
        stored = memory.status
        memory.sent.append(stored)
        if not await write_status(
            self._registry.client, self._registry.pools, current.metadata, current.status, stored
        ):
            return None
        memory.sent.clear()
        memory.written_at = time
        memory.turned_at = time if turns else memory.turned_at
        memory.status = publish_start(stored, current.status, get_time())
        if memory.status is stored:
            return None
        report_start_finished(self._recorder, pool, memory.status)
        return self._timing.status_spacing_seconds

    def report(self, pool: WorkerPool, before: WorkerPoolStatus, plan: PoolPlan) -> None:
        """Emit the Events about a plan of a pool."""
        after, metadata = plan.status, pool.metadata
        if failed := [removal for removal in plan.delete if removal.failed]:
            note = (
                f"{format_count_is(len(failed), 'failed worker')} replaced, such as {failed[0].worker.metadata.name}: "
            )
            note += f"{failed[0].reason} {failed[0].message}"
            self._recorder.emit(names.WORKER_POOLS, metadata, Reason.WORKER_REPLACED, note, warning=True)
        for activity in after.activities:
            if activity not in before.activities:
                self._recorder.emit(names.WORKER_POOLS, metadata, activity.reason, activity.message)
        if is_available(after) and not is_available(before):
            note = f"{format_count_is(after.ready_replicas, 'worker')} ready"
            self._recorder.emit(names.WORKER_POOLS, metadata, Reason.WORKERS_READY, note)
        report_start_begun(self._recorder, pool, before, after)

    def count(self, uid: str, status: WorkerPoolStatus | None) -> None:
        """Update the metrics with the status of a pool; None removes the pool from the metrics."""
        counts = Counter(ready=0, starting=0)
        if status is not None:
            counts = Counter(ready=status.ready_replicas, starting=status.starting_replicas)
        self._sums.update(counts)
        self._sums.subtract(self._counted.pop(uid, Counter()))
        if status is not None:
            self._counted[uid] = counts
        for state in counts:
            WORKERS.labels(state).set(self._sums[state])
