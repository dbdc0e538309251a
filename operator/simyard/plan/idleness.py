"""When a pool that nobody uses ends its workers, and when it makes them again."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from simyard.api.worker_pool import WorkerPool, WorkerPoolStatus
from simyard.plan.times import after

COARSEST_SECONDS = 300
"""The time of the last use is kept to a tenth of the time-out, and to so much at most."""


@dataclass(frozen=True, slots=True)
class Use:
    """What is known of a pool's use: whether an action runs or waits for it now, and when one last ended.

    ``quiet_seconds``: how long ago, on a clock that nobody sets, this process saw the pool's last activity, or saw the
    pool first.
    """

    now: bool = False
    last: datetime | None = None
    quiet_seconds: float = math.inf


@dataclass(frozen=True, slots=True)
class Idleness:
    """Whether the pool sleeps, from when its time-out counts, and in how many seconds it may fall asleep by itself.

    All None and False of a pool without a time-out.
    """

    asleep: bool = False
    last_active: datetime | None = None
    look_again: float | None = None


def coarseness(timeout_seconds: int) -> int:
    """To how many seconds the time of the last use is rounded."""
    return max(1, min(COARSEST_SECONDS, timeout_seconds // 10))


def plan_idleness(
    pool: WorkerPool,
    previous: WorkerPoolStatus,
    use: Use,
    *,
    registered: Iterable[datetime],
    asleep: bool,
    starting: bool,
    spec_changed: bool,
    now: datetime,
) -> Idleness:
    """Whether a pool sleeps.

    It does not fall asleep while an action runs or waits, or while workers are ``starting``; it counts from the latest
    of the last use, the newest of the times ``registered``, and the last change of the spec. That time is rounded up,
    so that it is written seldom and a restart never makes the pool fall asleep too early. Unless it is
    ``asleep`` already, the time-out must have passed on the process's own clock too: a wall clock may jump.
    """
    timeout = pool.spec.idle_timeout_seconds
    if timeout is None:
        return Idleness()
    known = [previous.last_active_time, use.last, pool.metadata.creation_timestamp, now if spec_changed else None]
    active = max([*registered, *(time for time in known if time is not None)], default=now)
    step = coarseness(timeout)
    last_active = datetime.fromtimestamp(math.ceil(active.timestamp() / step) * step, UTC)
    if use.now or starting:
        return Idleness(False, last_active, timeout)
    waits = (after(last_active, timeout) - now).total_seconds()
    if not asleep:
        waits = max(waits, timeout - use.quiet_seconds)
    return Idleness(waits <= 0, last_active, waits if waits > 0 else None)
