# SPDX-License-Identifier: Apache-2.0
"""Chunks on their way: they are assigned, sent, cancelled, and given to another worker when theirs is lost."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import gzip
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass

from simyard.api.study import Study
from simyard.fleet.actions.fences import Fences
from simyard.fleet.registry import Registry, get_queue, get_time
from simyard.fleet.studies.assigned import Flight
from simyard.fleet.studies.runs import Run
from simyard.guest.chunks import ChunkSummary, FailureCount
from simyard.messaging.errors import NoConsumerError
from simyard.messaging.requests import Requester
from simyard.plan.actions import ActionTimes
from simyard_adapter.chunks import MAX_NAMED_FAILURES, Row, list_columns, make_cells
from simyard_adapter.declarations import Json
from simyard_adapter.wire import ErrorReason, Request, WireError

MAX_LOSSES = 5
"""Number of workers that may be lost with a chunk; its tasks may be the cause."""
RESEND_SECONDS = 60.0
"""Time after which a chunk is sent again: the request or the result may be lost."""
MAX_PARALLEL = 16
_ID = re.compile(r"([0-9a-f-]{36})\.([0-9]{1,5})\.([0-9]{1,6})")
_NOT_BEGUN = (ErrorReason.DRAINING, ErrorReason.BUSY, ErrorReason.CANCELLED)


@dataclass(frozen=True, slots=True)
class ChunkId:
    """The parts of the id of an assigned chunk."""

    study_uid: str
    chunk: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.study_uid}.{self.chunk}.{self.attempt}"


def parse_chunk_id(invocation: str) -> ChunkId | None:
    """Return the parts of the id of a chunk; None if an id is not that of a chunk."""
    found = _ID.fullmatch(invocation)
    return None if found is None else ChunkId(found[1], int(found[2]), int(found[3]))


class Flights:
    """The chunks of all studies that workers have."""

    def __init__(self, registry: Registry, requester: Requester, fences: Fences, times: ActionTimes) -> None:
        self._registry = registry
        self._requester = requester
        self._fences = fences
        self._times = times
        self._time = asyncio.get_running_loop().time
        self._slots = asyncio.Semaphore(MAX_PARALLEL)

    async def assign(self, run: Run, workers: Sequence[str]) -> None:
        """Assign a chunk to each of the workers. An assignment is recorded in the store before the chunk is sent.

        Raises:
            StoreError: the store does not answer; the chunks remain unassigned.
        """

        async def record(chunk: int, worker_uid: str) -> None:
            attempt = run.attempts.get(chunk, 0) + 1
            try:
                async with self._slots:
                    known = await run.store.record_assignment(run.keys, chunk, attempt, worker_uid)
            except BaseException:
                run.returned.append(chunk)
                raise
            run.attempts[chunk] = attempt
            run.assigned.add(Flight(chunk, attempt, known))
            run.room.add(known, run.assigned.count(known))
            if self._registry.find_worker(known) is None:
                run.lost.add(chunk)

        taken = [(run.take_open(), worker_uid) for worker_uid in workers]
        outcomes = await asyncio.gather(*(record(*item) for item in taken), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def send(self, study: Study, run: Run) -> None:
        """Send the chunks that are due.

        Raises:
            MessagingError: the broker may not have accepted a chunk; it is sent again.
        """
        now = self._time()
        for worker_uid in run.registered:
            for flight in run.assigned.list_of(worker_uid):
                run.assigned.mark_unsent(flight)
        run.registered.clear()
        for flight in [*run.assigned.list_sent_before(now - RESEND_SECONDS), *run.assigned.list_unsent()]:
            worker = self._registry.find_worker(flight.worker_uid)
            if worker is None:
                run.lost.add(flight.chunk)
                continue
            body: dict[str, Json] = {
                "action": study.spec.action,
                "parameters": study.spec.parameters,
                "names": list(run.design.names),
                "points": [list(point) for point in run.make_points(flight.chunk)],
                "first": run.layout.get_tasks(flight.chunk).start,
                "retries": study.spec.retries_per_task,
                "watched": sorted({rule.result for rule in study.spec.stop_when}),
            }
            if study.spec.task_timeout_seconds is not None:
                body["timeoutSeconds"] = study.spec.task_timeout_seconds
            with contextlib.suppress(NoConsumerError):  # the queue is declared again, and the worker registers
                await self._requester.publish_persistent(
                    get_queue(worker), Request.TASKS, body, _make_id(study, flight)
                )
            run.assigned.mark_sent(flight, now)

    async def cancel(self, study_uid: str, run: Run) -> None:
        """Ask the workers to stop the tasks of a study: first those that wait, so that none of them begins.

        Raises:
            MessagingError: the broker may not have accepted a request.
        """
        for flight in sorted(run.assigned, key=lambda it: -it.chunk):
            if (worker := self._registry.find_worker(flight.worker_uid)) is not None:
                invocation = str(ChunkId(study_uid, flight.chunk, flight.attempt))
                with contextlib.suppress(NoConsumerError):
                    await self._requester.publish_persistent(
                        get_queue(worker), Request.CANCEL, {"invocation": invocation}, f"{invocation}-cancel"
                    )

    def find_resend(self, run: Run) -> float | None:
        """Return the seconds until a chunk is sent again; None without chunks."""
        sent = run.assigned.get_first_sent()
        return None if sent is None else max(0.0, sent + RESEND_SECONDS - self._time())

    async def settle(self, study: Study, run: Run) -> None:
        """Decide about chunks that ended without a message that can be counted, and about those of lost workers.

        Raises:
            StoreError: the store does not answer.
            MessagingError: the broker does not answer.
        """
        for chunk in list(run.ended):
            flight = run.assigned.find(chunk)
            if flight is None or not await self._count_part(study, run, flight):
                run.ended.discard(chunk)  # the object is gone again: the worker answers once more
        for chunk, refusal in list(run.refused.items()):
            if (flight := run.assigned.find(chunk)) is not None:
                await self._settle_refused(study, run, flight, refusal)
        for chunk in list(run.lost):
            flight = run.assigned.find(chunk)
            if flight is None or self._registry.find_worker(flight.worker_uid) is not None:
                run.lost.discard(chunk)
            else:
                await self._settle_lost(study, run, flight)
        for flight in run.assigned.list_sent_before(self._time() - RESEND_SECONDS):
            await self._count_part(study, run, flight)  # the message about its end may be lost

    async def _settle_refused(self, study: Study, run: Run, flight: Flight, refusal: WireError) -> None:
        if refusal.reason in _NOT_BEGUN:
            run.release(flight)
        elif refusal.reason not in (ErrorReason.UNKNOWN_ACTION, ErrorReason.INVALID_REQUEST):
            await self._give_up(study, run, flight, refusal)

    async def _settle_lost(self, study: Study, run: Run, flight: Flight) -> None:
        """Have another worker run the chunk of a lost worker if that does no harm; else its tasks are interrupted."""
        now = get_time()
        since = self._registry.get_gone_since(flight.worker_uid) or run.since
        if (now - since).total_seconds() < self._times.lost_grace_seconds:
            return
        if await self._count_part(study, run, flight):
            return
        invocation, may_run = _make_id(study, flight), study.spec.target.kind != "Worker"
        lost = WireError(ErrorReason.INTERRUPTED, "the worker of the task is gone; it is not known whether it was done")
        if run.losses[flight.chunk] + 1 >= MAX_LOSSES or not may_run:
            return await self._give_up(study, run, flight, lost)
        if not run.action.idempotent:
            if (flight.chunk, flight.attempt) in run.begun:
                return await self._give_up(study, run, flight, lost)
            await self._fences.raise_for(invocation, flight.worker_uid)
            if not self._fences.is_closed(invocation):
                return None
            if (flight.chunk, flight.attempt) in run.begun:
                return await self._give_up(study, run, flight, lost)
            self._fences.forget(invocation)
        run.losses[flight.chunk] += 1
        run.release(flight)
        return None

    async def _count_part(self, study: Study, run: Run, flight: Flight) -> bool:
        part = await run.store.find_part(run.keys, flight.chunk)
        if part is None:
            return False
        run.finish(flight.chunk, part.summary, part.size, study, get_time())
        return True

    async def _give_up(self, study: Study, run: Run, flight: Flight, error: WireError) -> None:
        """Store rows with an error for all tasks of a chunk, unless the worker has stored its own."""
        content, summary = _make_failed_part(run, flight.chunk, error)
        if await run.store.create_part(run.keys, flight.chunk, content, summary):
            run.finish(flight.chunk, summary, len(content), study, get_time())
        else:
            await self._count_part(study, run, flight)
        self._fences.forget(_make_id(study, flight))


def _make_failed_part(run: Run, chunk: int, error: WireError) -> tuple[bytes, ChunkSummary]:
    """Return rows for all tasks of a chunk that say that it is not known whether they were done."""
    tasks, results = run.layout.get_tasks(chunk), [item.name for item in run.action.result]
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(list_columns(run.design.names, results))
    for index, point in zip(tasks, run.make_points(chunk), strict=True):
        table.writerow(make_cells(Row(index, error=error), point, results, ""))
    failure = FailureCount(len(tasks), tasks.start, error.message)
    summary = ChunkSummary(len(tasks), 0.0, {error.reason: failure}, tuple(tasks[:MAX_NAMED_FAILURES]))
    return gzip.compress(text.getvalue().encode(), mtime=0), summary


def _make_id(study: Study, flight: Flight) -> str:
    return str(ChunkId(study.metadata.uid, flight.chunk, flight.attempt))
