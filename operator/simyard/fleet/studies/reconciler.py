# SPDX-License-Identifier: Apache-2.0
"""Reconciles Studies. The rows in the file store are the truth; each step is recorded there before it is carried out.

A chunk is recorded as assigned, then sent. It can always be sent again, because an adapter runs no chunk twice and
repeats the result of a finished one. Messages of workers change the memory only; if one is lost, the rows are found in
the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable
from typing import NoReturn

from simyard.api import names
from simyard.api.study import Study
from simyard.api.study_record import MAX_TASKS_WITHOUT_STORE
from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool
from simyard.files.access import StoreAccess
from simyard.files.keys import StudyKeys
from simyard.files.store import ObjectStore, StoreError
from simyard.files.studies import StudyStore, delete_objects
from simyard.fleet.actions.assignment import Presence
from simyard.fleet.actions.fences import Fences
from simyard.fleet.registry import Registry, find_removed, format_target_key, get_time, list_target_keys
from simyard.fleet.studies.flights import Flights, parse_chunk_id
from simyard.fleet.studies.generations import PATIENCE_SECONDS, load_generations, misses_points
from simyard.fleet.studies.parts import Parts
from simyard.fleet.studies.prices import Prices
from simyard.fleet.studies.records import StudyRecords
from simyard.fleet.studies.room import Capacity
from simyard.fleet.studies.runs import Run, load_run
from simyard.fleet.studies.statuses import StudyStatuses, make_final_status, make_status
from simyard.fleet.studies.tables import load_table
from simyard.fleet.work_queue import KeyQueue
from simyard.guest.messages import Begun, ChunkEnded, Resulted
from simyard.messaging.events import ReceivedEvent
from simyard.messaging.requests import Requester
from simyard.plan.actions import ACTION_TIMES, ActionTimes
from simyard.plan.studies.assignment import MAX_PER_WORKER
from simyard.plan.studies.cost import count_affordable, plan_cost_end
from simyard.plan.studies.designs import Searched, build_design, lay_out
from simyard.plan.studies.layout import choose_length
from simyard.plan.studies.study import (
    CONFIRM_SECONDS,
    NO_POINTS,
    NO_STORE,
    Ending,
    find_deadline,
    is_finished,
    make_target_ending,
    plan_end,
    plan_stop,
    record_end,
)
from simyard.plan.times import add_seconds, get_seconds_until
from simyard.plan.worker import is_ready
from simyard_adapter.declarations import InvalidValueError, InvalidValuesError
from simyard_adapter.wire import ErrorReason, WireError
from simyard_sites.kubernetes.errors import ConflictError, NotFoundError

log = logging.getLogger(__name__)

PASS_SPACING_SECONDS = 0.05
STORE_RETRY_SECONDS = 3.0
LOOK_SECONDS = 1.0
"""Time between two looks at chunks that wait for a lost worker, or for the confirmation of a cancellation."""


class Studies:
    """The reconciler of all Studies."""

    def __init__(
        self,
        registry: Registry,
        requester: Requester,
        presence: Presence,
        fences: Fences,
        access: StoreAccess | None,
        times: ActionTimes = ACTION_TIMES,
    ) -> None:
        """Set up; ``presence`` tells whether an adapter consumes a worker's queue, None if that is not known."""
        self._registry = registry
        self._access = access
        self._time = asyncio.get_running_loop().time
        self._statuses = StudyStatuses(registry, self._time)
        self._queue = KeyQueue("study", self._reconcile, concurrency=8, spacing_seconds=PASS_SPACING_SECONDS)
        self._flights = Flights(registry, requester, fences, times)
        self._capacity = Capacity(registry, presence)
        self._prices = Prices(registry)
        self._runs: dict[str, Run] = {}
        self.parts = Parts(registry, self._runs, self._queue.add)
        self._keys: dict[str, StudyKeys] = {}
        self._left: dict[str, Study] = {}
        self._objects: ObjectStore | None = None

    async def run(self) -> NoReturn:
        """Reconcile until cancelled."""
        if self._access is None:
            await self._queue.run()
        else:
            async with ObjectStore(self._access) as self._objects:
                await self._queue.run()
        raise AssertionError("the queue does not end")

    # Changes of objects, and messages

    def requester_connected(self) -> None:
        """Send all chunks again that workers have: the broker may have lost them."""
        for uid, run in self._runs.items():
            for flight in run.assigned:
                run.assigned.mark_unsent(flight)
            self._queue.add(uid)

    def worker_registered(self, worker_uid: str) -> None:
        """Send the chunks of a worker with a new session again: a node of the broker may have lost its queue."""
        worker = self._registry.find_worker(worker_uid)
        for key in list_target_keys(worker) if worker is not None else ():
            for study in self._registry.studies.list_by("target", key):
                if (run := self._runs.get(study.metadata.uid)) is not None:
                    run.registered.add(worker_uid)
                    self._queue.add(study.metadata.uid)

    def study_changed(self, old: Study | None, new: Study | None) -> None:
        """Reconcile a changed Study."""
        if (left := find_removed(old, new)) is not None:
            self._left[left.metadata.uid] = left
            self._queue.add(left.metadata.uid)
        if new is not None:
            self._queue.add(new.metadata.uid)

    def worker_changed(self, old: Worker | None, new: Worker | None) -> None:
        """Reconcile the studies of a worker that became ready, or that is gone."""
        if (left := find_removed(old, new)) is not None:
            for uid, run in self._runs.items():
                if run.lose(left.metadata.uid):
                    self._queue.add(uid)
            for key in list_target_keys(left):  # the target itself may be gone
                for study in self._registry.studies.list_by("target", key):
                    self._queue.add(study.metadata.uid)
        if new is not None and (old is None or _describe(new) != _describe(old)):
            self.presence_changed(new)

    def presence_changed(self, worker: Worker) -> None:
        """Reconcile the studies of a worker whose adapter is back at the broker."""
        worker_uid = worker.metadata.uid
        for key in list_target_keys(worker):
            for study in self._registry.studies.list_by("target", key):
                if (run := self._runs.get(study.metadata.uid)) is not None:
                    run.room.add(worker_uid, run.assigned.count(worker_uid))
                self._queue.add(study.metadata.uid)

    def pool_changed(self, old: WorkerPool | None, new: WorkerPool | None) -> None:
        """Reconcile the studies of a pool that reserves other workers for Sync calls, or that is gone."""
        pool = new or old
        if pool is None or (old and new and old.spec.reserved_for_sync == new.spec.reserved_for_sync):
            return
        self._capacity.pool_changed(pool)
        metadata = pool.metadata
        service = format_target_key(names.SIMULATION_SERVICES.kind, metadata.namespace, pool.spec.service_ref.name)
        for key in (format_target_key(names.WORKER_POOLS.kind, metadata.namespace, metadata.name), service):
            for study in self._registry.studies.list_by("target", key):
                self._queue.add(study.metadata.uid)

    def owns(self, invocation: str) -> bool:
        """Return whether an invocation is a chunk of a study."""
        return parse_chunk_id(invocation) is not None

    def apply_event(self, event: ReceivedEvent) -> Awaitable[object] | None:
        """Apply the message of a worker about a chunk.

        Returns the write that must succeed before the message is acknowledged; None if the message may be lost.
        """
        message = event.message
        if not isinstance(message, Begun | Resulted | ChunkEnded):
            return None
        named = parse_chunk_id(message.invocation)
        study = None if named is None else self._registry.find_study(named.study_uid)
        if named is None or study is None or not self._registry.may_run(event.worker_uid, study):
            return None
        run = self._runs.get(named.study_uid)
        flight = None if run is None else run.assigned.find(named.chunk)
        if isinstance(message, Begun):
            if flight is not None and flight.worker_uid != event.worker_uid:
                return None
            if run is not None:
                run.begun.add((named.chunk, named.attempt))
            return self._record_begin(study, named.chunk, named.attempt)
        if run is None or flight is None or (flight.attempt, flight.worker_uid) != (named.attempt, event.worker_uid):
            return None
        if isinstance(message, Resulted):
            if isinstance(message.outcome, WireError):
                run.refused[named.chunk] = message.outcome
                self._capacity.note_error(event.worker_uid, message.outcome)
        elif message.stored and message.summary.tasks == len(run.layout.get_tasks(named.chunk)):
            run.finish(named.chunk, message.summary, flight.size, study, get_time())
        else:
            run.ended.add(named.chunk)
        self._queue.add(named.study_uid)
        return None

    async def _record_begin(self, study: Study, chunk: int, attempt: int) -> None:
        while self._registry.find_study(study.metadata.uid) is not None:
            run = self._runs.get(study.metadata.uid)
            try:
                keys = await self._get_keys(study)
                store = run.store if run is not None else await self._choose_store(study, keys)
                return await store.record_begin(keys, chunk, attempt)
            except StoreError as error:
                log.warning("the begin of a chunk of the study %s is not recorded yet: %s", study.metadata.name, error)
                await asyncio.sleep(STORE_RETRY_SECONDS)

    # Phases of a pass over one study

    async def _reconcile(self, uid: str) -> float | None:
        study = self._registry.find_study(uid)
        try:
            if study is None:
                await self._reconcile_deleted(uid)
                return None
            if is_finished(study):
                return await self._reconcile_finished(study)
            return await self._reconcile_running(study)
        except StoreError as error:
            log.warning("the study %s waits for the file store: %s", uid, error)
            if study is None or is_finished(study):
                return STORE_RETRY_SECONDS
            return await self._wait_for_store(study, str(error))

    async def _wait_for_store(self, study: Study, error: str) -> float | None:
        """Write that a study waits; its cancellation and its deadline need no store."""
        run, now = self._runs.get(study.metadata.uid), get_time()
        if run is not None:
            if (ending := plan_end(study, run.progress, run.layout.tasks, now)) is not None:
                return await self._end(study, run, ending)
        elif (ending := plan_stop(study, now)) is not None:
            await self._statuses.write(study, record_end(study, None, 0, ending, now))
            return 0.0
        await self._statuses.write_waiting(study, run, error)
        return get_seconds_until(now, [find_deadline(study), add_seconds(now, STORE_RETRY_SECONDS)])

    async def _reconcile_deleted(self, uid: str) -> None:
        """Stop the tasks of a study that was deleted, and delete its objects."""
        run, left = self._runs.get(uid), self._left.get(uid)
        if run is not None:
            await self._flights.cancel(uid, run)
        if left is not None and self._objects is not None:
            with contextlib.suppress(NotFoundError):  # without the namespace, the sweep of the file store does it
                await delete_objects(self._objects, run.keys if run is not None else await self._get_keys(left))
        self._drop_run(uid)
        self._left.pop(uid, None)
        self._keys.pop(uid, None)
        self._queue.forget(uid)

    async def _reconcile_finished(self, study: Study) -> float | None:
        self._drop_run(study.metadata.uid)
        now = get_time()
        ends = add_seconds(study.status.finished_time or now, study.spec.ttl_seconds_after_finished)
        if ends > now:
            return get_seconds_until(now, [ends])
        metadata = study.metadata
        try:
            await self._registry.client.delete(names.STUDIES, metadata.name, metadata.namespace, uid=metadata.uid)
        except (NotFoundError, ConflictError):
            self._registry.studies.forget(study)
        return None

    async def _reconcile_running(self, study: Study) -> float | None:
        uid = study.metadata.uid
        run = self._runs.get(uid)
        if run is None:
            loaded = await self._load(study)
            if isinstance(loaded, Ending):
                await self._statuses.write(study, record_end(study, None, 0, loaded, get_time()))
                return None
            run = self._runs[uid] = loaded
        await load_generations(run.store.generations, study, run)
        await self._flights.settle(study, run)
        if (ending := await self._find_end(study, run)) is not None:
            return await self._end(study, run, ending)
        if run.layout.length is None and (length := self._choose_length(study, run)) is not None:
            return await self._write_length(study, run, length)
        waits = "" if study.spec.suspend else await self._assign(study, run)
        await self._flights.send(study, run)
        due = await self._statuses.write_progress(study, run, waits)
        looks = [due, LOOK_SECONDS if run.lost else self._flights.find_resend(run)]
        looks.append(self._capacity.find_pause_end() if run.count_open() else None)
        looks.append(get_seconds_until(get_time(), [find_deadline(study)]))
        looks.append(None if run.idle_since is None else PATIENCE_SECONDS)
        return min((seconds for seconds in looks if seconds is not None), default=None)

    async def _load(self, study: Study) -> Run | Ending:
        """Return the memory about a study, or why it cannot run."""
        if (service := self._registry.find_target_service(study)) is None:
            await self._registry.fetch_target(study)
            if (service := self._registry.find_target_service(study)) is None:
                return make_target_ending(study)
        action = service.interface.find_action(study.spec.action)
        if action is None:
            known = ", ".join(item.name for item in service.interface.actions) or "none"
            message = f"spec.action: {study.spec.action} is not declared by the service; it declares: {known}"
            return Ending(ErrorReason.UNKNOWN_ACTION.value, message)
        try:
            table = await load_table(self._objects, study, action, self._get_keys)
            design = await asyncio.to_thread(build_design, study.spec, action, table)
        except (InvalidValueError, InvalidValuesError) as error:
            return Ending(names.Reason.DESIGN_INVALID, str(error))
        large = design.count > MAX_TASKS_WITHOUT_STORE or isinstance(design, Searched)
        if self._objects is None and large:
            message = NO_STORE.format(f"{design.count:,}", f"{MAX_TASKS_WITHOUT_STORE:,}")
            return Ending(names.Reason.FILE_STORE_MISSING, message)
        keys = await self._get_keys(study)
        store = await self._choose_store(study, keys)
        return await load_run(store, keys, study, action, design, self._registry.chunks, self._prices, get_time())

    async def _choose_store(self, study: Study, keys: StudyKeys) -> StudyStore:
        """Return the place of the objects of a study: StudyRecords if there is no file store, or was none before."""
        records = StudyRecords(self._registry.client, keys, study.metadata)
        if self._objects is None:
            return StudyStore(None, records)
        small = study.status.tasks is not None and study.status.tasks <= MAX_TASKS_WITHOUT_STORE
        if small and await records.has_any():
            return StudyStore(None, records)
        return StudyStore(self._access, self._objects)

    def _drop_run(self, uid: str) -> None:
        if (run := self._runs.pop(uid, None)) is not None:
            run.assigned.clear()

    async def _get_keys(self, study: Study) -> StudyKeys:
        uid = study.metadata.uid
        if uid not in self._keys:
            raw = await self._registry.client.get(names.NAMESPACES, study.metadata.namespace, "")
            self._keys[uid] = StudyKeys(str(raw["metadata"]["uid"]), uid)
        return self._keys[uid]

    async def _find_end(self, study: Study, run: Run) -> Ending | None:
        ending = plan_end(study, run.progress, run.layout.tasks, get_time())
        if ending is None:
            ending = plan_cost_end(study, run.progress, run.layout, len(run.assigned))
        if ending is None and self._registry.find_target_service(study) is None:
            await self._registry.fetch_target(study)
            if self._registry.find_target_service(study) is None:
                return make_target_ending(study)
        for error in run.refused.values():
            if error.reason in (ErrorReason.UNKNOWN_ACTION, ErrorReason.INVALID_REQUEST):
                return Ending(error.reason.value, error.message)
        return ending

    async def _end(self, study: Study, run: Run, ending: Ending) -> float | None:
        """End a study; before an early end, the workers stop their tasks, and their finished rows are kept."""
        if ending.early and run.assigned:
            if run.cancelled_at is None:
                await self._flights.cancel(study.metadata.uid, run)
                run.cancelled_at = self._time()
            if self._time() - run.cancelled_at < CONFIRM_SECONDS:
                return LOOK_SECONDS
        await self._statuses.write(study, make_final_status(study, run, ending))
        return 0.0

    def _choose_length(self, study: Study, run: Run) -> int | None:
        """Return the length of chunks; None if it cannot be decided yet."""
        if not isinstance(run.design, Searched) and not run.progress.tasks:
            return None  # the first tasks decide
        asked = study.spec.workers.max if study.spec.workers is not None else 0
        workers = max(asked, self._capacity.count_workers(study))
        if isinstance(run.design, Searched):
            chosen = run.design.generations.choose_length(workers) if workers else None
        else:
            chosen = choose_length(run.layout, run.progress.mean_seconds, workers)
        return study.status.chunk_tasks or chosen  # another operator may have decided

    async def _write_length(self, study: Study, run: Run, length: int) -> float | None:
        """Write the length of chunks before a chunk of this length is assigned."""
        await self._statuses.write(study, make_status(study, run, length, ""))
        run.layout = lay_out(run.design, study.spec.chunk_tasks, length)
        run.room.forget()
        run.written_at, run.written_tasks = self._time(), run.progress.tasks
        return 0.0

    async def _assign(self, study: Study, run: Run) -> str:
        """Assign chunks to workers that can take some; return why none has any, or an empty text."""
        affordable = count_affordable(study, run.progress, run.layout, len(run.assigned))
        if (chunks := min(run.count_open(), affordable)) > 0:
            per_worker = 1 if run.layout.length is None else MAX_PER_WORKER
            workers = self._capacity.choose(study, run.assigned, run.room, chunks, per_worker)
            await self._flights.assign(run, workers)
        if misses_points(run, self._time()):
            return NO_POINTS
        waits = run.count_open() and not run.assigned
        return "no worker is ready that its pool does not reserve for Sync calls" if waits else ""


def _describe(worker: Worker) -> object:
    """Return the part of a worker that decides whether it takes tasks."""
    return is_ready(worker), worker.spec.drain
