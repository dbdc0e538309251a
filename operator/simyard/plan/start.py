# SPDX-License-Identifier: Apache-2.0
"""Measurement of a pool's newest start: its total durations, and the durations of the workers' stages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from statistics import median

from simyard.api.worker import Stages, Worker
from simyard.api.worker_pool import PoolStart, StageTime, StartStages, WorkerPoolStatus
from simyard.plan.times import get_milliseconds_between
from simyard.plan.worker import get_requested_time, is_ready

INTERVALS = (
    ("start", "pending"),
    ("pending", "prolog"),
    ("prolog", "boot"),
    ("boot", "running"),
    ("running", "registered"),
)
"""Begin and end of the five stages of a worker's start."""


def begin_start(previous: PoolStart | None, *, spec_changed: bool, missing: int, now: datetime) -> PoolStart | None:
    """Return a new start if a change of the spec asks for more workers, else the previous start.

    The replacement of a failed worker does not begin a start.
    """
    if missing > 0 and (spec_changed or previous is None):
        return PoolStart(requested_time=now, workers=missing)
    return previous


def finish_start(start: PoolStart | None, workers: Sequence[Worker], desired: int) -> PoolStart | None:
    """Return the start with its durations if all desired workers are ready, else unchanged.

    ``boot_milliseconds`` ends when the last machine runs, ``registered_milliseconds`` when the last worker registers.
    """
    if start is None or start.registered_milliseconds is not None or desired == 0 or len(workers) < desired:
        return start
    if not all(is_ready(worker) for worker in workers):
        return start
    asked = start.requested_time
    started = [item.status.stages for item in workers if (get_requested_time(item) or asked) >= asked]
    running = [stages.running for stages in started if stages.running is not None]
    registered = [stages.registered for stages in started if stages.registered is not None]
    if not registered:
        return start
    return start.model_copy(
        update={
            "boot_milliseconds": get_milliseconds_between(asked, max(running)) if running else None,
            "registered_milliseconds": get_milliseconds_between(asked, max(registered)),
            "stages": _compute_stage_times(started),
        }
    )


def publish_start(stored: WorkerPoolStatus, previous: WorkerPoolStatus, now: datetime) -> WorkerPoolStatus:
    """Add ``published_milliseconds`` to the status, after the API server has stored ``registered_milliseconds``.

    When the API server has stored this field, its clients can see that all workers are ready. A client itself must
    measure when it learns this. If the operator restarts between the two writes, the field stays unknown.

    Args:
        stored: Status that the API server has stored now.
        previous: Status that the API server had stored before.
        now: Present time.
    """
    start, before = stored.start, previous.start
    if start is None or start.registered_milliseconds is None or start.published_milliseconds is not None:
        return stored
    if (
        before is not None
        and before.requested_time == start.requested_time
        and before.registered_milliseconds is not None
    ):
        return stored
    published = max(start.registered_milliseconds, get_milliseconds_between(start.requested_time, now))
    return stored.model_copy(update={"start": start.model_copy(update={"published_milliseconds": published})})


def measure_stages(stages: Stages) -> dict[str, int]:
    """Return the milliseconds of each stage whose begin and end are known; the key is the name of the stage's end."""
    found = {}
    for first, last in INTERVALS:
        begun, ended = getattr(stages, first), getattr(stages, last)
        if begun is not None and ended is not None:
            found[last] = get_milliseconds_between(begun, ended)
    return found


def _compute_stage_times(started: Sequence[Stages]) -> StartStages:
    times: dict[str, list[int]] = {}
    for stages in started:
        for name, milliseconds in measure_stages(stages).items():
            times.setdefault(name, []).append(milliseconds)
    return StartStages.model_validate(
        {
            name: StageTime(median_milliseconds=round(median(taken)), slowest_milliseconds=max(taken))
            for name, taken in times.items()
        }
    )
