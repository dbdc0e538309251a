# SPDX-License-Identifier: Apache-2.0
"""Lists of the newest failures and activities of a pool, for its status."""

from __future__ import annotations

from collections.abc import Sequence

from simyard.api.base import find_condition
from simyard.api.names import ConditionType, Reason
from simyard.api.worker_pool import PoolActivity, PoolFailure
from simyard.plan.exits import Exits
from simyard.plan.idleness import was_asleep
from simyard.plan.pool_conditions import Counts
from simyard.plan.pool_input import PoolInput
from simyard.plan.texts import format_count, format_count_is
from simyard.plan.workforce import Removal

MAX_FAILURES = 10
MAX_ACTIVITIES = 20


def add_failures(given: PoolInput, failed: Sequence[Removal]) -> list[PoolFailure]:
    """Return the newest failures of the pool, including the failures of this pass."""
    new = [
        PoolFailure(
            time=given.now, worker=item.worker.metadata.name, reason=item.reason[:128], message=item.message[:1024]
        )
        for item in failed
    ]
    return [*given.previous.failures, *new][-MAX_FAILURES:]


def add_activities(
    given: PoolInput, counts: Counts, exits: Exits, *, created: int, ended: int, spec_changed: bool
) -> list[PoolActivity]:
    """Return the newest activities of the pool, including the activities of this pass."""
    new: list[tuple[Reason, str]] = []
    previous, timeout = given.previous, given.pool.spec.idle_timeout_seconds
    if counts.asleep:
        # Workers that drain end in later passes, which are no activities of their own.
        if not was_asleep(previous):
            ended_workers = format_count_is(len(given.workers), "worker")
            new.append((Reason.IDLE, f"no action for {timeout} s: {ended_workers} ended"))
    elif (created or ended) and (spec_changed or was_asleep(previous)) and len(given.workers) != counts.desired:
        new.append((Reason.SCALED, f"from {len(given.workers)} to {format_count(counts.desired, 'worker')}"))
    progressing = find_condition(previous.conditions, ConditionType.PROGRESSING)
    if counts.renewed and (progressing is None or progressing.reason == Reason.WORKERS_UPDATED):
        replaced = format_count_is(counts.outdated + counts.renewed, "worker")
        new.append((Reason.ROLLING_OUT, f"{replaced} replaced: the service or the pool has changed"))
    if exits.moved:
        moved = format_count_is(len(exits.moved), "worker")
        message = f"{moved} sent to another site, such as {exits.moved[0].worker.metadata.name}: "
        new.append((Reason.WORKERS_MOVED, message + exits.moved[0].message))
    if exits.returned:
        message = f"{format_count_is(len(exits.returned), 'worker')} sent to a site that the pool prefers, such as "
        new.append((Reason.WORKERS_RETURNED, message + exits.returned[0].metadata.name))
    made = [PoolActivity(time=given.now, reason=reason, message=message[:1024]) for reason, message in new]
    return [*previous.activities, *made][-MAX_ACTIVITIES:]
