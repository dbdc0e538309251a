# SPDX-License-Identifier: Apache-2.0
"""Decision whether an unused pool sleeps: it deletes its workers, and creates them again when it is used."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from simyard.api.base import find_condition
from simyard.api.names import ConditionType, Reason
from simyard.api.worker_pool import WorkerPool, WorkerPoolStatus
from simyard.plan.times import add_seconds

MAX_ROUNDING_SECONDS = 300
"""Maximum unit to which the time of the last use is rounded; the unit is a tenth of the timeout if that is less."""


@dataclass(frozen=True, slots=True)
class Use:
    """Use of a pool by actions.

    Attributes:
        now: True if an action runs, or waits for the pool.
        last: Time at which the last action ended.
        quiet_seconds: Time since this process saw the last activity of the pool, or first saw the pool, on a steady
            clock.
    """

    now: bool = False
    last: datetime | None = None
    quiet_seconds: float = math.inf


@dataclass(frozen=True, slots=True)
class Idleness:
    """Idleness of a pool; a pool without an idle timeout has the defaults.

    Attributes:
        asleep: True if the pool sleeps.
        last_active: Time from which the idle timeout counts.
        look_again: Seconds until the pool may fall asleep.
    """

    asleep: bool = False
    last_active: datetime | None = None
    look_again: float | None = None


def was_asleep(status: WorkerPoolStatus) -> bool:
    """Return whether the pool slept for lack of use, as its status says."""
    condition = find_condition(status.conditions, ConditionType.AVAILABLE)
    return condition is not None and condition.reason == Reason.IDLE


def get_rounding_seconds(timeout_seconds: int) -> int:
    """Return the unit, in seconds, to which the time of the last use is rounded."""
    return max(1, min(MAX_ROUNDING_SECONDS, timeout_seconds // 10))


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
    """Return whether a pool sleeps, and when it may fall asleep.

    A pool does not fall asleep while an action runs or waits, or while workers are ``starting``. The timeout counts
    from the latest of the last use, the newest of the times ``registered``, and the last change of the spec. This time
    is rounded up, so that it is written seldom and a restart of the operator never makes a pool fall asleep too early.
    A pool that is awake falls asleep only when the timeout has also passed on the process's steady clock, because a
    wall clock may jump.
    """
    timeout = pool.spec.idle_timeout_seconds
    if timeout is None:
        return Idleness()
    known = [previous.last_active_time, use.last, pool.metadata.creation_timestamp, now if spec_changed else None]
    active = max([*registered, *(time for time in known if time is not None)], default=now)
    step = get_rounding_seconds(timeout)
    last_active = datetime.fromtimestamp(math.ceil(active.timestamp() / step) * step, UTC)
    if use.now or starting:
        return Idleness(False, last_active, timeout)
    waits = (add_seconds(last_active, timeout) - now).total_seconds()
    if not asleep:
        waits = max(waits, timeout - use.quiet_seconds)
    return Idleness(waits <= 0, last_active, waits if waits > 0 else None)
