"""All that a pool's plan depends on."""

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
from simyard.plan.service import PublishedService
from simyard.plan.workforce import Clock


@dataclass(frozen=True, slots=True)
class PoolInput:
    """All that the plan of a pool depends on.

    Attributes:
        previous: the newest status that was planned (it may not be written yet).
        workers: the pool's Workers.
        taken: names of Workers of the namespace that belong to somebody else, where they are in the way.
        busy: uids of workers that run a ServiceAction.
        drained: uids of workers that said that they are drained.
        active: when workers, by uid, last said that they run Sync requests, by the clock.
        heard_seconds: for how long everything that workers say has been heard, without a gap.
        use: what is known of actions on the pool (only of one that has an idle time-out).
        clock: how long each worker has been seen as it is.
        broker_problem: why the broker cannot serve workers; empty when it can.
        refused: what the API server said when it refused to store a Worker; empty when it is to be tried (again).
        licence: the seats that it gets of its service's licence; None when there is no licence.
        worker_left: a worker has left the pool that knew its password at the broker.
        rotate_after_seconds: its password at the broker changes so long after a worker left; 0: never.
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
    worker_left: bool = False
    rotate_after_seconds: float = 0.0
