# SPDX-License-Identifier: Apache-2.0
"""Memory about a study that runs. It can be rebuilt from the file store and the status of the study."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from simyard.api.study import Study
from simyard.files.keys import StudyKeys
from simyard.files.studies import StudyStore
from simyard.guest.chunks import ChunkSummary
from simyard.plan.studies.designs import Design, Searched, lay_out
from simyard.plan.studies.layout import Layout
from simyard.plan.studies.progress import Progress
from simyard_adapter.declarations import Action, Json
from simyard_adapter.wire import WireError


@dataclass(slots=True)
class Flight:
    """A chunk that was assigned to a worker and has not ended.

    Attributes:
        chunk: number of the chunk.
        attempt: number of the assignment, from 1.
        worker_uid: uid of the worker.
        sent: loop time at which it was last sent; None if it must be sent.
        size: bytes of its rows, as the worker said when it asked to upload them.
    """

    chunk: int
    attempt: int
    worker_uid: str
    sent: float | None = None
    size: int = 0


@dataclass(slots=True)
class Run:
    """A study that runs.

    Attributes:
        keys: keys of its objects in the store.
        action: declaration of its action.
        design: its points.
        layout: its chunks.
        progress: sums over the finished chunks.
        since: time since which this process knows the study.
        flights: chunks that workers have.
        attempts: number of assignments by chunk.
        begun: assignments (chunk, attempt) whose worker has begun tasks that must not run twice.
        losses: number of workers that were lost with a chunk, by chunk.
        ended: chunks whose rows are in the store and not counted yet, because another worker may have stored them.
        blocked: reason why the rows of a chunk cannot be stored now; empty if they can.
        registered: workers with a new session; their chunks must be sent again.
        refused: errors of workers that have no rows of a chunk, by chunk.
        returned: chunks that must be assigned again.
        next_chunk: first chunk that was never assigned, as far as this process knows.
        cancelled_at: loop time since which workers were asked to stop; None if they were not.
        idle_since: loop time since which an optimisation has no points to run; None if it has some.
        written_at: loop time of the last write of the status.
        written_tasks: number of finished tasks in the last status.
    """

    keys: StudyKeys
    action: Action
    design: Design
    layout: Layout
    progress: Progress
    since: datetime
    flights: dict[int, Flight] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    begun: set[tuple[int, int]] = field(default_factory=set)
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

    @property
    def known_chunks(self) -> int:
        """Number of first chunks whose points are known."""
        if isinstance(self.design, Searched):
            return self.layout.list_chunks(self.design.chosen).start
        return self.layout.chunks

    def count_open(self, most: int) -> int:
        """Return the number of chunks that can be assigned now; at most ``most``."""
        self._skip_finished()
        fresh = (
            chunk
            for chunk in range(self.next_chunk, self.known_chunks)
            if chunk not in self.flights and chunk not in self.progress.finished
        )
        return len(self.returned) + sum(1 for _ in itertools.islice(fresh, most))

    def _skip_finished(self) -> None:
        while self.next_chunk < self.known_chunks and (
            self.next_chunk in self.progress.finished or self.next_chunk in self.flights
        ):
            self.next_chunk += 1

    def take_open(self) -> int:
        """Return a chunk that can be assigned, and take it off the list; there must be one."""
        if self.returned:
            return self.returned.pop()
        self._skip_finished()
        self.next_chunk += 1
        return self.next_chunk - 1

    def finish(self, chunk: int, summary: ChunkSummary, size: int, study: Study, now: datetime) -> None:
        """Count the rows of a chunk."""
        self.flights.pop(chunk, None)
        self.refused.pop(chunk, None)
        self.ended.discard(chunk)
        self.attempts.pop(chunk, None)
        self.progress.add(chunk, summary, size, study.spec.stop_when, now)

    def release(self, flight: Flight) -> None:
        """Have a chunk assigned again."""
        self.flights.pop(flight.chunk, None)
        self.refused.pop(flight.chunk, None)
        self.returned.append(flight.chunk)

    def count_workers(self) -> Counter[str]:
        """Return the number of chunks by the uid of their worker."""
        return Counter(flight.worker_uid for flight in self.flights.values())

    def make_points(self, chunk: int) -> list[Sequence[Json]]:
        """Return the points of the tasks of a chunk."""
        return [self.design.compute_point(index) for index in self.layout.get_tasks(chunk)]


async def load_run(
    store: StudyStore, keys: StudyKeys, study: Study, action: Action, design: Design, now: datetime
) -> Run:
    """Return the memory about a study as the store and the status show it.

    Raises:
        StoreError: the store does not answer.
    """
    stored = await store.read_study(keys)
    progress = Progress.read(study.status)
    if any(chunk not in stored.parts for chunk in progress.finished):
        progress = Progress()  # the rows are the truth, and some of those in the status are gone
    layout = lay_out(design, study.spec.chunk_tasks, study.status.chunk_tasks)
    run = Run(keys, action, design, layout, progress, now, begun=stored.begun)
    for chunk in [chunk for chunk in stored.parts if chunk not in progress.finished]:
        part = await store.find_part(keys, chunk)
        if part is not None:
            run.finish(chunk, part.summary, part.size, study, now)
    open_chunks = [chunk for chunk in stored.attempts if chunk not in progress.finished]
    for some in _batch(open_chunks):
        workers = await asyncio.gather(*(store.read_assignment(keys, it, stored.attempts[it]) for it in some))
        for chunk, worker_uid in zip(some, workers, strict=True):
            run.attempts[chunk] = stored.attempts[chunk]
            run.flights[chunk] = Flight(chunk, stored.attempts[chunk], worker_uid)
    progress.start_clock(now)
    return run


def _batch(chunks: Sequence[int], size: int = 64) -> Iterator[Sequence[int]]:
    return (chunks[start : start + size] for start in range(0, len(chunks), size))
