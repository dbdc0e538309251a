"""The condition Available of a pool."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

from simyard.api.base import Condition, set_condition
from simyard.api.names import ConditionType, Reason
from simyard.api.worker_pool import WorkerPool, WorkerPoolStatus
from simyard.plan.backoff import Backoff


@dataclass(frozen=True, slots=True)
class Blocked:
    """Why no worker can be made."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Counts:
    """The pool's workers, those that drain or go aside."""

    desired: int
    ready: int
    starting: int
    failed: int


def quorum(desired: int, percent: int) -> int:
    """How many ready workers make a pool Available."""
    return math.ceil(desired * percent / 100)


def available(
    pool: WorkerPool,
    previous: WorkerPoolStatus,
    counts: Counts,
    blocked: Blocked | None,
    backoff: Backoff,
    now: datetime,
) -> list[Condition]:
    """The pool's conditions: Available when the quorum of its workers is ready, whatever else is wrong."""
    status, reason, message = _available(pool, previous, counts, blocked, backoff, now)
    condition = Condition(
        type=ConditionType.AVAILABLE,
        status="True" if status else "False",
        reason=reason,
        message=message,
        last_transition_time=now,
        observed_generation=pool.metadata.generation,
    )
    return set_condition(previous.conditions, condition)


def _available(
    pool: WorkerPool,
    previous: WorkerPoolStatus,
    counts: Counts,
    blocked: Blocked | None,
    backoff: Backoff,
    now: datetime,
) -> tuple[bool, str, str]:
    if blocked is not None and blocked.reason == Reason.TERMINATING:
        return False, blocked.reason, blocked.message
    if pool.spec.suspend:
        return False, Reason.SUSPENDED, f"spec.suspend is true; it keeps {pool.spec.replicas} replicas in mind"
    if counts.desired == 0:
        return False, Reason.SCALED_TO_ZERO, "spec.replicas is 0"
    of = f"{counts.ready} of {counts.desired} workers are ready"
    if counts.ready >= quorum(counts.desired, pool.spec.start.quorum_percent):
        return True, Reason.WORKERS_READY, of
    if blocked is not None:
        return False, blocked.reason, f"{of}; {blocked.message}"
    if backoff.waits(now) and backoff.until is not None:
        last = previous.failures[-1] if previous.failures else None
        why = f", the last one: {last.reason} {last.message}".rstrip() if last else ""
        of = f"{of}; workers keep failing{why}; the next try is at {backoff.until:%H:%M:%S} UTC"
    return False, Reason.WORKERS_STARTING, of
