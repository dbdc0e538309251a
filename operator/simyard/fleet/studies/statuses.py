# SPDX-License-Identifier: Apache-2.0
"""Writes the statuses of studies: at most every 2 s for each percent of the tasks, within the budget of all studies."""

from __future__ import annotations

from collections.abc import Callable

from simyard.api.study import Study, StudyStatus
from simyard.fleet.registry import Registry, get_time
from simyard.fleet.status_writes import write_status
from simyard.fleet.studies.runs import Run
from simyard.fleet.work_queue import RateLimit
from simyard.plan.studies.designs import Searched
from simyard.plan.studies.layout import ChunkSet
from simyard.plan.studies.study import Ending, record_end, record_progress, record_waiting
from simyard_sites.kubernetes.errors import ConflictError

SPACING_SECONDS = 2.0
MAX_SECONDS = 60.0
"""Time after which progress of less than one percent is written."""
WRITES_PER_SECOND = 20.0
"""Rate of the writes of all studies."""


def make_status(study: Study, run: Run, length: int | None, waits: str) -> StudyStatus:
    """Return the present status; ``length`` is the length of chunks, ``waits`` the reason why nothing runs."""
    running = run.assigned.workers
    status = record_progress(
        study, run.progress, run.layout.tasks, length, running, get_time(), waits=waits, blocked=run.blocked
    )
    return _with_files(status, run)


def make_final_status(study: Study, run: Run, ending: Ending) -> StudyStatus:
    """Return the status of a study that has ended, whether or not its progress was written before."""
    return _with_files(record_end(study, run.progress, run.layout.tasks, ending, get_time()), run)


def _with_files(status: StudyStatus, run: Run) -> StudyStatus:
    return status.model_copy(update={"rows_name_files": any(item.holds_files for item in run.action.result)})


class StudyStatuses:
    """The budget of status writes of all studies."""

    def __init__(self, registry: Registry, clock: Callable[[], float]) -> None:
        self._registry = registry
        self._time = clock
        self._budget = RateLimit(WRITES_PER_SECOND, self._time)

    async def write_progress(self, study: Study, run: Run, waits: str) -> float | None:
        """Write the status if it is due; return the seconds until it is due.

        Raises:
            ConflictError: the study was changed; the pass runs again.
        """
        time, tasks = self._time(), run.progress.tasks
        awaited = _completes_generation(study, run)
        if time < run.written_at + SPACING_SECONDS and not awaited:
            return run.written_at + SPACING_SECONDS - time
        status = make_status(study, run, run.layout.length, waits)
        if status == study.status:
            return None
        percent = max(1, run.layout.tasks // 100)
        soon = _describe(status) != _describe(study.status) or tasks // percent != run.written_tasks // percent
        due = run.written_at + (SPACING_SECONDS if soon else MAX_SECONDS)
        if due > time and not awaited:
            return due - time
        if run.write_slot is None:
            run.write_slot = time + self._budget.reserve()
        if run.write_slot > time:
            return run.write_slot - time
        run.write_slot = None
        await self.write(study, status)
        run.written_at, run.written_tasks = time, tasks
        return None

    async def write_waiting(self, study: Study, run: Run | None, error: str) -> None:
        """Write that a study waits for the file store, if the budget permits a write now.

        Raises:
            ConflictError: the study was changed; the pass runs again.
        """
        status = record_waiting(study, error, get_time())
        if status == study.status or self._budget.reserve() > 0:
            return
        await self.write(study, status)
        if run is not None:
            run.written_at = self._time()

    async def write(self, study: Study, status: StudyStatus) -> None:
        """Write a status, unless another client has changed the study.

        Raises:
            ConflictError: the study was changed; the pass runs again.
        """
        registry = self._registry
        if not await write_status(
            registry.client, registry.studies, study.metadata, study.status, status, guarded=True
        ):
            await registry.fetch_study(study)
            raise ConflictError(409, "Conflict", "the study was changed meanwhile")


def _completes_generation(study: Study, run: Run) -> bool:
    """Return whether the process that chooses the next points waits for the status."""
    if not isinstance(run.design, Searched) or run.design.chosen == 0:
        return False
    shown, newest = ChunkSet.decode(study.status.finished_chunks), run.design.chosen - 1
    ready = run.design.generations.is_ready
    return ready(newest, run.layout, run.progress.finished) and not ready(newest, run.layout, shown)


def _describe(status: StudyStatus) -> object:
    """Return the part of a status whose change is written soon."""
    return status.observed_generation, [(item.type, item.status, item.reason) for item in status.conditions]
