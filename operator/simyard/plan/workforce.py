"""The workers of a pool by what becomes of them."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from simyard.api.base import find_condition
from simyard.api.names import ConditionType, Reason
from simyard.api.worker import Worker
from simyard.plan.replacement import time_limit, verdict


@dataclass(frozen=True, slots=True)
class Removal:
    """A Worker to be deleted, and whether that is because it failed."""

    worker: Worker
    reason: str
    message: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Clock:
    """Seconds that nobody sets: ``now``, and since when each worker (by uid) has been seen as it is."""

    now: float = 0.0
    since: Mapping[str, float] = field(default_factory=dict)

    def seconds(self, worker: Worker) -> float:
        """How long a worker has been seen as it is; 0 of one that was not seen yet."""
        return self.now - self.since.get(worker.metadata.uid, self.now)


@dataclass(frozen=True, slots=True)
class Workforce:
    """Workers that are not being deleted: each is in one of ``ready``, ``unready``, ``draining`` and ``failed``.

    ``late`` are those of ``unready`` whose deadline has passed, each with the verdict, the longest first;
    ``look_again`` is after how many seconds another worker may be late.
    """

    ready: list[Worker]
    unready: list[Worker]
    draining: list[Worker]
    failed: list[Removal]
    late: list[Removal]
    look_again: float | None


def part(workers: Sequence[Worker], deadline_seconds: float, clock: Clock, patient: Container[str] = ()) -> Workforce:
    """Part workers by what becomes of them. Those at the sites ``patient`` are neither late nor lost."""
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
        limit = time_limit(worker, condition, deadline_seconds) if worker.spec.site not in patient else None
        seconds = clock.seconds(worker) if limit else 0.0
        if limit is not None and limit <= seconds:
            reason, message = verdict(worker, condition, deadline_seconds)
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
