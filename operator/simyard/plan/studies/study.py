# SPDX-License-Identifier: Apache-2.0
"""The end of a study, and its status."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from simyard.api.base import Condition, find_condition, set_condition
from simyard.api.names import ConditionType, Reason
from simyard.api.optimisation import OptimisationStatus
from simyard.api.study import Study, StudyStatus
from simyard.plan.studies.progress import Progress
from simyard.plan.times import add_seconds
from simyard_adapter.wire import ErrorReason

_MESSAGE_CHARACTERS = 2_000
CONFIRM_SECONDS = 30.0
"""Time in which workers confirm that they have stopped the tasks of a study that ends early."""
NO_POINTS = (
    "the process `simyard optimiser` has not chosen the next points: the platform team sets optimiser.enabled of the"
    " chart, or looks at the logs of this process"
)
STORE_AWAY = (
    "{}. The study goes on when the file store answers again; if this lasts, ask the platform team to look at the store"
)
NO_STORE = (
    "a study of {} tasks keeps its results in the file store, and this installation has none: the platform team sets"
    " files.mode of the chart. At most {} tasks are possible without it"
)


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a study.

    Attributes:
        reason: reason of the condition.
        message: explanation.
        complete: True if the study is Complete, False if it is Failed.
        early: True if chunks that workers have must be cancelled first.
    """

    reason: str
    message: str = ""
    complete: bool = False
    early: bool = True


def is_finished(study: Study) -> bool:
    """Return whether a study is Complete or Failed."""
    found = (find_condition(study.status.conditions, kind) for kind in (ConditionType.COMPLETE, ConditionType.FAILED))
    return any(condition is not None and condition.status == "True" for condition in found)


def find_deadline(study: Study) -> datetime | None:
    """Return the time at which the study fails if it is not complete."""
    seconds, started = study.spec.active_deadline_seconds, study.status.started_time
    return None if seconds is None or started is None else add_seconds(started, seconds)


def make_target_ending(study: Study) -> Ending:
    """Return the end of a study whose target does not exist."""
    message = f"{study.spec.target.kind} {study.spec.target.name} or its service does not exist"
    return Ending(Reason.TARGET_NOT_FOUND, message)


def plan_stop(study: Study, now: datetime) -> Ending | None:
    """Return the end of a study that was cancelled, or whose deadline has passed; None if neither is true."""
    if study.spec.cancel:
        return Ending(ErrorReason.CANCELLED.value, "the study was cancelled")
    if (deadline := find_deadline(study)) is not None and deadline <= now:
        message = f"not complete after spec.activeDeadlineSeconds: {study.spec.active_deadline_seconds}"
        return Ending(Reason.DEADLINE_EXCEEDED, message)
    return None


def plan_end(study: Study, progress: Progress, tasks: int, now: datetime) -> Ending | None:
    """Return the end of a study; None if it goes on."""
    search = study.status.optimisation
    searching = study.spec.design.optimise is not None and (search is None or search.ended is None)
    if progress.tasks >= tasks and not progress.cancelled and not searching:
        failed, most = progress.counted_failures, _count_permitted(study, tasks)
        if failed > most:
            return Ending(Reason.TOO_MANY_FAILED_TASKS, _describe_failures(failed, most), early=False)
        return Ending(Reason.SUCCEEDED, complete=True, early=False)
    if (stop := plan_stop(study, now)) is not None:
        return stop
    if (failed := progress.counted_failures) > (most := _count_permitted(study, tasks)):
        return Ending(Reason.TOO_MANY_FAILED_TASKS, _describe_failures(failed, most))
    if progress.stopped_by is not None:
        return Ending(Reason.STOP_RULE_MET, f"task {progress.stopped_by} fulfils spec.stopWhen", complete=True)
    if search is not None and search.ended is not None and search.ended != "BudgetSpent":
        return Ending(Reason.STOP_RULE_MET, _describe_search_end(study, search), complete=True)
    if progress.tasks >= tasks and not searching:
        return Ending(ErrorReason.CANCELLED.value, f"{progress.cancelled} tasks were cancelled")
    return None


def _describe_search_end(study: Study, search: OptimisationStatus) -> str:
    path = "spec.design.optimise"
    if search.ended == "GoodEnough" and search.best is not None:
        return f"task {search.best.index} fulfils {path}.goodEnough: {search.best.value}"
    return f"no gain in the generations of {path}.maxGenerationsWithoutGain"


def record_progress(
    study: Study,
    progress: Progress,
    tasks: int,
    length: int | None,
    running: int,
    now: datetime,
    *,
    waits: str = "",
    blocked: str = "",
) -> StudyStatus:
    """Return the status of a study that goes on.

    ``waits`` is the reason why nothing runs, or empty. ``blocked`` is the reason why no rows are stored, or empty.
    """
    fields = {**progress.to_fields(tasks, running, now), "chunk_tasks": length}
    if study.status.started_time is None:
        fields["started_time"] = now
    if study.spec.suspend:
        fields |= {"tasks_per_second": "", "estimated_completion_time": None}
        reason, message = Reason.SUSPENDED, "spec.suspend is true"
    elif waits and not running:
        reason, message = Reason.WAITING_FOR_OPTIMISER if waits == NO_POINTS else Reason.WAITING_FOR_WORKER, waits
    else:
        reason, message = Reason.RUNNING, blocked
    return _make_status(study, fields, ConditionType.COMPLETE, False, reason, message, now)


def record_waiting(study: Study, error: str, now: datetime) -> StudyStatus:
    """Return the status of a study that waits for the file store; ``error`` is what failed."""
    fields: dict[str, Any] = {"tasks_per_second": "", "estimated_completion_time": None}
    fields["started_time"] = study.status.started_time or now  # the deadline counts from it
    message = STORE_AWAY.format(error[:_MESSAGE_CHARACTERS])
    return _make_status(study, fields, ConditionType.COMPLETE, False, Reason.WAITING_FOR_FILE_STORE, message, now)


def record_end(study: Study, progress: Progress | None, tasks: int, ending: Ending, now: datetime) -> StudyStatus:
    """Return the status of a study that has ended; ``progress`` is None if it is not loaded."""
    fields: dict[str, Any] = {"finished_time": now, "running": 0}
    if progress is not None:
        fields |= progress.to_fields(tasks, 0, now)
    fields |= {"tasks_per_second": "", "estimated_completion_time": None}
    message = ending.message[:_MESSAGE_CHARACTERS]
    status = _make_status(study, fields, ConditionType.COMPLETE, ending.complete, ending.reason, message, now)
    if ending.complete:
        return status
    ended = study.model_copy(update={"status": status})
    return _make_status(ended, {}, ConditionType.FAILED, True, ending.reason, message, now)


def _count_permitted(study: Study, tasks: int) -> int:
    most = study.spec.max_failed_tasks
    return most if isinstance(most, int) else tasks * int(most.removesuffix("%")) // 100


def _describe_failures(failed: int, most: int) -> str:
    return f"{failed} tasks failed, and spec.maxFailedTasks permits {most}"


def _make_status(
    study: Study, fields: dict[str, Any], kind: ConditionType, value: bool, reason: str, message: str, now: datetime
) -> StudyStatus:
    condition = Condition(
        type=kind,
        status="True" if value else "False",
        reason=reason,
        message=message,
        last_transition_time=now,
        observed_generation=study.metadata.generation,
    )
    update = {
        **fields,
        "observed_generation": study.metadata.generation,
        "conditions": set_condition(study.status.conditions, condition),
    }
    return study.status.model_copy(update=update)
