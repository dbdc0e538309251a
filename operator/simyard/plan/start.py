"""The timings of a pool's newest start."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from statistics import median

from simyard.api.worker import Stages, Worker
from simyard.api.worker_pool import PoolStart, StageTime, StartStages, WorkerPoolStatus
from simyard.plan.times import milliseconds_between
from simyard.plan.worker import is_ready, requested_time

INTERVALS = (
    ("start", "pending"),
    ("pending", "prolog"),
    ("prolog", "boot"),
    ("boot", "running"),
    ("running", "registered"),
)
"""The five stages of a worker's start, as the OpenNebula study named them: from, to."""


def begin_start(previous: PoolStart | None, *, spec_changed: bool, missing: int, now: datetime) -> PoolStart | None:
    """A change that asks for more workers begins a start; the replacement of a failed worker does not."""
    if missing > 0 and (spec_changed or previous is None):
        return PoolStart(requested_time=now, workers=missing)
    return previous


def finish_start(start: PoolStart | None, workers: Sequence[Worker], desired: int) -> PoolStart | None:
    """With T_boot, T_r and the times of the stages once as many workers as desired are ready."""
    if start is None or start.registered_milliseconds is not None or desired == 0 or len(workers) < desired:
        return start
    if not all(is_ready(worker) for worker in workers):
        return start
    asked = start.requested_time
    started = [item.status.stages for item in workers if (requested_time(item) or asked) >= asked]
    running = [stages.running for stages in started if stages.running is not None]
    registered = [stages.registered for stages in started if stages.registered is not None]
    if not registered:
        return start
    return start.model_copy(
        update={
            "boot_milliseconds": milliseconds_between(asked, max(running)) if running else None,
            "registered_milliseconds": milliseconds_between(asked, max(registered)),
            "stages": _stage_times(started),
        }
    )


def publish_start(stored: WorkerPoolStatus, previous: WorkerPoolStatus, now: datetime) -> WorkerPoolStatus:
    """The status with T_m, once the API server has stored T_r (``previous`` is what it had before).

    From that moment every watcher is told that all workers are ready. How long a requester really waits is for the
    requester to measure. After a restart in between T_m stays unknown: nobody saw the moment.
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
    published = max(start.registered_milliseconds, milliseconds_between(start.requested_time, now))
    return stored.model_copy(update={"start": start.model_copy(update={"published_milliseconds": published})})


def stage_milliseconds(stages: Stages) -> dict[str, int]:
    """How long each stage took of which both ends are known, by the name of its end."""
    found = {}
    for first, last in INTERVALS:
        begun, ended = getattr(stages, first), getattr(stages, last)
        if begun is not None and ended is not None:
            found[last] = milliseconds_between(begun, ended)
    return found


def _stage_times(started: Sequence[Stages]) -> StartStages:
    times: dict[str, list[int]] = {}
    for stages in started:
        for name, milliseconds in stage_milliseconds(stages).items():
            times.setdefault(name, []).append(milliseconds)
    return StartStages.model_validate(
        {
            name: StageTime(median_milliseconds=round(median(taken)), slowest_milliseconds=max(taken))
            for name, taken in times.items()
        }
    )
