# SPDX-License-Identifier: Apache-2.0
"""Reconciles WorkerPools. A pass plans a pool, carries the plan out, and writes the status if it is due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NoReturn

from simyard.api import names
from simyard.api.cloud_site import CloudSite
from simyard.api.names import Reason
from simyard.api.study import Study
from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool, WorkerPoolStatus
from simyard.fleet.broker.provisioning import Broker
from simyard.fleet.pools.licences import Licences
from simyard.fleet.pools.memory import PoolMemory
from simyard.fleet.pools.statuses import PoolStatuses
from simyard.fleet.pools.uses import Uses
from simyard.fleet.pools.workers import PoolWorkers
from simyard.fleet.recorder import Recorder
from simyard.fleet.registry import Registry, find_removed, format_key, get_pool_uid, get_time
from simyard.fleet.sites.reconciler import Sites
from simyard.fleet.sites.room import Room
from simyard.fleet.timing import PRODUCTION, Timing
from simyard.fleet.work_queue import KeyQueue
from simyard.guest.messages import Active, Drained
from simyard.kube.cache import Key, make_key
from simyard.messaging.events import ReceivedEvent
from simyard.plan.backoff import Backoff
from simyard.plan.idleness import get_rounding_seconds, was_asleep
from simyard.plan.pool import PoolPlan, plan_pool
from simyard.plan.pool_input import PoolInput
from simyard.plan.relevance import get_phase, get_usability, is_same_for_pool
from simyard.plan.rotation import get_generation
from simyard.plan.service import PublishedService
from simyard.plan.studies.demand import compute_demand
from simyard.plan.workforce import Clock
from simyard_adapter.wire import name_pool_user
from simyard_sites.kubernetes.errors import ApiError

PASS_SPACING_SECONDS = 0.1
SECONDS_PER_WORKER = 1 / 10_000
"""Delay of a pass after an event, for each Worker of the pool.

A pass reads all Workers of its pool. In a large pool, more events therefore share one pass.
"""
REFUSED_SECONDS = 30.0
"""Pause after the API server refused a Worker, for example because of a quota or a policy."""


class Pools:
    """The reconciler of all WorkerPools."""

    def __init__(
        self,
        registry: Registry,
        sites: Sites,
        broker: Broker,
        recorder: Recorder,
        licences: Licences,
        heard_seconds: Callable[[str], float] = lambda _: 0.0,
        rotate_after_seconds: float = 0.0,
        timing: Timing = PRODUCTION,
    ) -> None:
        """Create a reconciler without any pool.

        ``heard_seconds`` returns the time for which the operator has received all events of a broker user without a
        gap. ``rotate_after_seconds`` is the delay between the exit of a worker and the change of its pool's password;
        0: no change.
        """
        self._timing = timing
        self._registry = registry
        self._sites = sites
        self._broker = broker
        self._recorder = recorder
        self._licences = licences
        self._heard_seconds = heard_seconds
        self._rotate_after_seconds = rotate_after_seconds
        self._memory: dict[str, PoolMemory] = {}
        self._since: dict[str, float] = {}
        self._drained: set[str] = set()
        self._active: dict[str, float] = {}
        self._time = asyncio.get_running_loop().time
        self._statuses = PoolStatuses(registry, recorder, timing)
        self.uses = Uses(registry, self._used)
        self._queue = KeyQueue("pool", self._reconcile, spacing_seconds=PASS_SPACING_SECONDS)
        self._room = Room(self._queue.add)
        self._workers = PoolWorkers(registry, self._room)

    async def run(self) -> NoReturn:
        """Reconcile until cancelled."""
        self.uses.look_back()
        await self._queue.run()

    async def wait_until_torn_down(self, uid: str) -> None:
        """Wait until the Workers, machines, queues and user of a deleted pool are gone.

        The method also works before the pool is in the cache.
        """
        memory = self._memory.setdefault(uid, self._new_memory(WorkerPoolStatus()))
        await memory.torn_down.wait()

    def wake(self, key: Key, delay: float = 0.0) -> None:
        """Ask for a pass over a pool after ``delay`` seconds, or sooner."""
        self._queue.add(key, delay)

    def wake_all(self) -> None:
        """Ask for a pass over every pool."""
        for pool in self._registry.pools:
            self._queue.add(make_key(pool))

    def _new_memory(self, status: WorkerPoolStatus) -> PoolMemory:
        return PoolMemory(status, active_at=self._time())

    def pool_changed(self, old: WorkerPool | None, new: WorkerPool | None) -> None:
        """Reconcile a pool that is new, changed or being deleted; forget a deleted pool."""
        if (left := find_removed(old, new)) is not None:
            memory = self._memory.pop(left.metadata.uid, self._new_memory(left.status))
            self._statuses.count(left.metadata.uid, None)
            self._room.set_waiting(make_key(left), waits=False)
            if not memory.torn_down.is_set():  # the pool was deleted without its finalizer
                self._broker.sweep_soon()
                memory.torn_down.set()
            self._queue.forget(make_key(left))
        if new is not None:
            memory = self._memory.setdefault(new.metadata.uid, self._new_memory(new.status))
            if old is not None and new.status not in (old.status, memory.status):
                if new.status not in memory.sent:  # another operator wrote the status late
                    memory.status = new.status
                self._queue.add(make_key(new), self._timing.status_spacing_seconds)
            self._statuses.count(new.metadata.uid, memory.status)
            if (
                old is None
                or old.metadata.generation != new.metadata.generation
                or old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
            ):
                self._queue.add(make_key(new))

    def worker_changed(self, old: Worker | None, new: Worker | None) -> None:
        """Reconcile the pool of a Worker if the plan of the pool depends on the change."""
        if find_removed(old, new) is not None:
            self._room.place_freed()
        worker = new or old
        if worker is None or not get_pool_uid(worker):
            return
        if (left := find_removed(old, new)) is not None:
            self._since.pop(left.metadata.uid, None)
            self._drained.discard(left.metadata.uid)
            self._active.pop(left.metadata.uid, None)
            if (memory := self._memory.get(get_pool_uid(left))) is not None:
                memory.worker_left = True
        if new is not None and (old is None or left is not None or get_phase(old) != get_phase(new)):
            self._since[new.metadata.uid] = self._time()
        if old is not None and new is not None and is_same_for_pool(old, new):
            return
        self._wake_pool_of(worker)

    def _wake_pool_of(self, worker: Worker) -> None:
        uid = get_pool_uid(worker)
        for pool in self._registry.pools.list_by("uid", uid):
            self._queue.add(make_key(pool), self._registry.workers.count("pool", uid) * SECONDS_PER_WORKER)

    def service_changed(self, old: PublishedService | None, new: PublishedService | None) -> None:
        """Reconcile the pools of a changed service at once, and reset their backoffs."""
        service = new or old
        if service is not None and (old is None or new is None or old.service.spec != new.service.spec):
            for pool in self._registry.pools.list_by("service", format_key(service)):
                self._memory[pool.metadata.uid].backoff = Backoff()  # a change may have repaired the cause
                self._queue.add(make_key(pool))

    def study_changed(self, old: Study | None, new: Study | None) -> None:
        """Reconcile the pool of a study that asks for another number of workers."""
        asked = [compute_demand(() if study is None else (study,)) for study in (old, new)]
        study = new or old
        if study is not None and asked[0] != asked[1]:
            self._queue.add((study.metadata.namespace, study.spec.target.name))

    def site_changed(self, old: CloudSite | None, new: CloudSite | None) -> None:
        """Reconcile all pools if the spec of a site has changed, or if the site has become or ceased to be usable."""
        if old is None or new is None or old.spec != new.spec or get_usability(old) != get_usability(new):
            self.wake_all()

    def apply_event(self, event: ReceivedEvent) -> None:
        """Record a worker's message that it is active or drained."""
        self.uses.apply_event(event)
        if (worker := self._registry.find_worker(event.worker_uid)) is None:
            return
        match event.message:
            case Active():
                self._active[event.worker_uid] = self._time()
            case Drained():
                self._drained.add(event.worker_uid)
                self._wake_pool_of(worker)

    def _used(self, pool: WorkerPool) -> None:
        """Ask for a pass over a pool with an idle timeout after a use; at once if the pool sleeps."""
        timeout = pool.spec.idle_timeout_seconds
        memory = self._memory.get(pool.metadata.uid)
        if timeout is not None and memory is not None:
            self._queue.add(make_key(pool), 0.0 if memory.asleep else get_rounding_seconds(timeout))

    async def _reconcile(self, key: Key) -> float | None:
        pool = self._registry.pools.get(*key)
        if pool is None:
            self._room.set_waiting(key, waits=False)
            return None
        memory = self._memory[pool.metadata.uid]
        await self._reconcile_unanswered(pool, memory)
        given = self._observe(pool, memory)
        plan = self._plan(pool, memory, given)
        await self._reconcile_workers(pool, memory, plan, given)
        status_seconds = await self._statuses.write(pool, memory)
        if pool.metadata.deletion_timestamp is not None and plan.wake_seconds is None:
            return await self._reconcile_teardown(pool, memory)
        refused_seconds = memory.refused_until - self._time()
        times = (status_seconds, plan.wake_seconds, refused_seconds if refused_seconds > 0 else None)
        return min((seconds for seconds in times if seconds is not None), default=None)

    async def _reconcile_unanswered(self, pool: WorkerPool, memory: PoolMemory) -> None:
        """Read the Workers whose creation got no answer. A plan without them would create too many Workers."""
        if memory.unsure:
            await self._workers.find_unanswered(pool, memory.unsure)

    def _observe(self, pool: WorkerPool, memory: PoolMemory) -> PoolInput:
        workers = self._registry.workers.list_by("pool", pool.metadata.uid)
        time = self._time()
        busy = self._busy(workers)
        return PoolInput(
            pool=pool,
            previous=memory.status,
            backoff=memory.backoff,
            workers=workers,
            service=self._registry.find_service(pool),
            sites=self._sites.list_states(self._room.reserved),
            now=get_time(),
            taken=frozenset(memory.taken),
            busy=busy,
            drained=self._drained,
            active=self._active,
            heard_seconds=self._heard_seconds(name_pool_user(pool.metadata.uid)),
            use=replace(self.uses.get_use(pool, busy=bool(busy)), quiet_seconds=time - memory.active_at),
            clock=Clock(time, self._since),
            broker_problem=self._broker.problem,
            refused=memory.refused if memory.refused_until > time else "",
            licence=self._licences.allot_pool(pool, get_time()),
            demand=compute_demand(self._registry.list_studies_of_pool(pool)),
            worker_left=memory.worker_left or (not memory.planned and len(workers) < memory.status.replicas),
            rotate_after_seconds=self._rotate_after_seconds,
            default_drain_seconds=self._timing.default_drain_seconds,
        )

    def _plan(self, pool: WorkerPool, memory: PoolMemory, given: PoolInput) -> PoolPlan:
        """Return the plan of a pool, and count the seats that it grants."""
        plan = plan_pool(given)
        memory.asleep = was_asleep(plan.status)
        if given.use.now or plan.status.last_active_time != memory.status.last_active_time:
            memory.active_at = given.clock.now
        self._licences.count_plan(pool, plan.status)
        self._room.set_waiting(make_key(pool), waits=plan.waits_for_room)
        return plan

    async def _reconcile_workers(self, pool: WorkerPool, memory: PoolMemory, plan: PoolPlan, given: PoolInput) -> None:
        if not plan.create:
            memory.taken.clear()
        # Passes over other pools can run before this plan is complete, so its new Workers reserve their places now.
        with self._room.reserve(new.site for new in plan.create) as places:
            try:
                await self._workers.delete_workers(plan)
                self._accept_plan(pool, memory, plan)  # these deletions count, even if a later request fails
                await self._workers.patch_workers(plan)
                await self._workers.create_workers(plan, given, places, memory.taken, memory.unsure)
            except ApiError as error:
                if error.retryable:
                    raise
                self._accept_plan(pool, memory, plan)
                memory.refused, memory.refused_until = error.message, self._time() + REFUSED_SECONDS

    def _accept_plan(self, pool: WorkerPool, memory: PoolMemory, plan: PoolPlan) -> None:
        if memory.status is plan.status:
            return
        memory.backoff = plan.backoff
        if get_generation(plan.status) != get_generation(memory.status):
            memory.worker_left = False  # former workers do not know the new password
        memory.planned = True
        self._statuses.report(pool, memory.status, plan)
        memory.status = plan.status
        self._statuses.count(pool.metadata.uid, memory.status)

    def _busy(self, workers: Iterable[Worker]) -> frozenset[str]:
        """Return the uids of the workers that run a ServiceAction or tasks of a study."""
        actions, chunks = self._registry.actions, self._registry.chunks
        if not len(actions) and not chunks:
            return frozenset()
        uids = (worker.metadata.uid for worker in workers)
        return frozenset(uid for uid in uids if uid in chunks or actions.count("worker", uid))

    async def _reconcile_teardown(self, pool: WorkerPool, memory: PoolMemory) -> float | None:
        """Delete the broker user and the queues of a pool, as soon as its Workers and machines are gone.

        Returns the seconds until the next check; None after the deletion.
        """
        if memory.torn_down.is_set():
            return None
        metadata = pool.metadata
        left = self._sites.count_machines_of_pool(metadata.namespace, metadata.name)
        if unknown := [site for site, count in left.items() if count is None]:
            note = f"cannot tell whether machines are left at {', '.join(unknown)}: not connected"
            self._recorder.emit(names.WORKER_POOLS, metadata, Reason.TERMINATING, note, warning=True)
        if left or self._registry.workers.count("pool", metadata.uid):
            return self._timing.teardown_check_seconds
        await self._broker.remove_pool(metadata.uid)
        memory.torn_down.set()
        return None
