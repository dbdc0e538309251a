# SPDX-License-Identifier: Apache-2.0
"""Classification of a pool's workers by their state."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from simyard.api.base import find_condition
from simyard.api.names import ConditionType, Reason
from simyard.api.worker import Worker
from simyard.plan.lost_workers import explain_removal, get_time_limit


@dataclass(frozen=True, slots=True)
class Removal:
    """Worker to delete, with the reason; ``failed`` is True if the worker failed."""

    worker: Worker
    reason: str
    message: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Clock:
    """Steady clock of a pass, in seconds.

    Attributes:
        now: Present time.
        since: Time at which each worker entered its present state, by uid.
    """

    now: float = 0.0
    since: Mapping[str, float] = field(default_factory=dict)

    def get_seconds(self, worker: Worker) -> float:
        """Return the time for which a worker has been in its present state; 0 for a worker that is new."""
        return self.now - self.since.get(worker.metadata.uid, self.now)


@dataclass(frozen=True, slots=True)
class Workforce:
    """Workers that are not being deleted: each is in one of ``ready``, ``unready``, ``draining`` and ``failed``.

    Attributes:
        late: Workers of ``unready`` whose registration deadline has passed; the worker that waited longest is first.
        look_again: Seconds until the next worker may be late or lost; None if no worker has a limit.
    """

    ready: list[Worker]
    unready: list[Worker]
    draining: list[Worker]
    failed: list[Removal]
    late: list[Removal]
    look_again: float | None


def split_workers(
    workers: Sequence[Worker], deadline_seconds: float, clock: Clock, patient: Container[str] = ()
) -> Workforce:
    """Return the workers by state. Workers at the sites in ``patient`` count as neither late nor lost."""
    ready: list[Worker] = []
    unready: list[Worker] = []
    draining: list[Worker] = []
    failed: list[Removal] = []
    late: list[tuple[float, Removal]] = []
    look_again: float | None = None
    for worker in workers:
        if worker.metadata.deletion_timestamp is not None:
            continue
        if worker.spec.drain:
            draining.append(worker)
            continue
        condition = find_condition(worker.status.conditions, ConditionType.READY)
        if condition is not None and condition.status == "True":
            ready.append(worker)
            continue
        limit = get_time_limit(worker, condition, deadline_seconds) if worker.spec.site not in patient else None
        seconds = clock.get_seconds(worker) if limit else 0.0
        if limit is not None and limit <= seconds:
            reason, message = explain_removal(worker, condition, deadline_seconds)
            removal = Removal(worker, reason, message, failed=True)
            if reason != Reason.READINESS_DEADLINE_EXCEEDED:
                failed.append(removal)
                continue
            late.append((seconds, removal))
        elif limit is not None and (look_again is None or limit - seconds < look_again):
            look_again = limit - seconds
        unready.append(worker)
    late.sort(key=lambda item: -item[0])
    return Workforce(ready, unready, draining, failed, [removal for _, removal in late], look_again)
