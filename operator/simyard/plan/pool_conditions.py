"""The conditions of a pool."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

from simyard.api.base import Condition, find_condition, set_condition
from simyard.api.names import ConditionType, Reason
from simyard.api.worker_pool import WorkerPool, WorkerPoolStatus
from simyard.plan.backoff import Backoff
from simyard.plan.rollout import most_unavailable

MOST_MESSAGE = 32_768
LASTING = frozenset({Reason.SERVICE_NOT_FOUND, Reason.INTERFACE_INVALID, Reason.ATTRIBUTES_INVALID})
"""What keeps a pool from making workers until somebody changes an object."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """Why no worker can be made."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Counts:
    """The pool's workers, those that drain or go aside.

    ``outdated`` ones are among the ready and starting ones; ``renewed`` ones go now because they are outdated.
    ``failed`` ones have no ready successor yet; ``last_failure`` says why the newest of them failed.
    """

    desired: int
    ready: int
    starting: int
    failed: int
    outdated: int = 0
    renewed: int = 0
    last_failure: str = ""
    asleep: bool = False


def quorum(desired: int, percent: int) -> int:
    """How many ready workers make a pool Available."""
    return math.ceil(desired * percent / 100)


def pool_conditions(
    pool: WorkerPool,
    previous: WorkerPoolStatus,
    counts: Counts,
    blocked: Blocked | None,
    backoff: Backoff,
    now: datetime,
) -> list[Condition]:
    """The pool's conditions.

    Available: the quorum of its workers is ready, whatever else is wrong, and the service exists; a rollout may take
    ``maxUnavailable`` of the quorum.
    Progressing: its workers are as the service and the pool say, or on their way there.
    """
    conditions = previous.conditions
    progressing = _progressing(previous, counts, blocked, backoff)
    rolling = progressing is not None and progressing[1] != Reason.WORKERS_UPDATED
    rows = {ConditionType.AVAILABLE: _available(pool, previous, counts, blocked, backoff, now, rolling=rolling)}
    if progressing is not None:
        rows[ConditionType.PROGRESSING] = progressing
    for kind, (status, reason, message) in rows.items():
        condition = Condition(
            type=kind,
            status="True" if status else "False",
            reason=reason,
            message=message[:MOST_MESSAGE],
            last_transition_time=now,
            observed_generation=pool.metadata.generation,
        )
        conditions = set_condition(conditions, condition)
    return conditions


def _progressing(
    previous: WorkerPoolStatus, counts: Counts, blocked: Blocked | None, backoff: Backoff
) -> tuple[bool, str, str] | None:
    """None of a pool that is being deleted. A rollout ends when every worker is up to date and ready.

    Workers that wait for seats of a licence do not hold it up.
    """
    if blocked is not None and blocked.reason == Reason.TERMINATING:
        return None
    before = find_condition(previous.conditions, ConditionType.PROGRESSING)
    rolled = before is not None and before.reason != Reason.WORKERS_UPDATED
    begun = counts.outdated > 0 or counts.renewed > 0
    for_seats = blocked is not None and blocked.reason == Reason.WAITING_FOR_SEATS
    coming = counts.starting > 0 if for_seats else counts.ready < counts.desired
    if counts.desired == 0 or not (begun or (rolled and coming)):
        return True, Reason.WORKERS_UPDATED, ""
    updated = max(0, counts.ready + counts.starting - counts.outdated)
    of = f"{updated} of {counts.desired} workers are up to date, {counts.ready} are ready"
    if blocked is not None and counts.outdated and not for_seats:
        return False, blocked.reason, f"{of}; {blocked.message}"
    if backoff.rounds > 0 and counts.ready < counts.desired:
        return False, Reason.PROGRESS_DEADLINE_EXCEEDED, f"{of}; workers that were replaced do not become ready"
    return True, Reason.ROLLING_OUT, of


def _available(
    pool: WorkerPool,
    previous: WorkerPoolStatus,
    counts: Counts,
    blocked: Blocked | None,
    backoff: Backoff,
    now: datetime,
    *,
    rolling: bool,
) -> tuple[bool, str, str]:
    if blocked is not None and blocked.reason == Reason.TERMINATING:
        return False, blocked.reason, blocked.message
    kept = f"it keeps {pool.spec.replicas} replicas in mind"
    if pool.spec.suspend:
        return False, Reason.SUSPENDED, f"spec.suspend is true; {kept}"
    if counts.asleep:
        why = f"no action for {pool.spec.idle_timeout_seconds} s; {kept}"
        return False, Reason.IDLE, f"{why}, and makes them when an action waits for it or its spec changes"
    if counts.desired == 0:
        return False, Reason.SCALED_TO_ZERO, "spec.replicas is 0"
    of = f"{counts.ready} of {counts.desired} workers are ready"
    needed = quorum(counts.desired, pool.spec.start.quorum_percent)
    before = find_condition(previous.conditions, ConditionType.AVAILABLE)
    if rolling and before is not None and before.status == "True":
        needed = max(1, needed - most_unavailable(pool.spec.rollout.max_unavailable, counts.desired))
    missing = counts.ready + counts.starting < counts.desired
    # What passes by itself is of no interest as long as nobody is missing, and each telling is a write.
    why = f"; {blocked.message}" if blocked is not None and (missing or blocked.reason in LASTING) else ""
    if blocked is not None and blocked.reason == Reason.SERVICE_NOT_FOUND:
        return False, blocked.reason, f"{of}; {blocked.message}: nobody can call its actions"
    if counts.ready >= needed:
        return True, Reason.WORKERS_READY, of + why
    if blocked is not None:
        return False, blocked.reason, f"{of}; {blocked.message}"
    if backoff.rounds > 0 and (counts.failed or (missing and backoff.waits(now))):
        last = f", the last one: {counts.last_failure}" if counts.last_failure else ""
        of = f"{of}; workers keep failing{last}"
        if missing and backoff.waits(now) and backoff.until is not None:
            of = f"{of}; the next try is at {backoff.until:%H:%M:%S} UTC"
    return False, Reason.WORKERS_STARTING, of
