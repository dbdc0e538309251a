"""Reconciles WorkerPools: one pass plans, carries out, and writes the status when it is worth it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn

from prometheus_client import Gauge

from simyard.api import names
from simyard.api.base import Json
from simyard.api.cloud_site import CloudSite
from simyard.api.names import Reason
from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool, WorkerPoolStatus
from simyard.build.worker import pool_worker
from simyard.fleet.broker import Broker
from simyard.fleet.licences import Licences
from simyard.fleet.queue import KeyQueue, RateLimit
from simyard.fleet.recorder import Recorder
from simyard.fleet.registry import Registry, gone, key_text, now, pool_uid_of
from simyard.fleet.sites import Sites
from simyard.fleet.starts import tell_begin, tell_end
from simyard.fleet.statuses import write_status
from simyard.fleet.uses import Uses
from simyard.kube.cache import Key, key_of
from simyard.kube.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError
from simyard.messaging.events import ReceivedEvent
from simyard.plan.backoff import Backoff
from simyard.plan.idleness import coarseness
from simyard.plan.pool import NewWorker, PoolInput, PoolPlan, plan_pool, was_asleep
from simyard.plan.relevance import is_available, phase, same_for_pool, usable
from simyard.plan.service import PublishedService
from simyard.plan.start import publish_start
from simyard.plan.workforce import Clock, Removal
from simyard_adapter.wire import Event

WORKERS = Gauge("simyard_workers", "Workers of all pools, by what they do.", ["state"])

PASS_SPACING_SECONDS = 0.1
SECONDS_PER_WORKER = 1 / 20_000
"""A pass looks at every worker of the pool, so events of workers are gathered the longer the more there are."""
STATUS_SPACING_SECONDS = 1.0
"""Between two writes of the same status."""
STATUS_DELAY_SECONDS = 0.5
"""So long a change waits for others that go into the same write, unless the pool becomes Available or ceases to be."""
UNURGENT_PER_SECOND = 50.0
"""Such writes that can wait, over all pools."""
WRITERS = 32
TEARDOWN_CHECK_SECONDS = 1.0
REFUSED_SECONDS = 30.0
"""After the API server refused a Worker (a quota, a policy), the next try is made so much later."""


@dataclass(slots=True)
class _Memory:
    """What is remembered of a pool between passes, beyond its object."""

    status: WorkerPoolStatus
    backoff: Backoff = field(default_factory=Backoff)
    written_at: float = float("-inf")
    turned_at: float = float("-inf")
    due_at: float | None = None
    asleep: bool = False
    taken: set[str] = field(default_factory=set)
    refused: str = ""
    refused_until: float = 0.0
    torn_down: asyncio.Event = field(default_factory=asyncio.Event)


class Pools:
    """Keeps every WorkerPool as its plan says."""

    def __init__(
        self, registry: Registry, sites: Sites, broker: Broker, recorder: Recorder, licences: Licences
    ) -> None:
        self._registry = registry
        self._sites = sites
        self._broker = broker
        self._recorder = recorder
        self._licences = licences
        self._memory: dict[str, _Memory] = {}
        self._since: dict[str, float] = {}
        self._drained: set[str] = set()
        self._reserved: Counter[str] = Counter()
        self._time = asyncio.get_running_loop().time
        self._budget = RateLimit(UNURGENT_PER_SECOND, self._time)
        self.uses = Uses(registry, self._used)
        self._writers = asyncio.Semaphore(WRITERS)
        self._queue = KeyQueue("pool", self._reconcile, spacing_seconds=PASS_SPACING_SECONDS)
        registry.pools.subscribe(self._pool_changed)
        registry.workers.subscribe(self._worker_changed)
        registry.services.subscribe(self._service_changed)
        registry.sites.subscribe(self._site_changed)
        licences.wake.append(self._queue.add)

    async def run(self) -> NoReturn:
        """Reconcile until cancelled."""
        self.uses.look_back()
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
            memory = self._memory.setdefault(new.metadata.uid, _Memory(new.status))
            if old is not None and new.status not in (old.status, memory.status):  # another operator's late write
                memory.status = new.status
                self._queue.add(key_of(new), STATUS_SPACING_SECONDS)
            if (
                old is None
                or old.metadata.generation != new.metadata.generation
                or old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
            ):
                self._queue.add(key_of(new))

    def _worker_changed(self, old: Worker | None, new: Worker | None) -> None:
        worker = new or old
        if worker is None or not pool_uid_of(worker):
            return
        if (left := gone(old, new)) is not None:
            self._since.pop(left.metadata.uid, None)
            self._drained.discard(left.metadata.uid)
        if new is not None and (old is None or left is not None or phase(old) != phase(new)):
            self._since[new.metadata.uid] = self._time()
        if old is not None and new is not None and same_for_pool(old, new):
            return
        self._wake_pool_of(worker)

    def _wake_pool_of(self, worker: Worker) -> None:
        uid = pool_uid_of(worker)
        for pool in self._registry.pools.by("uid", uid):
            self._queue.add(key_of(pool), self._registry.workers.count("pool", uid) * SECONDS_PER_WORKER)

    def _service_changed(self, old: PublishedService | None, new: PublishedService | None) -> None:
        service = new or old
        if service is not None and (old is None or new is None or old.service.spec != new.service.spec):
            for pool in self._registry.pools.by("service", key_text(service)):
                self._memory[pool.metadata.uid].backoff = Backoff()  # a change is tried at once
                self._queue.add(key_of(pool))

    def _site_changed(self, old: CloudSite | None, new: CloudSite | None) -> None:
        if old is None or new is None or old.spec != new.spec or usable(old) != usable(new):
            self.wake_all()

    def take(self, events: Sequence[ReceivedEvent]) -> None:
        """What adapters told, of workers that exist."""
        self.uses.take(events)
        for event in events:
            worker = self._registry.worker(event.worker_uid) if event.kind is Event.DRAINED else None
            if worker is not None:
                self._drained.add(event.worker_uid)
                self._wake_pool_of(worker)

    def _used(self, pool: WorkerPool) -> None:
        """Something was heard of an action on a pool with an idle time-out: one that sleeps may be needed now."""
        timeout = pool.spec.idle_timeout_seconds
        memory = self._memory.get(pool.metadata.uid)
        if timeout is not None and memory is not None:
            self._queue.add(key_of(pool), 0.0 if memory.asleep else coarseness(timeout))

    async def _reconcile(self, key: Key) -> float | None:
        pool = self._registry.pools.get(*key)
        if pool is None:
            return None
        memory = self._memory[pool.metadata.uid]
        workers = self._registry.workers.by("pool", pool.metadata.uid)
        time = self._time()
        busy = self._busy(workers)
        given = PoolInput(
            pool=pool,
            previous=memory.status,
            backoff=memory.backoff,
            workers=workers,
            service=self._registry.service_of(pool),
            sites=self._sites.states(self._reserved),
            now=now(),
            taken=frozenset(memory.taken),
            busy=busy,
            drained=self._drained,
            use=self.uses.of(pool, busy=bool(busy)),
            clock=Clock(time, self._since),
            broker=self._broker.reachable,
            refused=memory.refused if memory.refused_until > time else "",
            licence=self._licences.allotment(pool, now()),
        )
        plan = plan_pool(given)
        memory.asleep = was_asleep(plan.status)
        self._licences.planned(pool, plan.status)
        await self._carry_out(pool, memory, plan, given)
        memory.backoff = plan.backoff
        self._tell(pool, memory.status, plan)
        memory.status = plan.status
        waits = await self._write(pool, memory)
        if pool.metadata.deletion_timestamp is not None:
            return await self._tear_down(pool, memory)
        again = memory.refused_until - self._time()
        times = (waits, plan.wake_seconds, again if again > 0 else None)
        return min((seconds for seconds in times if seconds is not None), default=None)

    async def _carry_out(self, pool: WorkerPool, memory: _Memory, plan: PoolPlan, given: PoolInput) -> None:
        if not plan.create:
            memory.taken.clear()
        # Other pools are planned meanwhile: what is about to be made takes its place already.
        reserved = Counter(new.site for new in plan.create)
        self._reserved.update(reserved)
        try:
            await self._all(partial(self._delete, removal) for removal in plan.delete)
            await self._all(partial(self._change, worker, {"spec": {"drain": True}}) for worker in plan.drain)
            await self._all(partial(self._adopt, worker, revision) for worker, revision in plan.adopt)
            await self._all(partial(self._create, pool, memory, new, given, reserved) for new in plan.create)
        except ApiError as error:
            if error.retryable:
                raise
            memory.refused, memory.refused_until = error.message, self._time() + REFUSED_SECONDS
            self.wake_all()  # there is room again for others
        finally:
            self._reserved.subtract(reserved)

    async def _all(self, calls: Iterable[Callable[[], Awaitable[None]]]) -> None:
        """Make many requests, some at a time; the first failure is raised when all have ended."""

        async def one(call: Callable[[], Awaitable[None]]) -> None:
            async with self._writers:
                await call()

        results = await asyncio.gather(*(one(call) for call in calls), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _create(
        self, pool: WorkerPool, memory: _Memory, new: NewWorker, given: PoolInput, reserved: Counter[str]
    ) -> None:
        body = pool_worker(pool, new.name, new.site, new.revision, given.now)
        try:
            try:
                raw = await self._registry.client.create(names.WORKERS, body, pool.metadata.namespace)
            except AlreadyExistsError:
                raw = await self._registry.client.get(names.WORKERS, new.name, pool.metadata.namespace)
        except NotFoundError:
            return
        finally:
            reserved[new.site] -= 1
            self._reserved[new.site] -= 1
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

    async def _adopt(self, worker: Worker, revision: str) -> None:
        await self._change(worker, {"metadata": {"labels": {names.LABEL_REVISION: revision}}})

    async def _change(self, worker: Worker, change: Json) -> None:
        """Tell the API server first: the request can be sent again, the decision must not be taken again.

        With the uid it changes that very Worker and no other, and makes none.
        """
        metadata = worker.metadata
        patch = {**change, "metadata": {**change.get("metadata", {}), "uid": metadata.uid}}
        try:
            raw = await self._registry.client.patch(names.WORKERS, metadata.name, patch, metadata.namespace)
        except (NotFoundError, ConflictError):
            return
        self._registry.workers.learn(raw)

    def _busy(self, workers: Iterable[Worker]) -> frozenset[str]:
        """The workers that run a ServiceAction."""
        if not len(self._registry.actions):
            return frozenset()
        uids = (worker.metadata.uid for worker in workers)
        return frozenset(uid for uid in uids if self._registry.actions.count("worker", uid))

    async def _write(self, pool: WorkerPool, memory: _Memory) -> float | None:
        """Write the status when its turn has come, or else say after how many seconds to come again.

        A pool's status is written once a second at most, and beside that once a second when it becomes Available or
        ceases to be. Everything else waits for others that change soon, and for its turn among all pools.
        """
        current = self._registry.pools.get(*key_of(pool))
        if current is None or current.metadata.uid != pool.metadata.uid or current.status == memory.status:
            memory.due_at = None
            return None
        time = self._time()
        if memory.due_at is None:
            memory.due_at = time + max(STATUS_DELAY_SECONDS, self._budget.reserve())
        turns = is_available(current.status) != is_available(memory.status)
        waits = max(memory.due_at, memory.written_at + STATUS_SPACING_SECONDS) - time
        if turns:
            waits = min(waits, memory.turned_at + STATUS_SPACING_SECONDS - time)
        if waits > 0:
            return waits
        memory.due_at = None
        stored = memory.status
        if not await write_status(
            self._registry.client, self._registry.pools, current.metadata, current.status, stored
        ):
            return None
        memory.written_at = time
        memory.turned_at = time if turns else memory.turned_at
        memory.status = publish_start(stored, current.status, now())
        if memory.status is stored:
            return None
        tell_end(self._recorder, pool, memory.status)
        return STATUS_SPACING_SECONDS

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
        for activity in after.activities:
            if activity not in before.activities:
                self._recorder.emit(names.WORKER_POOLS, metadata, activity.reason, activity.message)
        if is_available(after) and not is_available(before):
            note = f"{after.ready_replicas} workers are ready"
            self._recorder.emit(names.WORKER_POOLS, metadata, Reason.WORKERS_READY, note)
        tell_begin(self._recorder, pool, before, after)
        statuses = [memory.status for memory in self._memory.values()]
        WORKERS.labels("ready").set(sum(status.ready_replicas for status in statuses))
        WORKERS.labels("starting").set(sum(status.starting_replicas for status in statuses))
