"""Which workers go first when a pool has too many, and how they go."""

from __future__ import annotations

from collections.abc import Container, Sequence
from datetime import UTC, datetime

from simyard.api.base import find_condition
from simyard.api.names import ConditionType, Reason
from simyard.api.worker import Worker
from simyard.api.worker_pool import ScaleInPolicy
from simyard.plan.times import after
from simyard.plan.worker import FATAL, is_ready, requested_time

_EPOCH = datetime.fromtimestamp(0, UTC)


def victims(workers: Sequence[Worker], count: int, policy: ScaleInPolicy, busy: Container[str]) -> list[Worker]:
    """The workers to end: those that are not ready first, then as the policy says, highest slots first among equals.

    ``busy`` has the uids of workers that run an action as far as we know.
    """

    def rank(worker: Worker) -> tuple[bool, bool, float, int, str]:
        age = (requested_time(worker) or _EPOCH).timestamp()
        name = worker.metadata.name
        return (
            is_ready(worker),
            policy.policy == "IdleFirst" and worker.metadata.uid in busy,
            age if policy.policy == "Oldest" else -age if policy.policy == "Newest" else 0.0,
            -len(name),
            "".join(chr(0x10FFFF - ord(letter)) for letter in name),
        )

    return sorted(workers, key=rank)[: max(0, count)]


def drain_ends(worker: Worker, policy: ScaleInPolicy) -> datetime | None:
    """When a draining worker may be ended; None when it has not begun to drain, so that nobody knows yet.

    One whose machine has failed or is lost will never say that it is drained: it may be ended at once.
    """
    ready = find_condition(worker.status.conditions, ConditionType.READY)
    if ready is not None and ready.reason in FATAL:
        return ready.last_transition_time
    if ready is None or ready.reason not in (Reason.DRAINING, Reason.DRAINED):
        return None
    begun = ready.last_transition_time
    return begun if ready.reason == Reason.DRAINED else after(begun, policy.drain_seconds)
