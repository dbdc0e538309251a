# SPDX-License-Identifier: Apache-2.0
"""Progress of a study in the terminal: a bar, the rate, the time left, and failures by reason."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from simyard.api.base import find_condition
from simyard.api.names import STUDIES, ConditionType
from simyard.api.optimisation import OptimisationStatus
from simyard.api.study import Study
from simyard.cli.kubectl import Kubectl
from simyard.cli.output import Failure, say

BAR_CHARACTERS = 30
INTERRUPTED = 130
CLEAR_LINE = "\r\x1b[K"


def follow_study(kubectl: Kubectl, name: str) -> None:
    """Show the progress of a study until it has ended.

    Raises:
        Failure: the study failed, or was deleted.
    """
    live = sys.stderr.isatty()
    shown = ""
    try:
        for raw in kubectl.watch(STUDIES, name):
            study = Study.model_validate(raw)
            line = format_progress(study, datetime.now(UTC))
            if line != shown:
                if live:
                    sys.stderr.write(CLEAR_LINE)
                say(line, err=True, nl=not live)
                shown = line
            if study.status.finished_time is not None:
                if live:
                    say("", err=True)
                return _report_end(study)
    except KeyboardInterrupt:
        say(f"\nstudy/{name} goes on: follow it with `kubectl simyard study watch {name}`", err=True)
        say(f"or end it with `kubectl simyard study cancel {name}`", err=True)
        sys.exit(INTERRUPTED)
    raise Failure(f"the watch ended before study/{name} did: it was deleted, or the API server closed the watch")


def format_progress(study: Study, now: datetime) -> str:
    """Return one line about the progress of a study."""
    status = study.status
    done, total = status.succeeded + status.failed, status.tasks
    if not total:
        condition = find_condition(status.conditions, ConditionType.COMPLETE)
        return (condition.message if condition else "") or "the study has not started yet"
    filled = BAR_CHARACTERS * done // total
    parts = [f"[{'#' * filled}{'-' * (BAR_CHARACTERS - filled)}] {100 * done // total:3d} %  {done} of {total}"]
    if status.finished_time is None:
        parts.append(f"{status.running} running")
        if status.tasks_per_second:
            parts.append(f"{status.tasks_per_second}/s")
        if status.estimated_completion_time is not None:
            left = max(0, round((status.estimated_completion_time - now).total_seconds()))
            parts.append(f"{_format_seconds(left)} left")
        if not done and (condition := find_condition(status.conditions, ConditionType.COMPLETE)) is not None:
            parts.append(condition.message)
    if (search := status.optimisation) is not None:
        parts.append(_format_search(search))
    if status.failed:
        parts.append(f"{status.failed} failed ({', '.join(f'{it.reason} {it.count}' for it in status.failures)})")
    return "  ".join(part for part in parts if part)


def _format_search(search: OptimisationStatus) -> str:
    """Return the state of an optimisation: its best point, or the size of its front."""
    text = f"generation {search.generations}"
    if search.front_size is not None:
        return f"{text}  front {search.front_size}"
    if search.best is None:
        return f"{text}  no feasible point yet"
    return f"{text}  best {search.best.value} (task {search.best.index})"


def _report_end(study: Study) -> None:
    status, name = study.status, study.metadata.name
    failed = find_condition(status.conditions, ConditionType.FAILED)
    best = status.optimisation.best if status.optimisation is not None else None
    started = status.started_time or study.metadata.creation_timestamp
    if status.tasks and started is not None and status.finished_time is not None:
        seconds = (status.finished_time - started).total_seconds()
        say(f"{status.succeeded} tasks succeeded and {status.failed} failed in {seconds:.1f} s", err=True)
    for failure in status.failures:
        say(f"{failure.count} x {failure.reason}, such as task {failure.first_index}: {failure.message}", err=True)
    if failed is not None and failed.status == "True":
        raise Failure(f"study/{name}: {failed.reason}: {failed.message}")
    if best is not None:
        point = ", ".join(f"{item.name}={item.value}" for item in best.parameters)
        say(f"best: {best.value} in task {best.index}, with {point}", err=True)
    say(f"see the results with: kubectl simyard study results {name}", err=True)


def _format_seconds(seconds: int) -> str:
    if seconds < 120:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
