# SPDX-License-Identifier: Apache-2.0
"""Writes the statuses of all Workers: changes of readiness at once, other changes together and within a budget."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, NoReturn

from prometheus_client import Histogram

from simyard.api.base import from_seconds
from simyard.api.worker import Worker, WorkerStatus
from simyard.fleet.registry import Registry, find_removed, get_queue, get_time
from simyard.fleet.status_writes import replace_status
from simyard.fleet.timing import PRODUCTION, Timing
from simyard.fleet.work_queue import KeyQueue, RateLimit
from simyard.guest.messages import AttributesChanged, Drained, Registered
from simyard.guest.values import ClaimedAttributes, merge_attributes
from simyard.messaging.events import ReceivedEvent
from simyard.messaging.metrics import VALUES_REFUSED
from simyard.messaging.refusals import Refusals
from simyard.plan.start import measure_stages
from simyard.plan.worker import Change, Observation, Registration, Values, is_ready, plan_worker
from simyard_adapter.declarations import Json
from simyard_sites.base import Machine, MachineState
from simyard_sites.kubernetes.errors import ApiError

log = logging.getLogger(__name__)

START_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 180, 300, 600, 900, 1800)
STAGE_SECONDS = Histogram(
    "simyard_worker_stage_duration_seconds",
    "Duration of one stage of the start of a worker; a stage is named after its end.",
    ["site", "stage"],
    buckets=START_BUCKETS,
)
WORKER_SECONDS = Histogram(
    "simyard_worker_start_duration_seconds",
    "Duration of the start of a worker, from the request until its adapter registered.",
    ["site"],
    buckets=START_BUCKETS,
)
VALUES_DELAY_SECONDS = 2.0
WRITES_PER_SECOND = 50.0
"""Budget of status writes for all Workers. Urgent writes do not wait for the budget, but use it up."""
WRITERS = 32
Presence = Callable[[str], bool | None]


class WorkerStatuses:
    """Writer of the statuses of Workers. It collects the observations of each Worker."""

    def __init__(self, registry: Registry, presence: Presence, timing: Timing = PRODUCTION) -> None:
        self._timing = timing
        self._registry = registry
        self._presence = presence
        self._seen: dict[str, Observation] = {}
        self._queue = KeyQueue("worker-status", self._write, concurrency=WRITERS, group=registry.find_sender)
        self._time = asyncio.get_running_loop().time
        self._refusals = Refusals("attribute", VALUES_REFUSED, self._time)
        self._budget = RateLimit(WRITES_PER_SECOND, self._time)
        self._slots: dict[str, float] = {}
        self._written: dict[str, WorkerStatus] = {}

    async def run(self) -> NoReturn:
        """Write statuses until cancelled."""
        await self._queue.run()

    def observe(self, uid: str, delay: float = 0.0, **changes: Any) -> None:
        """Record changed fields of a Worker's :class:`Observation`; write the status after ``delay`` seconds."""
        self._seen[uid] = dataclasses.replace(self._seen.get(uid, Observation()), **changes)
        self._queue.add(uid, delay)

    def machine_changed(self, uid: str, machine: Machine) -> None:
        """Record the state of a Worker's machine. The write is urgent if the machine does not run any more."""
        urgent = machine.state in (MachineState.FAILED, MachineState.STOPPED, MachineState.SUSPENDED)
        self.observe(uid, 0.0 if urgent else self._timing.stages_delay_seconds, machine=machine, lost=False)

    def apply_event(self, event: ReceivedEvent) -> Awaitable[object] | None:
        """Record the registration, the attributes or the end of the drain that a worker reports.

        Returns the write of a registration, which must succeed before the message is acknowledged; None for all other
        messages.
        """
        uid = event.worker_uid
        if self._registry.find_worker(uid) is None:
            return None
        match event.message:
            case Registered(adapter_version=version, attributes=attributes):
                self.observe(uid, registration=Registration(from_seconds(event.received_at), version))
                self._apply_values(event, attributes, replace=True)
                return self._queue.pass_now([uid])
            case AttributesChanged(attributes=attributes):
                self._apply_values(event, attributes, replace=False)
            case Drained():
                self.observe(uid, self._timing.stages_delay_seconds, drained=True)
        return None

    def presence_changed(self, worker: Worker) -> None:
        """Record whether the worker's queue has a consumer, after this may have changed."""
        uid = worker.metadata.uid
        seen = self._seen.get(uid, Observation())
        present = self._presence(get_queue(worker))
        if present == seen.consumer:
            return
        since = seen.consumer_gone
        if present is not False:
            since = None
        elif since is None:
            since = self._time()
        delay = 0.0 if worker.status.stages.registered is not None else self._timing.stages_delay_seconds
        self.observe(uid, delay, consumer=present, consumer_gone=since)

    def _apply_values(self, event: ReceivedEvent, attributes: ClaimedAttributes, *, replace: bool) -> None:
        uid = event.worker_uid
        known = self._seen.get(uid, Observation()).values
        worker = self._registry.find_worker(uid)
        service = self._registry.find_service(worker) if worker is not None else None
        if worker is None or service is None:
            return
        refused = partial(self._refusals.note, f"{worker.metadata.namespace}/{worker.metadata.name}")
        before: Mapping[str, Json] = known.values if known else worker.status.attributes
        values = merge_attributes(
            {} if replace else before, attributes.check(service.interface.attributes, refused), refused
        )
        self.observe(uid, VALUES_DELAY_SECONDS, values=Values(from_seconds(event.received_at), values))

    def worker_changed(self, old: Worker | None, new: Worker | None) -> None:
        """Ask for a plan of the status of a new or changed Worker; forget a deleted Worker."""
        if (old is None or new is None) and self._registry.workers.synced.is_set():
            self._budget.spend()
        if (left := find_removed(old, new)) is not None:
            self._seen.pop(left.metadata.uid, None)
            self._slots.pop(left.metadata.uid, None)
            self._queue.forget(left.metadata.uid)
        if new is None:
            return
        if old is None or old.metadata.uid != new.metadata.uid:
            self._queue.add(new.metadata.uid, self._timing.stages_delay_seconds)
            if new.status.stages.registered is not None:
                self.presence_changed(new)
        elif old.metadata.generation != new.metadata.generation:
            self._budget.spend()
            self._queue.add(new.metadata.uid, self._timing.stages_delay_seconds if new.spec.drain else 0.0)
        elif old.status.conditions != new.status.conditions and new.status != self._written.get(new.metadata.uid):
            self._queue.add(new.metadata.uid, self._timing.stages_delay_seconds)  # another operator has written it

    async def _write(self, uid: str) -> float | None:
        worker = self._registry.find_worker(uid)
        if worker is None or worker.metadata.deletion_timestamp is not None:
            self._seen.pop(uid, None)
            return None
        plan = plan_worker(worker, self._seen.get(uid, Observation()), get_time(), self._time())
        if plan.change is Change.NONE:
            return plan.wake_seconds
        if plan.change is Change.READINESS:
            self._slots.pop(uid, None)
            self._budget.spend()
        elif (waits := self._wait_for_budget(uid)) > 0:
            return waits
        try:
            if not await self._put(worker, plan.status):
                return None
        except ApiError as error:
            if error.retryable or error.status in (401, 403) or self._seen[uid].values is None:
                raise
            log.error("worker %s: the API server refuses its attributes: %s", worker.metadata.name, error)
            self.observe(uid, values=None)
            return 0.0
        if plan.change is Change.READINESS and not is_ready(worker):
            _measure(worker, self._registry.find_worker(uid))
        return plan.wake_seconds

    async def _put(self, worker: Worker, status: WorkerStatus) -> bool:
        registry, uid = self._registry, worker.metadata.uid
        self._written[uid] = status
        try:
            return await replace_status(registry.client, registry.workers, worker.metadata, worker.status, status)
        finally:
            del self._written[uid]

    def _wait_for_budget(self, uid: str) -> float:
        """Return the seconds until the budget permits a Worker's write that is not urgent; 0: now."""
        time = self._time()
        if uid not in self._slots:
            self._slots[uid] = time + self._budget.reserve()
        waits = self._slots[uid] - time
        if waits <= 0:
            del self._slots[uid]
        return waits


def _measure(before: Worker, after: Worker | None) -> None:
    """Add the durations of a worker's start to the histograms, when the worker becomes ready for the first time."""
    if after is None or not is_ready(after) or before.status.stages.registered is not None:
        return
    stages, site = after.status.stages, after.spec.site
    for stage, milliseconds in measure_stages(stages).items():
        STAGE_SECONDS.labels(site, stage).observe(milliseconds / 1000)
    if stages.start is not None and stages.registered is not None:
        WORKER_SECONDS.labels(site).observe(max(0.0, (stages.registered - stages.start).total_seconds()))
