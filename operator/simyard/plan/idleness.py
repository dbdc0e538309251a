# SPDX-License-Identifier: Apache-2.0
"""Decision whether an unused pool sleeps: a pool that sleeps has no workers until it is used again."""

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
"""Maximum unit to which the time of the last use is rounded. The unit is a tenth of the timeout, if that is less."""


@dataclass(frozen=True, slots=True)
class Use:
    """Use of a pool by actions.

    Attributes:
        now: True if an action runs, or waits for the pool.
        last: Time at which the last action ended.
        quiet_seconds: Time on a steady clock since this process saw the pool's last activity. If it saw no activity,
            the time counts from when it first saw the pool.
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
        look_again: Seconds until the pool may fall asleep; None if it sleeps or has no idle timeout.
    """

    asleep: bool = False
    last_active: datetime | None = None
    look_again: float | None = None


def was_asleep(status: WorkerPoolStatus) -> bool:
    """Return whether the pool's status says that the pool sleeps because it was not used."""
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
    from the pool's creation, its last use, its last change of the spec, or the last registration of a worker
    (``registered``), whichever is the latest. The function rounds this time up: the status then changes seldom, and a
    restarted operator does not let a pool fall asleep too early. For a pool that is awake, the timeout must also have
    passed on the process's steady clock, because a wall clock can jump.
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
