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
    """What is known of a pool's use: whether an action runs or waits for it now, and when one last ended."""

    now: bool = False
    last: datetime | None = None


@dataclass(frozen=True, slots=True)
class Idleness:
    """Whether the pool sleeps, from when its time-out counts, and when it may fall asleep without anything happening.

    All None and False of a pool without a time-out.
    """

    asleep: bool = False
    last_active: datetime | None = None
    look_again: datetime | None = None


def coarseness(timeout_seconds: int) -> int:
    """To how many seconds the time of the last use is rounded."""
    return max(1, min(COARSEST_SECONDS, timeout_seconds // 10))


def plan_idleness(
    pool: WorkerPool,
    previous: WorkerPoolStatus,
    use: Use,
    *,
    registered: Iterable[datetime],
    starting: bool,
    spec_changed: bool,
    now: datetime,
) -> Idleness:
    """Whether a pool sleeps.

    It does not fall asleep while an action runs or waits, or while workers are ``starting``; it counts from the latest
    of the last use, the newest of the times ``registered``, and the last change of the spec. That time is rounded up,
    so that it is written seldom and a restart never makes the pool fall asleep too early.
    """
    timeout = pool.spec.idle_timeout_seconds
    if timeout is None:
        return Idleness()
    known = [previous.last_active_time, use.last, pool.metadata.creation_timestamp, now if spec_changed else None]
    active = max([*registered, *(time for time in known if time is not None)], default=now)
    step = coarseness(timeout)
    last_active = datetime.fromtimestamp(math.ceil(active.timestamp() / step) * step, UTC)
    ends = after(last_active, timeout)
    if use.now or starting:
        return Idleness(False, last_active, after(now, timeout))
    return Idleness(now >= ends, last_active, ends if now < ends else None)
