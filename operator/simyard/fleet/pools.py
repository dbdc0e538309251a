"""Reconciles WorkerPools: one pass plans, carries out, and writes the status when it is worth it."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NoReturn

from prometheus_client import Gauge

from simyard.api import names
from simyard.api.cloud_site import CloudSite
from simyard.api.names import Reason
from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool, WorkerPoolStatus
from simyard.fleet.broker import Broker
from simyard.fleet.licences import Licences
from simyard.fleet.pool_workers import PoolWorkers
from simyard.fleet.queue import KeyQueue, RateLimit
from simyard.fleet.recorder import Recorder
from simyard.fleet.registry import Registry, gone, key_text, now, pool_uid_of
from simyard.fleet.room import Room
from simyard.fleet.sites import Sites
from simyard.fleet.starts import tell_begin, tell_end
from simyard.fleet.statuses import write_status
from simyard.fleet.uses import Uses
from simyard.guest.messages import Active, Drained
from simyard.kube.cache import Key, key_of
from simyard.messaging.events import ReceivedEvent
from simyard.plan.backoff import Backoff
from simyard.plan.idleness import coarseness
from simyard.plan.pool import PoolPlan, plan_pool, was_asleep
from simyard.plan.pool_input import PoolInput
from simyard.plan.relevance import is_available, phase, same_for_pool, usable
from simyard.plan.rotation import generation_of
from simyard.plan.service import PublishedService
from simyard.plan.start import publish_start
from simyard.plan.texts import count_is
from simyard.plan.workforce import Clock
from simyard_adapter.wire import pool_user
from simyard_sites.kubernetes.errors import ApiError

WORKERS = Gauge("simyard_workers", "Workers of all pools, by what they do.", ["state"])

PASS_SPACING_SECONDS = 0.1
SECONDS_PER_WORKER = 1 / 10_000
"""A pass looks at every worker of the pool, so events of workers are gathered the longer the more there are."""
STATUS_SPACING_SECONDS = 1.0
"""Between two writes of the same status."""
STATUS_DELAY_SECONDS = 0.5
"""So long a change waits for others that go into the same write, unless the pool becomes Available or ceases to be."""
UNURGENT_PER_SECOND = 50.0
"""Such writes that can wait, over all pools."""
TEARDOWN_CHECK_SECONDS = 1.0
MOST_SENT = 8
REFUSED_SECONDS = 30.0
"""After the API server refused a Worker (a quota, a policy), the next try is made so much later."""


@dataclass(slots=True)
class _Memory:
    """What is remembered of a pool between passes, beyond its object.

    ``active_at``: when it was last seen to be used, or first seen. ``taken``: names that belong to somebody else.
    ``unsure``: names of Workers whose making was not answered. ``sent``: statuses whose writing was not answered.
    ``worker_left``: a worker is gone that knew the password. ``planned``: this process has planned for it.
    """

    status: WorkerPoolStatus
    active_at: float
    backoff: Backoff = field(default_factory=Backoff)
    written_at: float = float("-inf")
    turned_at: float = float("-inf")
    due_at: float | None = None
    asleep: bool = False
    taken: set[str] = field(default_factory=set)
    unsure: set[str] = field(default_factory=set)
    refused: str = ""
    refused_until: float = 0.0
    sent: deque[WorkerPoolStatus] = field(default_factory=partial(deque, maxlen=MOST_SENT))
    worker_left: bool = False
    planned: bool = False
    torn_down: asyncio.Event = field(default_factory=asyncio.Event)


class Pools:
    """Keeps every WorkerPool as its plan says."""

    def __init__(
        self,
        registry: Registry,
        sites: Sites,
        broker: Broker,
        recorder: Recorder,
        licences: Licences,
        heard_seconds: Callable[[str], float] = lambda _: 0.0,
        rotate_after_seconds: float = 0.0,
    ) -> None:
        """Set up.

        ``heard_seconds``: for how long all events of a broker user have been heard, without a gap.
        ``rotate_after_seconds``: a pool's password at the broker changes so long after a worker left; 0: never.
        """
        self._registry = registry
        self._sites = sites
        self._broker = broker
        self._recorder = recorder
        self._licences = licences
        self._heard_seconds = heard_seconds
        self._rotate_after_seconds = rotate_after_seconds
        self._memory: dict[str, _Memory] = {}
        self._since: dict[str, float] = {}
        self._drained: set[str] = set()
        self._active: dict[str, float] = {}
        self._time = asyncio.get_running_loop().time
        self._budget = RateLimit(UNURGENT_PER_SECOND, self._time)
        self.uses = Uses(registry, self._used)
        self._queue = KeyQueue("pool", self._reconcile, spacing_seconds=PASS_SPACING_SECONDS)
        self._room = Room(self._queue.add)
        self._workers = PoolWorkers(registry, self._room)
        self._counted: dict[str, Counter[str]] = {}
        self._sums: Counter[str] = Counter()
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
        memory = self._memory.setdefault(uid, self._new_memory(WorkerPoolStatus()))
        await memory.torn_down.wait()

    def wake_all(self) -> None:
        """Something changed that may concern every pool."""
        for pool in self._registry.pools:
            self._queue.add(key_of(pool))

    def _new_memory(self, status: WorkerPoolStatus) -> _Memory:
        return _Memory(status, active_at=self._time())

    def _pool_changed(self, old: WorkerPool | None, new: WorkerPool | None) -> None:
        if (left := gone(old, new)) is not None:
            memory = self._memory.pop(left.metadata.uid, self._new_memory(left.status))
            self._count(left.metadata.uid)
            self._room.wait(key_of(left), waits=False)
            if not memory.torn_down.is_set():  # it was deleted without its finalizer
                self._broker.sweep_soon()
                memory.torn_down.set()
            self._queue.forget(key_of(left))
        if new is not None:
            memory = self._memory.setdefault(new.metadata.uid, self._new_memory(new.status))
            if old is not None and new.status not in (old.status, memory.status):
                if new.status not in memory.sent:  # another operator's late write
                    memory.status = new.status
                self._queue.add(key_of(new), STATUS_SPACING_SECONDS)
            self._count(new.metadata.uid)
            if (
                old is None
                or old.metadata.generation != new.metadata.generation
                or old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
            ):
                self._queue.add(key_of(new))

    def _worker_changed(self, old: Worker | None, new: Worker | None) -> None:
        if gone(old, new) is not None:
            self._room.freed()
        worker = new or old
        if worker is None or not pool_uid_of(worker):
            return
        if (left := gone(old, new)) is not None:
            self._since.pop(left.metadata.uid, None)
            self._drained.discard(left.metadata.uid)
            self._active.pop(left.metadata.uid, None)
            if (memory := self._memory.get(pool_uid_of(left))) is not None:
                memory.worker_left = True
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

    def take(self, event: ReceivedEvent) -> None:
        """Apply an event from a worker, if it exists."""
        self.uses.take(event)
        if (worker := self._registry.worker(event.worker_uid)) is None:
            return
        match event.message:
            case Active():
                self._active[event.worker_uid] = self._time()
            case Drained():
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
            self._room.wait(key, waits=False)
            return None
        memory = self._memory[pool.metadata.uid]
        if memory.unsure:
            await self._workers.settle(pool, memory.unsure)
        workers = self._registry.workers.by("pool", pool.metadata.uid)
        time = self._time()
        busy = self._busy(workers)
        given = PoolInput(
            pool=pool,
            previous=memory.status,
            backoff=memory.backoff,
            workers=workers,
            service=self._registry.service_of(pool),
            sites=self._sites.states(self._room.reserved),
            now=now(),
            taken=frozenset(memory.taken),
            busy=busy,
            drained=self._drained,
            active=self._active,
            heard_seconds=self._heard_seconds(pool_user(pool.metadata.uid)),
            use=replace(self.uses.of(pool, busy=bool(busy)), quiet_seconds=time - memory.active_at),
            clock=Clock(time, self._since),
            broker_problem=self._broker.problem,
            refused=memory.refused if memory.refused_until > time else "",
            licence=self._licences.allotment(pool, now()),
            worker_left=memory.worker_left or (not memory.planned and len(workers) < memory.status.replicas),
            rotate_after_seconds=self._rotate_after_seconds,
        )
        plan = plan_pool(given)
        memory.asleep = was_asleep(plan.status)
        if given.use.now or plan.status.last_active_time != memory.status.last_active_time:
            memory.active_at = time
        self._licences.planned(pool, plan.status)
        self._room.wait(key, waits=plan.waits_for_room)
        await self._carry_out(pool, memory, plan, given)
        waits = await self._write(pool, memory)
        again = memory.refused_until - self._time()
        if pool.metadata.deletion_timestamp is not None and plan.wake_seconds is None:
            return await self._tear_down(pool, memory)
        times = (waits, plan.wake_seconds, again if again > 0 else None)
        return min((seconds for seconds in times if seconds is not None), default=None)

    async def _carry_out(self, pool: WorkerPool, memory: _Memory, plan: PoolPlan, given: PoolInput) -> None:
        if not plan.create:
            memory.taken.clear()
        # Other pools are planned meanwhile: what is about to be made takes its place already.
        with self._room.hold(new.site for new in plan.create) as places:
            try:
                await self._workers.end(plan)
                self._take_over(pool, memory, plan)  # what has been ended is remembered, whatever else fails
                await self._workers.change(plan)
                await self._workers.make(plan, given, places, memory.taken, memory.unsure)
            except ApiError as error:
                if error.retryable:
                    raise
                self._take_over(pool, memory, plan)
                memory.refused, memory.refused_until = error.message, self._time() + REFUSED_SECONDS

    def _take_over(self, pool: WorkerPool, memory: _Memory, plan: PoolPlan) -> None:
        if memory.status is plan.status:
            return
        memory.backoff = plan.backoff
        if generation_of(plan.status) != generation_of(memory.status):
            memory.worker_left = False  # whoever left until now does not know the new password
        memory.planned = True
        self._tell(pool, memory.status, plan)
        memory.status = plan.status
        self._count(pool.metadata.uid)

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
        memory.sent.append(stored)
        if not await write_status(
            self._registry.client, self._registry.pools, current.metadata, current.status, stored
        ):
            return None
        memory.sent.clear()
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
            note = f"{count_is(len(failed), 'failed worker')} replaced, such as {failed[0].worker.metadata.name}: "
            note += f"{failed[0].reason} {failed[0].message}"
            self._recorder.emit(names.WORKER_POOLS, metadata, Reason.WORKER_REPLACED, note, warning=True)
        for activity in after.activities:
            if activity not in before.activities:
                self._recorder.emit(names.WORKER_POOLS, metadata, activity.reason, activity.message)
        if is_available(after) and not is_available(before):
            note = f"{count_is(after.ready_replicas, 'worker')} ready"
            self._recorder.emit(names.WORKER_POOLS, metadata, Reason.WORKERS_READY, note)
        tell_begin(self._recorder, pool, before, after)

    def _count(self, uid: str) -> None:
        """Bring a pool's part in the metrics up to date."""
        memory = self._memory.get(uid)
        status = memory.status if memory is not None else WorkerPoolStatus()
        counts = Counter(ready=status.ready_replicas, starting=status.starting_replicas)
        self._sums.update(counts)
        self._sums.subtract(self._counted.pop(uid, Counter()))
        if memory is not None:
            self._counted[uid] = counts
        for state in counts:
            WORKERS.labels(state).set(self._sums[state])
