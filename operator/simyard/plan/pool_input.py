# SPDX-License-Identifier: Apache-2.0
"""Input of the plan of a pool."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool, WorkerPoolStatus
from simyard.plan.backoff import Backoff
from simyard.plan.idleness import Use
from simyard.plan.licence import Allotment
from simyard.plan.placement import SiteState
from simyard.plan.scale_in import DEFAULT_DRAIN_SECONDS
from simyard.plan.service import PublishedService
from simyard.plan.workforce import Clock


@dataclass(frozen=True, slots=True)
class PoolInput:
    """Complete input of the plan of a pool.

    Attributes:
        previous: Status of the last plan; the operator may not have written it yet.
        workers: The pool's Workers.
        taken: Names of Workers in the namespace that do not belong to the pool; new Workers cannot have these names.
        busy: Uids of workers that run a ServiceAction.
        drained: Uids of workers that reported that they are drained.
        active: Time on ``clock`` of each worker's last report that it runs Sync requests, by uid of the worker.
        heard_seconds: Time for which the operator has received all reports of workers without a gap.
        use: Use of the pool by actions; it has the defaults if the pool has no idle timeout.
        clock: Time for which each worker has been in its present state.
        broker_problem: Reason why the broker cannot serve workers; empty if it can.
        refused: Answer of the API server that refused to store a Worker; empty if the operator may create Workers.
        licence: Seats of the service's licence for this pool; None without a licence.
        demand: Number of workers that studies ask for.
        worker_left: True if a worker that knew the pool's broker password has left the pool.
        rotate_after_seconds: Delay between the exit of such a worker and the change of the password; 0: no change.
        default_drain_seconds: Time in which a worker without a ServiceAction can finish its Sync requests.
    """

    pool: WorkerPool
    previous: WorkerPoolStatus
    backoff: Backoff
    workers: Sequence[Worker]
    service: PublishedService | None
    sites: Mapping[str, SiteState]
    now: datetime
    taken: frozenset[str] = frozenset()
    busy: frozenset[str] = frozenset()
    drained: Container[str] = frozenset()
    active: Mapping[str, float] = field(default_factory=dict)
    heard_seconds: float = 0.0
    use: Use = field(default_factory=Use)
    clock: Clock = field(default_factory=Clock)
    broker_problem: str = ""
    refused: str = ""
    licence: Allotment | None = None
    demand: int = 0
    worker_left: bool = False
    rotate_after_seconds: float = 0.0
    default_drain_seconds: float = DEFAULT_DRAIN_SECONDS
