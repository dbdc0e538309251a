"""Which workers go first when a pool has too many, and how they go."""

from __future__ import annotations

from collections.abc import Container, Sequence
from datetime import UTC, datetime

from simyard.api.base import find_condition
from simyard.api.names import ANNOTATION_LEAVES, ConditionType, Reason
from simyard.api.worker import Worker
from simyard.api.worker_pool import ScaleInPolicy
from simyard.plan.worker import FATAL, is_ready, requested_time

DEFAULT_DRAIN_SECONDS = 30.0
"""Time that a worker without a ServiceAction gets to finish its Sync requests: each of those ends within it."""

_EPOCH = datetime.fromtimestamp(0, UTC)
_BACKWARDS = {ord(letter): chr(0x7F - ord(letter)) for letter in "-.0123456789abcdefghijklmnopqrstuvwxyz"}
"""The letters of names, so that a name that sorts last comes first."""


def victims(
    workers: Sequence[Worker],
    count: int,
    policy: ScaleInPolicy,
    busy: Container[str],
    outdated: Container[str] = (),
) -> list[Worker]:
    """The workers to end: those that somebody has asked to go, those that are not ready, then outdated ones, then as
    the policy says, and highest slots first among equals.

    ``busy`` has the uids of workers that are at work as far as we know, ``outdated`` of those that a rollout is to
    replace.
    """
    if count <= 0:
        return []

    def rank(worker: Worker) -> tuple[bool, bool, bool, bool, float, int, str]:
        age = (requested_time(worker) or _EPOCH).timestamp() if policy.policy != "IdleFirst" else 0.0
        name, uid = worker.metadata.name, worker.metadata.uid
        return (
            ANNOTATION_LEAVES not in worker.metadata.annotations,
            is_ready(worker),
            uid not in outdated,
            policy.policy == "IdleFirst" and uid in busy,
            age if policy.policy == "Oldest" else -age,
            -len(name),
            name.translate(_BACKWARDS),
        )

    return sorted(workers, key=rank)[:count]


def drain_ends(
    worker: Worker, policy: ScaleInPolicy, drained: Container[str], busy: Container[str], seconds: float
) -> float:
    """Return after how many seconds to end a worker that has been draining for ``seconds``; at once if not positive.

    ``drained`` has the uids of workers that said that they are, ``busy`` of those that run a ServiceAction. Without a
    limit of the pool's own, a ServiceAction ends by its own timeout, and a Sync request within the default. A worker
    whose machine has failed or is lost never says that it is drained: it is ended at once.
    """
    ready = find_condition(worker.status.conditions, ConditionType.READY)
    ended = ready is not None and ready.reason in (*FATAL, Reason.DRAINED)
    if ended or worker.metadata.uid in drained:
        return 0.0
    if policy.drain_seconds is None and worker.metadata.uid in busy:
        return DEFAULT_DRAIN_SECONDS
    return (DEFAULT_DRAIN_SECONDS if policy.drain_seconds is None else policy.drain_seconds) - seconds
