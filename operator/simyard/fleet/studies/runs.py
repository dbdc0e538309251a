# SPDX-License-Identifier: Apache-2.0
"""Memory about a study that runs. It can be rebuilt from the file store and the status of the study."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from simyard.api.study import Study
from simyard.files.keys import StudyKeys
from simyard.files.studies import StudyStore
from simyard.fleet.studies.assigned import Assigned, Flight
from simyard.fleet.studies.prices import Prices
from simyard.fleet.studies.room import Room
from simyard.guest.chunks import ChunkSummary
from simyard.plan.studies.designs import Design, Searched, lay_out
from simyard.plan.studies.layout import Layout
from simyard.plan.studies.progress import Progress
from simyard_adapter.declarations import Action, Json
from simyard_adapter.wire import WireError


@dataclass(slots=True)
class Run:
    """A study that runs.

    Attributes:
        store: the place of its objects.
        keys: keys of its objects in the store.
        action: declaration of its action.
        design: its points.
        layout: its chunks.
        progress: sums over the finished chunks.
        since: time since which this process knows the study.
        assigned: chunks that workers have.
        prices: prices of workers.
        hour_millis: price of the last worker whose price was known.
        room: workers that may have room for another chunk.
        attempts: number of assignments by chunk.
        begun: assignments (chunk, attempt) whose worker has begun tasks that must not run twice.
        lost: chunks whose workers are gone.
        losses: number of workers that were lost with a chunk, by chunk.
        ended: chunks whose rows are in the store and not counted yet, because another worker may have stored them.
        blocked: reason why the rows of a chunk cannot be stored now; empty if they can.
        registered: workers with a new session; their chunks must be sent again.
        refused: errors of workers that have no rows of a chunk, by chunk.
        returned: chunks before ``next_chunk`` that must be assigned again.
        next_chunk: first chunk that this process has not assigned; later ones are open if no worker has them.
        cancelled_at: loop time since which workers were asked to stop; None if they were not.
        idle_since: loop time since which an optimisation has no points to run; None if it has some.
        written_at: loop time of the last write of the status.
        written_tasks: number of finished tasks in the last status.
        write_slot: loop time at which the budget permits the next write of the status; None if no write is booked.
    """

    store: StudyStore
    keys: StudyKeys
    action: Action
    design: Design
    layout: Layout
    progress: Progress
    since: datetime
    assigned: Assigned
    prices: Prices
    hour_millis: int
    room: Room = field(default_factory=Room)
    attempts: dict[int, int] = field(default_factory=dict)
    begun: set[tuple[int, int]] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)
    losses: Counter[int] = field(default_factory=Counter)
    ended: set[int] = field(default_factory=set)
    blocked: str = ""
    registered: set[str] = field(default_factory=set)
    refused: dict[int, WireError] = field(default_factory=dict)
    returned: list[int] = field(default_factory=list)
    next_chunk: int = 0
    cancelled_at: float | None = None
    idle_since: float | None = None
    written_at: float = float("-inf")
    written_tasks: int = 0
    write_slot: float | None = None

    @property
    def known_chunks(self) -> int:
        """Number of first chunks whose points are known."""
        if isinstance(self.design, Searched):
            return self.layout.list_chunks(self.design.chosen).start
        return self.layout.chunks

    def count_open(self) -> int:
        """Return the number of chunks that can be assigned now."""
        return self.known_chunks - len(self.progress.finished) - len(self.assigned)

    def take_open(self) -> int:
        """Return a chunk that can be assigned, and take it off the list; there must be one."""
        if self.returned:
            return self.returned.pop()
        while self.next_chunk in self.progress.finished or self.next_chunk in self.assigned:
            self.next_chunk += 1
        self.next_chunk += 1
        return self.next_chunk - 1

    def finish(self, chunk: int, summary: ChunkSummary, size: int, study: Study, now: datetime) -> None:
        """Count the rows of a chunk."""
        flight = self.assigned.find(chunk)
        price = None if flight is None else self.prices.find(flight.worker_uid)
        self.hour_millis = self.hour_millis if price is None else price
        self._take_back(chunk)
        self.ended.discard(chunk)
        self.attempts.pop(chunk, None)
        if self.progress.add(chunk, summary, size, study.spec.stop_when, now):
            self.progress.cost_millis += summary.seconds * self.hour_millis / 3600

    def release(self, flight: Flight) -> None:
        """Have a chunk assigned again."""
        self._take_back(flight.chunk)
        if flight.chunk < self.next_chunk:
            self.returned.append(flight.chunk)

    def lose(self, worker_uid: str) -> bool:
        """Note that a worker is gone; return whether it has chunks of the study."""
        flights = self.assigned.list_of(worker_uid)
        self.lost.update(flight.chunk for flight in flights)
        return bool(flights)

    def _take_back(self, chunk: int) -> None:
        flight = self.assigned.remove(chunk)
        if flight is not None:
            self.room.add(flight.worker_uid, self.assigned.count(flight.worker_uid), former=True)
        self.refused.pop(chunk, None)
        self.lost.discard(chunk)

    def make_points(self, chunk: int) -> list[Sequence[Json]]:
        """Return the points of the tasks of a chunk."""
        return [self.design.compute_point(index) for index in self.layout.get_tasks(chunk)]


async def load_run(
    store: StudyStore,
    keys: StudyKeys,
    study: Study,
    action: Action,
    design: Design,
    loads: Counter[str],
    prices: Prices,
    now: datetime,
) -> Run:
    """Return the memory about a study as the store and the status show it; ``loads`` as in ``Assigned``.

    Raises:
        StoreError: the store does not answer.
    """
    stored = await store.read_study(keys)
    progress = Progress.read(study.status)
    if any(chunk not in stored.parts for chunk in progress.finished):
        progress = Progress()  # the rows are the truth, and some of those in the status are gone
    layout = lay_out(design, study.spec.chunk_tasks, study.status.chunk_tasks)
    run = Run(store, keys, action, design, layout, progress, now, Assigned(loads), prices, prices.find_highest(study))
    run.begun = stored.begun
    for chunk in [chunk for chunk in stored.parts if chunk not in progress.finished]:
        part = await store.find_part(keys, chunk)
        if part is not None:
            run.finish(chunk, part.summary, part.size, study, now)
    open_chunks = [chunk for chunk in stored.attempts if chunk not in progress.finished]
    for some in _batch(open_chunks):
        workers = await asyncio.gather(*(store.read_assignment(keys, it, stored.attempts[it]) for it in some))
        for chunk, worker_uid in zip(some, workers, strict=True):
            run.attempts[chunk] = stored.attempts[chunk]
            run.assigned.add(Flight(chunk, stored.attempts[chunk], worker_uid))
    progress.start_clock(now)
    return run


def _batch(chunks: Sequence[int], size: int = 64) -> Iterator[Sequence[int]]:
    return (chunks[start : start + size] for start in range(0, len(chunks), size))
