"""Reconciles WorkerPools: one pass plans, carries out, and writes the status when it is worth it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import NoReturn

from prometheus_client import Gauge, Histogram

from simyard.api import names
from simyard.api.base import find_condition
from simyard.api.cloud_site import CloudSite
from simyard.api.names import ConditionType, Reason
from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool, WorkerPoolStatus
from simyard.build.worker import pool_worker
from simyard.fleet.broker import Broker
from simyard.fleet.queue import KeyQueue
from simyard.fleet.recorder import Recorder
from simyard.fleet.registry import Registry, gone, key_text, now, pool_uid_of
from simyard.fleet.sites import Sites
from simyard.fleet.statuses import write_status
from simyard.kube.cache import Key, key_of
from simyard.kube.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError
from simyard.plan.backoff import Backoff
from simyard.plan.pool import NewWorker, PoolInput, PoolPlan, Removal, plan_pool
from simyard.plan.service import PublishedService
from simyard.plan.times import after, seconds_until

START_SECONDS = Histogram(
    "simyard_pool_start_seconds",
    "Start of a pool: T_boot (all machines booted) and T_r (all services registered).",
    ["figure"],
    buckets=(0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600),
)
WORKERS = Gauge("simyard_workers", "Workers of all pools, by what they do.", ["state"])

PASS_SPACING_SECONDS = 0.1
SECONDS_PER_WORKER = 1 / 20_000
"""A pass looks at every worker of the pool, so events of workers are gathered the longer the more there are."""
STATUS_SPACING_SECONDS = 1.0
WRITERS = 32
TEARDOWN_CHECK_SECONDS = 1.0
REFUSED_SECONDS = 30.0
"""After the API server refused a Worker (a quota, a policy), the next try is made so much later."""


@dataclass(slots=True)
class _Memory:
    """What is remembered of a pool between passes, beyond its object."""

    status: WorkerPoolStatus
    backoff: Backoff = field(default_factory=Backoff)
    written_at: float = 0.0
    taken: set[str] = field(default_factory=set)
    refused: str = ""
    refused_until: datetime | None = None
    torn_down: asyncio.Event = field(default_factory=asyncio.Event)


class Pools:
    """Keeps every WorkerPool as its plan says."""

    def __init__(self, registry: Registry, sites: Sites, broker: Broker, recorder: Recorder) -> None:
        self._registry = registry
        self._sites = sites
        self._broker = broker
        self._recorder = recorder
        self._memory: dict[str, _Memory] = {}
        self._writers = asyncio.Semaphore(WRITERS)
        self._queue = KeyQueue("pool", self._reconcile, spacing_seconds=PASS_SPACING_SECONDS)
        registry.pools.subscribe(self._pool_changed)
        registry.workers.subscribe(self._worker_changed)
        registry.services.subscribe(self._service_changed)
        registry.sites.subscribe(self._site_changed)

    async def run(self) -> NoReturn:
        """Reconcile until cancelled."""
        await self._queue.run()

    async def torn_down(self, uid: str) -> None:
        """Wait until nothing is left of a pool that is being deleted (the cache may not have it yet)."""
        memory = self._memory.setdefault(uid, _Memory(WorkerPoolStatus()))
        await memory.torn_down.wait()

    def wake_all(self) -> None:
        """Something changed that may concern every pool."""
        for pool in self._registry.pools:
            self._queue.add(key_of(pool))

    def _pool_changed(self, old: WorkerPool | None, new: WorkerPool | None) -> None:
        if (left := gone(old, new)) is not None:
            memory = self._memory.pop(left.metadata.uid, _Memory(left.status))
            if not memory.torn_down.is_set():  # it was deleted without its finalizer
                self._broker.sweep_soon()
                memory.torn_down.set()
            self._queue.forget(key_of(left))
        if new is not None:
            self._memory.setdefault(new.metadata.uid, _Memory(new.status))
            if (
                old is None
                or old.metadata.generation != new.metadata.generation
                or old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
            ):
                self._queue.add(key_of(new))

    def _worker_changed(self, old: Worker | None, new: Worker | None) -> None:
        worker = new or old
        if worker is None or not (uid := pool_uid_of(worker)):
            return
        if old is not None and new is not None and _same_for_pool(old, new):
            return
        for pool in self._registry.pools.by("uid", uid):
            self._queue.add(key_of(pool), self._registry.workers.count("pool", uid) * SECONDS_PER_WORKER)

    def _service_changed(self, old: PublishedService | None, new: PublishedService | None) -> None:
        service = new or old
        if service is not None and (old is None or new is None or old.service.spec != new.service.spec):
            for pool in self._registry.pools.by("service", key_text(service)):
                self._queue.add(key_of(pool))

    def _site_changed(self, old: CloudSite | None, new: CloudSite | None) -> None:
        if old is None or new is None or old.spec != new.spec or _usable(old) != _usable(new):
            self.wake_all()

    async def _reconcile(self, key: Key) -> float | None:
        pool = self._registry.pools.get(*key)
        if pool is None:
            return None
        memory = self._memory[pool.metadata.uid]
        workers = self._registry.workers.by("pool", pool.metadata.uid)
        if memory.refused_until is not None and memory.refused_until <= now():
            memory.refused_until = None
        given = PoolInput(
            pool=pool,
            previous=memory.status,
            backoff=memory.backoff,
            workers=workers,
            service=self._registry.service_of(pool),
            sites=self._sites.states(),
            now=now(),
            taken=frozenset(memory.taken),
            busy=self._busy(workers) if len(workers) > pool.spec.replicas else frozenset(),
            broker=self._broker.reachable,
            refused=memory.refused if memory.refused_until is not None else "",
        )
        plan = plan_pool(given)
        await self._carry_out(pool, memory, plan, given)
        memory.backoff = plan.backoff
        self._tell(pool, memory.status, plan)
        memory.status = plan.status
        waits = await self._write(pool, memory, urgent=plan.urgent)
        if pool.metadata.deletion_timestamp is not None:
            return await self._tear_down(pool, memory)
        again = seconds_until(now(), [memory.refused_until])
        return min((value for value in (waits, plan.wake_seconds, again) if value is not None), default=None)

    async def _carry_out(self, pool: WorkerPool, memory: _Memory, plan: PoolPlan, given: PoolInput) -> None:
        if not plan.create:
            memory.taken.clear()
        await self._all(self._delete(removal) for removal in plan.delete)
        await self._all(self._drain(worker) for worker in plan.drain)
        try:
            await self._all(self._create(pool, memory, new, given) for new in plan.create)
        except ApiError as error:
            if error.retryable:
                raise
            memory.refused, memory.refused_until = error.message, after(now(), REFUSED_SECONDS)
            self._queue.add(key_of(pool))

    async def _all(self, calls: Iterable[Awaitable[None]]) -> None:
        """Make many requests, some at a time; the first failure is raised when all have ended."""

        async def one(call: Awaitable[None]) -> None:
            async with self._writers:
                await call

        results = await asyncio.gather(*(one(call) for call in calls), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _create(self, pool: WorkerPool, memory: _Memory, new: NewWorker, given: PoolInput) -> None:
        body = pool_worker(pool, new.name, new.site, given.now)
        try:
            raw = await self._registry.client.create(names.WORKERS, body, pool.metadata.namespace)
        except AlreadyExistsError:
            try:
                raw = await self._registry.client.get(names.WORKERS, new.name, pool.metadata.namespace)
            except NotFoundError:
                return
        worker = self._registry.workers.learn(raw)
        if worker is not None and pool_uid_of(worker) != pool.metadata.uid:
            memory.taken.add(new.name)

    async def _delete(self, removal: Removal) -> None:
        metadata = removal.worker.metadata
        try:
            left = await self._registry.client.delete(
                names.WORKERS, metadata.name, metadata.namespace, uid=metadata.uid
            )
        except (NotFoundError, ConflictError):
            left = None
        if left is None:
            self._registry.workers.forget(removal.worker)
        else:
            self._registry.workers.learn(left)

    async def _drain(self, worker: Worker) -> None:
        """Tell the API server first: the request can be sent again, the decision must not be taken again."""
        metadata = worker.metadata
        patch = {"metadata": {"uid": metadata.uid}, "spec": {"drain": True}}
        try:
            raw = await self._registry.client.patch(names.WORKERS, metadata.name, patch, metadata.namespace)
        except (NotFoundError, ConflictError):
            return
        self._registry.workers.learn(raw)

    def _busy(self, workers: Iterable[Worker]) -> frozenset[str]:
        """The workers that run a ServiceAction."""
        uids = (worker.metadata.uid for worker in workers)
        return frozenset(uid for uid in uids if self._registry.actions.count("worker", uid))

    async def _write(self, pool: WorkerPool, memory: _Memory, *, urgent: bool) -> float | None:
        """Write the status, once a second at most unless it is urgent; else after how many seconds to come again."""
        current = self._registry.pools.get(*key_of(pool))
        if current is None or current.metadata.uid != pool.metadata.uid or current.status == memory.status:
            return None
        time = asyncio.get_running_loop().time()
        waits = memory.written_at + STATUS_SPACING_SECONDS - time
        if waits > 0 and not urgent:
            return waits
        await write_status(self._registry.client, self._registry.pools, current.metadata, current.status, memory.status)
        memory.written_at = time
        return None

    async def _tear_down(self, pool: WorkerPool, memory: _Memory) -> float | None:
        """Of a pool that is being deleted: when workers and machines are gone, remove what it has at the broker."""
        if memory.torn_down.is_set():
            return None
        metadata = pool.metadata
        left = self._sites.machines_of_pool(metadata.namespace, metadata.name)
        if unknown := [site for site, count in left.items() if count is None]:
            note = f"cannot tell whether machines are left at {', '.join(unknown)}: not connected"
            self._recorder.emit(names.WORKER_POOLS, metadata, Reason.TERMINATING, note, warning=True)
        if left or self._registry.workers.count("pool", metadata.uid):
            return TEARDOWN_CHECK_SECONDS
        await self._broker.remove_pool(metadata.uid)
        memory.torn_down.set()
        return None

    def _tell(self, pool: WorkerPool, before: WorkerPoolStatus, plan: PoolPlan) -> None:
        """Events and metrics about what has just been done."""
        after, metadata = plan.status, pool.metadata
        if failed := [removal for removal in plan.delete if removal.failed]:
            note = f"{len(failed)} failed workers are replaced, such as {failed[0].worker.metadata.name}: "
            note += f"{failed[0].reason} {failed[0].message}"
            self._recorder.emit(names.WORKER_POOLS, metadata, Reason.WORKER_REPLACED, note, warning=True)
        if after.activities and after.activities != before.activities:
            self._recorder.emit(names.WORKER_POOLS, metadata, Reason.SCALED, after.activities[-1].message)
        if _available(after) and not _available(before):
            note = f"{after.ready_replicas} workers are ready"
            self._recorder.emit(names.WORKER_POOLS, metadata, Reason.WORKERS_READY, note)
        start = after.start
        if start is not None and start.registered_milliseconds is not None and start != before.start:
            START_SECONDS.labels("T_r").observe(start.registered_milliseconds / 1000)
            if start.boot_milliseconds is not None:
                START_SECONDS.labels("T_boot").observe(start.boot_milliseconds / 1000)
        statuses = [memory.status for memory in self._memory.values()]
        WORKERS.labels("ready").set(sum(status.ready_replicas for status in statuses))
        WORKERS.labels("starting").set(sum(status.starting_replicas for status in statuses))


def _available(status: WorkerPoolStatus) -> bool:
    condition = find_condition(status.conditions, ConditionType.AVAILABLE)
    return condition is not None and condition.status == "True"


def _usable(site: CloudSite) -> list[str | None]:
    """What of a site's status decides whether new workers may go there."""
    conditions = site.status.conditions
    found = [find_condition(conditions, kind) for kind in (ConditionType.READY, ConditionType.CAPACITY_AVAILABLE)]
    return [condition.status if condition is not None else None for condition in found]


def _same_for_pool(old: Worker, new: Worker) -> bool:
    """Whether nothing changed that a pool's plan depends on."""
    return _relevant(old) == _relevant(new)


def _relevant(worker: Worker) -> tuple[object, ...]:
    ready = find_condition(worker.status.conditions, ConditionType.READY)
    return (
        worker.metadata.uid,
        worker.metadata.generation,
        worker.metadata.deletion_timestamp,
        (ready.status, ready.reason) if ready is not None else None,
        worker.status.stages.registered,
    )
