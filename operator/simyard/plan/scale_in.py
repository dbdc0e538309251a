# SPDX-License-Identifier: Apache-2.0
"""Order in which a pool's workers are removed, and the time that a draining worker gets."""

from __future__ import annotations

from collections.abc import Container, Sequence
from datetime import UTC, datetime

from simyard.api.base import find_condition
from simyard.api.names import ANNOTATION_LEAVES, ConditionType, Reason
from simyard.api.worker import Worker
from simyard.api.worker_pool import ScaleInPolicy
from simyard.plan.lost_workers import FATAL
from simyard.plan.worker import get_requested_time, is_ready

DEFAULT_DRAIN_SECONDS = 30.0
"""Time in which a worker without a ServiceAction can finish its Sync requests; each Sync request is shorter."""

_EPOCH = datetime.fromtimestamp(0, UTC)
_BACKWARDS = {ord(letter): chr(0x7F - ord(letter)) for letter in "-.0123456789abcdefghijklmnopqrstuvwxyz"}
"""Translation table that reverses the order of names: the name that sorts last comes first."""


def choose_victims(
    workers: Sequence[Worker],
    count: int,
    policy: ScaleInPolicy,
    busy: Container[str],
    outdated: Container[str] = (),
) -> list[Worker]:
    """Return the ``count`` workers that leave the pool first.

    Workers that a user asked to remove come first, then workers that are not ready, then outdated workers. Among equal
    workers, the policy decides. Among workers that are equal for the policy, the highest slots come first.

    Args:
        workers: Workers to choose from.
        count: Number of workers to choose.
        policy: Policy of the pool.
        busy: Uids of workers that run an action.
        outdated: Uids of workers with an old revision.
    """
    if count <= 0:
        return []

    def rank(worker: Worker) -> tuple[bool, bool, bool, bool, float, int, str]:
        age = (get_requested_time(worker) or _EPOCH).timestamp() if policy.policy != "IdleFirst" else 0.0
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


def get_drain_seconds_left(
    worker: Worker,
    policy: ScaleInPolicy,
    drained: Container[str],
    busy: Container[str],
    seconds: float,
    default_seconds: float = DEFAULT_DRAIN_SECONDS,
) -> float:
    """Return the seconds for which a worker may still drain, after ``seconds`` of draining; 0 or less: delete it now.

    ``drained`` holds the uids of workers that reported that they are drained; ``busy`` holds the uids of workers that
    run a ServiceAction. If the policy has no ``drainSeconds``, the timeout of the ServiceAction is the limit for a busy
    worker, and ``default_seconds`` for any other worker. A worker whose machine failed or is lost cannot report that it
    is drained, so the operator deletes it at once.
    """
    ready = find_condition(worker.status.conditions, ConditionType.READY)
    ended = ready is not None and ready.reason in (*FATAL, Reason.DRAINED)
    if ended or worker.metadata.uid in drained:
        return 0.0
    if policy.drain_seconds is None and worker.metadata.uid in busy:
        return default_seconds
    return (default_seconds if policy.drain_seconds is None else policy.drain_seconds) - seconds
