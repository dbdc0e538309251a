"""What a pool needs now: which workers to make, to drain and to delete, and its status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from simyard.api.names import LABEL_POOL, Reason
from simyard.api.worker import Worker
from simyard.api.worker_pool import PoolActivity, PoolFailure, WorkerPool, WorkerPoolStatus
from simyard.plan.backoff import Backoff
from simyard.plan.placement import Choice, SiteState, permitted_sites, place
from simyard.plan.pool_conditions import Blocked, Counts, available
from simyard.plan.replacement import Verdict, judge
from simyard.plan.scale_in import drain_ends, victims
from simyard.plan.service import PublishedService, values_problem
from simyard.plan.slots import free_slots
from simyard.plan.start import begin_start, finish_start
from simyard.plan.times import seconds_until
from simyard.plan.worker import is_ready

MOST_CREATES = 500
"""Workers made in one pass: a larger pool takes several, so that a change of mind is heard in between."""

MOST_FAILURES = 10
MOST_ACTIVITIES = 20
DEFAULT_DEADLINE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class PoolInput:
    """All that the plan of a pool depends on.

    Attributes:
        previous: the newest status that was planned (it may not be written yet).
        workers: the pool's Workers.
        taken: names of Workers of the namespace that belong to somebody else, where they are in the way.
        busy: uids of workers that run a ServiceAction.
        broker: whether the pool's user and queues can be made.
        refused: what the API server said when it refused to store a Worker; empty when it is to be tried (again).
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
    broker: bool = True
    refused: str = ""


@dataclass(frozen=True, slots=True)
class NewWorker:
    """A Worker to be created."""

    name: str
    site: str


@dataclass(frozen=True, slots=True)
class Removal:
    """A Worker to be deleted, and whether that is because it failed."""

    worker: Worker
    reason: str
    message: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """What to do for a pool; the status says how things are once it is done.

    ``wake_seconds``: plan again after this time even if nothing happens. ``urgent``: write the status at once.
    """

    status: WorkerPoolStatus
    backoff: Backoff
    create: tuple[NewWorker, ...] = ()
    drain: tuple[Worker, ...] = ()
    delete: tuple[Removal, ...] = ()
    wake_seconds: float | None = None
    urgent: bool = False
    blocked: Blocked | None = None


@dataclass(frozen=True, slots=True)
class _Parted:
    """The pool's workers by what becomes of them."""

    serving: list[Worker] = field(default_factory=list)
    draining: list[Worker] = field(default_factory=list)
    failed: list[Removal] = field(default_factory=list)
    look_again: list[datetime | None] = field(default_factory=list)


def plan_pool(given: PoolInput) -> PoolPlan:
    """The plan of a pool."""
    pool, now = given.pool, given.now
    if pool.metadata.deletion_timestamp is not None:
        return _plan_deletion(given)
    parted = _part(given)
    desired = 0 if pool.spec.suspend else pool.spec.replicas
    surplus = victims(parted.serving, len(parted.serving) - desired, pool.spec.scale_in, given.busy)
    going = {worker.metadata.uid for worker in surplus}
    kept = [worker for worker in parted.serving if worker.metadata.uid not in going]
    draining, ended, look_again = _scale_in(given, parted, surplus)

    newest = max((worker.status.stages.registered for worker in kept if worker.status.stages.registered), default=None)
    backoff = given.backoff.recovered(newest)
    if parted.failed:
        backoff = backoff.failed(now)
    missing = desired - len(kept)
    spec_changed = pool.metadata.generation != given.previous.observed_generation
    start = begin_start(given.previous.start, spec_changed=spec_changed, missing=missing, now=now)
    blocked, create = _fill(given, backoff, missing)

    ready = sum(map(is_ready, kept))
    counts = Counts(desired, ready, starting=len(kept) + len(create) - ready, failed=len(parted.failed))
    delete = (*parted.failed, *ended)
    status = WorkerPoolStatus(
        observed_generation=pool.metadata.generation,
        replicas=len(given.workers) + len(create) - len(delete),
        ready_replicas=counts.ready,
        starting_replicas=counts.starting,
        failed_replicas=counts.failed,
        selector=f"{LABEL_POOL}={pool.metadata.name}",
        start=finish_start(start, kept, desired),
        failures=_failures(given, parted.failed),
        activities=_activities(given, len(create), len(draining) + len(ended), spec_changed),
        conditions=available(pool, given.previous, counts, blocked, backoff, now),
    )
    more = now if len(create) < missing and blocked is None else None
    wake = [*parted.look_again, *look_again, backoff.until if backoff.waits(now) else more]
    return PoolPlan(
        status=status,
        backoff=backoff,
        create=tuple(create),
        drain=tuple(draining),
        delete=delete,
        wake_seconds=seconds_until(now, wake),
        urgent=spec_changed or _status_of(given.previous) != _status_of(status),
        blocked=blocked,
    )


def _part(given: PoolInput) -> _Parted:
    parted = _Parted()
    deadline = given.pool.spec.start.deadline_seconds or (
        given.service.service.spec.readiness_deadline_seconds if given.service else DEFAULT_DEADLINE_SECONDS
    )
    for worker in given.workers:
        if worker.metadata.deletion_timestamp is not None:
            continue
        verdict = Verdict() if worker.spec.drain else judge(worker, deadline, given.now)
        parted.look_again.append(verdict.look_again)
        if worker.spec.drain:
            parted.draining.append(worker)
        elif verdict.reason:
            parted.failed.append(Removal(worker, verdict.reason, verdict.message, failed=True))
        else:
            parted.serving.append(worker)
    return parted


def _scale_in(
    given: PoolInput, parted: _Parted, surplus: list[Worker]
) -> tuple[list[Worker], list[Removal], list[datetime | None]]:
    """Workers to be drained, workers to be ended now, and when to look again at those that drain."""
    policy = given.pool.spec.scale_in
    drain: list[Worker] = []
    ended: list[Removal] = []
    look_again: list[datetime | None] = []
    for worker in surplus:
        if is_ready(worker) and policy.drain_seconds > 0:
            drain.append(worker)
        else:
            ended.append(Removal(worker, Reason.SCALED))
    for worker in parted.draining:
        ends = drain_ends(worker, policy)
        if ends is not None and ends <= given.now:
            ended.append(Removal(worker, Reason.SCALED))
        else:
            look_again.append(ends)
    return drain, ended, look_again


def _fill(given: PoolInput, backoff: Backoff, missing: int) -> tuple[Blocked | None, list[NewWorker]]:
    """New workers for what is missing, or why there can be none."""
    blocked, choice = _obstacle(given)
    if blocked is not None or choice is None or missing <= 0 or backoff.waits(given.now):
        return blocked, []
    spread = given.pool.spec.placement.strategy == "Spread"
    sites = place(min(missing, MOST_CREATES), choice, spread=spread)
    taken = given.taken | {worker.metadata.name for worker in given.workers}
    names = free_slots(given.pool.metadata.name, len(sites), taken)
    if len(sites) < min(missing, MOST_CREATES):
        full = ", ".join(state.name for state in choice.permitted)
        blocked = Blocked(Reason.MAX_WORKERS_REACHED, f"no room for {missing - len(sites)} more workers at: {full}")
    return blocked, [NewWorker(name, site) for name, site in zip(names, sites, strict=True)]


def _obstacle(given: PoolInput) -> tuple[Blocked | None, Choice | None]:
    pool, service = given.pool, given.service
    if service is None or service.metadata.deletion_timestamp is not None:
        return Blocked(Reason.SERVICE_NOT_FOUND, f"SimulationService {pool.spec.service_ref.name} does not exist"), None
    if service.problem:
        return Blocked(Reason.INTERFACE_INVALID, f"SimulationService {service.metadata.name}: {service.problem}"), None
    if problem := values_problem(service, pool.spec.attributes):
        return Blocked(Reason.ATTRIBUTES_INVALID, problem), None
    choice = permitted_sites(pool, given.sites, service.service.spec.resources)
    if not choice.permitted:
        return Blocked(choice.reason, choice.message), None
    if given.refused:
        return Blocked(Reason.WORKERS_REFUSED, f"the API server refuses its workers: {given.refused}"), None
    if not given.broker:
        return Blocked(Reason.BROKER_UNREACHABLE, "the message broker cannot be reached"), None
    return None, choice


def _plan_deletion(given: PoolInput) -> PoolPlan:
    going = tuple(
        Removal(worker, Reason.TERMINATING) for worker in given.workers if worker.metadata.deletion_timestamp is None
    )
    counts = Counts(desired=0, ready=0, starting=0, failed=0)
    left = len(given.workers) - len(going)
    blocked = Blocked(Reason.TERMINATING, "its workers are being ended")
    status = given.previous.model_copy(
        update={
            "observed_generation": given.pool.metadata.generation,
            "replicas": left,
            "ready_replicas": 0,
            "starting_replicas": 0,
            "failed_replicas": 0,
            "conditions": available(given.pool, given.previous, counts, blocked, given.backoff, given.now),
        }
    )
    return PoolPlan(status=status, backoff=given.backoff, delete=going, blocked=blocked)


def _failures(given: PoolInput, failed: Sequence[Removal]) -> list[PoolFailure]:
    new = [
        PoolFailure(
            time=given.now, worker=item.worker.metadata.name, reason=item.reason[:128], message=item.message[:1024]
        )
        for item in failed
    ]
    return [*given.previous.failures, *new][-MOST_FAILURES:]


def _activities(given: PoolInput, created: int, ended: int, spec_changed: bool) -> list[PoolActivity]:
    activities = list(given.previous.activities)
    if spec_changed and (created or ended):
        desired = 0 if given.pool.spec.suspend else given.pool.spec.replicas
        message = f"from {len(given.workers)} to {desired} workers"
        activities.append(PoolActivity(time=given.now, reason=Reason.SCALED, message=message))
    return activities[-MOST_ACTIVITIES:]


def _status_of(status: WorkerPoolStatus) -> list[tuple[str, str]]:
    return [(item.type, item.status) for item in status.conditions]
