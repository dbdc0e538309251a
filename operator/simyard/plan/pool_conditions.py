# SPDX-License-Identifier: Apache-2.0
"""Conditions of a WorkerPool: Available, Progressing, and their reasons and messages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

from simyard.api.base import Condition, find_condition, set_condition
from simyard.api.names import ConditionType, Reason
from simyard.api.worker_pool import WorkerPool, WorkerPoolStatus
from simyard.plan.backoff import Backoff
from simyard.plan.rollout import parse_max_unavailable

MAX_MESSAGE_CHARACTERS = 32_768
LASTING = frozenset({Reason.SERVICE_NOT_FOUND, Reason.INTERFACE_INVALID, Reason.ATTRIBUTES_INVALID})
"""Reasons that block the creation of workers until a user changes an object."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """Reason why no worker can be created."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of a pool's workers; workers that drain or leave do not count.

    Attributes:
        failed: Failed workers without a ready replacement.
        outdated: Outdated workers among the ready and starting workers.
        renewed: Outdated workers that leave in this pass.
        last_failure: Cause of the newest failure.
        asleep: True if the pool sleeps for lack of use.
    """

    desired: int
    ready: int
    starting: int
    failed: int
    outdated: int = 0
    renewed: int = 0
    last_failure: str = ""
    asleep: bool = False


def get_quorum(desired: int, percent: int) -> int:
    """Return the minimum number of ready workers with which a pool is Available."""
    return math.ceil(desired * percent / 100)


def plan_pool_conditions(
    pool: WorkerPool,
    previous: WorkerPoolStatus,
    counts: Counts,
    blocked: Blocked | None,
    backoff: Backoff,
    now: datetime,
) -> list[Condition]:
    """Return the pool's conditions.

    Available is True if the service exists and the quorum of workers is ready, even if there is another problem. During
    a rollout, the quorum is smaller by ``maxUnavailable`` workers. Progressing is True if all workers have the present
    revision, or if a rollout makes progress.
    """
    conditions = previous.conditions
    progressing = _get_progressing(previous, counts, blocked, backoff)
    rolling = progressing is not None and progressing[1] != Reason.WORKERS_UPDATED
    rows = {ConditionType.AVAILABLE: _get_available(pool, previous, counts, blocked, backoff, now, rolling=rolling)}
    if progressing is not None:
        rows[ConditionType.PROGRESSING] = progressing
    for kind, (status, reason, message) in rows.items():
        condition = Condition(
            type=kind,
            status="True" if status else "False",
            reason=reason,
            message=message[:MAX_MESSAGE_CHARACTERS],
            last_transition_time=now,
            observed_generation=pool.metadata.generation,
        )
        conditions = set_condition(conditions, condition)
    return conditions


def _get_progressing(
    previous: WorkerPoolStatus, counts: Counts, blocked: Blocked | None, backoff: Backoff
) -> tuple[bool, str, str] | None:
    """Return status, reason and message of Progressing; None for a pool that is being deleted.

    A rollout ends when every worker is up to date and ready. If workers cannot be created because the licence has no
    free seats, the rollout ends without them.
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


def _get_available(
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
    kept = f"spec.replicas stays {pool.spec.replicas}"
    if pool.spec.suspend:
        return False, Reason.SUSPENDED, f"spec.suspend is true; {kept}"
    if counts.asleep:
        why = f"no action for {pool.spec.idle_timeout_seconds} s; {kept}"
        return False, Reason.IDLE, f"{why}, and the pool starts when an action waits for it or its spec changes"
    if counts.desired == 0:
        return False, Reason.SCALED_TO_ZERO, "spec.replicas is 0"
    of = f"{counts.ready} of {counts.desired} workers are ready"
    needed = get_quorum(counts.desired, pool.spec.start.quorum_percent)
    before = find_condition(previous.conditions, ConditionType.AVAILABLE)
    if rolling and before is not None and before.status == "True":
        needed = max(1, needed - parse_max_unavailable(pool.spec.rollout.max_unavailable, counts.desired))
    missing = counts.ready + counts.starting < counts.desired
    # A temporary obstacle is reported only while workers are missing, because each report is a write to the API server.
    why = f"; {blocked.message}" if blocked is not None and (missing or blocked.reason in LASTING) else ""
    if blocked is not None and blocked.reason == Reason.SERVICE_NOT_FOUND:
        return False, blocked.reason, f"{of}; {blocked.message}: its actions cannot be called"
    if counts.ready >= needed:
        return True, Reason.WORKERS_READY, of + why
    if blocked is not None:
        return False, blocked.reason, f"{of}; {blocked.message}"
    if backoff.rounds > 0 and (counts.failed or (missing and backoff.is_waiting(now))):
        last = f"; the last failure was: {counts.last_failure}" if counts.last_failure else ""
        of = f"{of}; workers keep failing{last}"
        if missing and backoff.is_waiting(now) and backoff.until is not None:
            of = f"{of}; the next attempt is at {backoff.until:%H:%M:%S} UTC"
    return False, Reason.WORKERS_STARTING, of
