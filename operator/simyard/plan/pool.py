"""What a pool needs now: which workers to make, to drain and to delete, and its status."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from simyard.api.base import find_condition
from simyard.api.names import LABEL_POOL, ConditionType, Reason
from simyard.api.worker import Worker
from simyard.api.worker_pool import PoolActivity, PoolFailure, WorkerPool, WorkerPoolStatus
from simyard.plan.backoff import Backoff
from simyard.plan.idleness import Idleness, Use, plan_idleness
from simyard.plan.licence import Allotment, licensed_replicas, with_licence
from simyard.plan.placement import Choice, SiteState, permitted_sites, place, stranded
from simyard.plan.pool_conditions import Blocked, Counts, pool_conditions
from simyard.plan.replacement import is_starting
from simyard.plan.rollout import Outdated, compare, most_unavailable, replaceable, revisions
from simyard.plan.scale_in import drain_ends, victims
from simyard.plan.service import PublishedService, values_problem
from simyard.plan.slots import free_slots
from simyard.plan.start import begin_start, finish_start
from simyard.plan.times import seconds_until
from simyard.plan.worker import is_ready
from simyard.plan.workforce import Clock, Removal, Workforce, part

MOST_CREATES = 500
"""Workers made in one pass: a larger pool takes several, so that a change of mind is heard in between."""

MOST_FAILURES = 10
MOST_ACTIVITIES = 20
DEFAULT_DEADLINE_SECONDS = 600.0
MOST_PATIENCE = 10
"""The deadline grows up to so many times."""


@dataclass(frozen=True, slots=True)
class PoolInput:
    """All that the plan of a pool depends on.

    Attributes:
        previous: the newest status that was planned (it may not be written yet).
        workers: the pool's Workers.
        taken: names of Workers of the namespace that belong to somebody else, where they are in the way.
        busy: uids of workers that run a ServiceAction.
        drained: uids of workers that said that they are drained.
        use: what is known of actions on the pool (only of one that has an idle time-out).
        clock: how long each worker has been seen as it is.
        broker: whether the pool's user and queues can be made.
        refused: what the API server said when it refused to store a Worker; empty when it is to be tried (again).
        licence: the seats that it gets of its service's licence; None when there is no licence.
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
    use: Use = field(default_factory=Use)
    clock: Clock = field(default_factory=Clock)
    broker: bool = True
    refused: str = ""
    licence: Allotment | None = None


@dataclass(frozen=True, slots=True)
class NewWorker:
    """A Worker to be created."""

    name: str
    site: str
    revision: str


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """What to do for a pool; the status says how things are once it is done.

    ``adopt``: Workers that do not say their revision, with the one that they are given. ``wake_seconds``: plan again
    after this time even if nothing happens.
    """

    status: WorkerPoolStatus
    backoff: Backoff
    create: tuple[NewWorker, ...] = ()
    drain: tuple[Worker, ...] = ()
    delete: tuple[Removal, ...] = ()
    adopt: tuple[tuple[Worker, str], ...] = ()
    wake_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class _Exits:
    """The workers that must go, by why; ``uids`` has those of all.

    ``look_again``: after how many seconds others may have to go.
    """

    surplus: list[Worker]
    late: list[Removal]
    moved: list[Removal]
    renewed: list[Worker]
    uids: frozenset[str]
    look_again: float | None = None


@dataclass(frozen=True, slots=True)
class _Means:
    """Where workers can be made now, or why they cannot; ``revisions`` of new workers, by site."""

    blocked: Blocked | None
    choice: Choice | None
    revisions: Mapping[str, str]


def plan_pool(given: PoolInput) -> PoolPlan:
    """The plan of a pool."""
    pool, previous, now = given.pool, given.previous, given.now
    if pool.metadata.deletion_timestamp is not None:
        return _plan_deletion(given)
    spec_changed = pool.metadata.generation != previous.observed_generation
    backoff = Backoff() if spec_changed else given.backoff
    if backoff.until is not None:
        backoff = backoff.recovered(max(_registered(filter(is_ready, given.workers)), default=None))
    force = part(given.workers, _deadline(given, backoff), given.clock)
    idleness = _idleness(given, force, spec_changed=spec_changed)
    desired = 0 if pool.spec.suspend or idleness.asleep else pool.spec.replicas

    means = _means(given)
    outdated = compare([*force.ready, *force.unready], means.revisions)
    exits = _exits(given, force, outdated, means.choice, backoff, desired)
    if force.failed or exits.late or exits.moved:
        backoff = backoff.failed(now)
    ready, unready = _without(force.ready, exits.uids), _without(force.unready, exits.uids)
    kept = [*ready, *unready] if exits.uids else [*force.ready, *force.unready]
    draining, ended, drains_end = _send_home(given, force, [*exits.surplus, *exits.renewed])

    missing = desired - len(kept)
    woken = was_asleep(previous) and not idleness.asleep
    start = begin_start(previous.start, spec_changed=spec_changed or woken, missing=missing, now=now)
    delete = (*force.failed, *exits.late, *exits.moved, *ended)
    # Their names are free: so a second plan from the same objects means the same Workers, and not others beside them.
    freed = frozenset(removal.worker.metadata.name for removal in delete)
    blocked, create = _fill(given, means, backoff, missing, freed)
    able = not backoff.waits(now) and (blocked is None or blocked.reason == Reason.WAITING_FOR_SEATS)

    failed = [*force.failed, *exits.late]
    held = len(given.workers)
    old = [worker for worker in outdated.workers if worker.metadata.uid not in exits.uids]
    counts = Counts(
        desired,
        ready=len(ready),
        starting=len(unready) + len(create),
        failed=len(failed),
        outdated=len(old),
        renewed=len(exits.renewed),
        asleep=idleness.asleep,
    )
    conditions = pool_conditions(pool, previous, counts, blocked, backoff, now)
    status = WorkerPoolStatus(
        observed_generation=pool.metadata.generation,
        replicas=held + len(create) - len(delete),
        ready_replicas=counts.ready,
        starting_replicas=counts.starting,
        failed_replicas=counts.failed,
        updated_replicas=len(kept) + len(create) - len(old),
        selector=f"{LABEL_POOL}={pool.metadata.name}",
        start=finish_start(start, kept, desired),
        last_active_time=idleness.last_active,
        failures=_failures(given, failed),
        activities=_activities(given, counts, exits, len(create), len(draining) + len(ended), spec_changed),
        licensed_replicas=licensed_replicas(given.licence, desired=desired, held=held, created=len(create), able=able),
        conditions=with_licence(conditions, given.licence, pool=pool, desired=desired, held=held, able=able, now=now),
    )
    wakes = [force.look_again, exits.look_again, *drains_end, seconds_until(now, [idleness.look_again])]
    if backoff.waits(now):
        wakes.append(seconds_until(now, [backoff.until]))
    elif (len(create) < missing and blocked is None) or len(force.late) > len(exits.late):
        wakes.append(0.0)
    return PoolPlan(
        status=status,
        backoff=backoff,
        create=tuple(create),
        drain=tuple(draining),
        delete=delete,
        adopt=tuple(outdated.unknown),
        wake_seconds=min((seconds for seconds in wakes if seconds is not None), default=None),
    )


def was_asleep(status: WorkerPoolStatus) -> bool:
    """Whether the pool slept because nobody used it, as its status says."""
    condition = find_condition(status.conditions, ConditionType.AVAILABLE)
    return condition is not None and condition.reason == Reason.IDLE


def _deadline(given: PoolInput, backoff: Backoff) -> float:
    """How long a worker may take until it registers: the longer the more rounds have failed, until one succeeds.

    A site that merely is slower than the deadline would never finish otherwise.
    """
    seconds = given.pool.spec.start.deadline_seconds or (
        given.service.service.spec.readiness_deadline_seconds if given.service else DEFAULT_DEADLINE_SECONDS
    )
    return seconds * min(1 + backoff.rounds, MOST_PATIENCE)


def _registered(workers: Iterable[Worker]) -> list[datetime]:
    return [worker.status.stages.registered for worker in workers if worker.status.stages.registered is not None]


def _idleness(given: PoolInput, force: Workforce, *, spec_changed: bool) -> Idleness:
    if given.pool.spec.idle_timeout_seconds is None:
        return Idleness()
    return plan_idleness(
        given.pool,
        given.previous,
        given.use,
        registered=_registered(force.ready),
        starting=any(map(is_starting, force.unready)) and not was_asleep(given.previous),
        spec_changed=spec_changed,
        now=given.now,
    )


def _exits(
    given: PoolInput,
    force: Workforce,
    outdated: Outdated,
    choice: Choice | None,
    backoff: Backoff,
    desired: int,
) -> _Exits:
    """Which workers must go, beside those that failed: too many, too late, waiting in vain, and outdated ones."""
    spec = given.pool.spec
    serving = len(force.ready) + len(force.unready)
    surplus = (
        victims([*force.ready, *force.unready], serving - desired, spec.scale_in, given.busy, outdated.uids)
        if serving > desired
        else []
    )
    going = {worker.metadata.uid for worker in surplus}
    if backoff.waits(given.now) or desired == 0:
        return _Exits(surplus, [], [], [], frozenset(going))
    few = most_unavailable(spec.rollout.max_unavailable, desired)
    late = [removal for removal in force.late if removal.worker.metadata.uid not in going][:few]
    going.update(removal.worker.metadata.uid for removal in late)
    moved: list[Removal] = []
    renewed: list[Worker] = []
    look_again: float | None = None
    if choice is not None:
        waiting = _without(force.unready, going)
        moved, look_again = stranded(waiting, choice, given.clock, most=few, missing=desired - serving + len(going))
        going.update(removal.worker.metadata.uid for removal in moved)
        serves, serves_not = replaceable(outdated, choice, going)
        gone_ready = sum(worker.metadata.uid in going for worker in force.ready) if surplus else 0
        budget = few - max(0, desired - (len(force.ready) - gone_ready)) - len(force.draining)
        renewed = [*serves_not, *victims(serves, budget, spec.scale_in, given.busy)]
        going.update(worker.metadata.uid for worker in renewed)
    return _Exits(surplus, late, moved, renewed, frozenset(going), look_again)


def _without(workers: list[Worker], uids: Container[str]) -> list[Worker]:
    return [worker for worker in workers if worker.metadata.uid not in uids]


def _send_home(
    given: PoolInput, force: Workforce, leaving: list[Worker]
) -> tuple[list[Worker], list[Removal], list[float]]:
    """Workers to be drained, workers to be ended now, and when to look again at those that drain."""
    policy = given.pool.spec.scale_in
    drain: list[Worker] = []
    ended: list[Removal] = []
    look_again: list[float] = []
    for worker in leaving:
        if is_ready(worker) and policy.drain_seconds > 0:
            drain.append(worker)
        else:
            ended.append(Removal(worker, Reason.SCALED))
    for worker in force.draining:
        seconds = drain_ends(worker, policy, given.drained, given.clock.seconds(worker))
        if seconds <= 0:
            ended.append(Removal(worker, Reason.SCALED))
        else:
            look_again.append(seconds)
    return drain, ended, look_again


def _means(given: PoolInput) -> _Means:
    """Whether workers can be made, and where."""
    obstacle, service = _obstacle(given), given.service
    if obstacle is not None or service is None:
        return _Means(obstacle, None, {})
    wanted = revisions(service, given.pool.spec.attributes, given.sites)
    choice = permitted_sites(given.pool, given.sites, service.service.spec.resources)
    blocked = None if choice.permitted else Blocked(choice.reason, choice.message)
    return _Means(blocked, choice, wanted)


def _fill(
    given: PoolInput, means: _Means, backoff: Backoff, missing: int, freed: frozenset[str]
) -> tuple[Blocked | None, list[NewWorker]]:
    """New workers for what is missing, or why there can be none."""
    blocked, choice = means.blocked, means.choice
    if blocked is not None or choice is None or missing <= 0 or backoff.waits(given.now):
        return blocked, []
    if given.licence is not None and (room := given.licence.seats - len(given.workers)) < missing:
        blocked = Blocked(
            Reason.WAITING_FOR_SEATS, f"no seats of licence {given.licence.licence} for {missing - room} more"
        )
        missing = room
    if missing <= 0:
        return blocked, []
    spread = given.pool.spec.placement.strategy == "Spread"
    sites = place(min(missing, MOST_CREATES), choice, spread=spread)
    taken = given.taken | ({worker.metadata.name for worker in given.workers} - freed)
    names = free_slots(given.pool.metadata.name, len(sites), taken)
    if len(sites) < min(missing, MOST_CREATES):
        full = ", ".join(state.name for state in choice.permitted)
        blocked = Blocked(Reason.MAX_WORKERS_REACHED, f"no room for {missing - len(sites)} more workers at: {full}")
    return blocked, [NewWorker(name, site, means.revisions[site]) for name, site in zip(names, sites, strict=True)]


def _obstacle(given: PoolInput) -> Blocked | None:
    """What keeps workers from being made at any site."""
    pool, service = given.pool, given.service
    if service is None or service.metadata.deletion_timestamp is not None:
        return Blocked(Reason.SERVICE_NOT_FOUND, f"SimulationService {pool.spec.service_ref.name} does not exist")
    if service.problem:
        return Blocked(Reason.INTERFACE_INVALID, f"SimulationService {service.metadata.name}: {service.problem}")
    if problem := values_problem(service, pool.spec.attributes):
        return Blocked(Reason.ATTRIBUTES_INVALID, problem)
    if given.refused:
        return Blocked(Reason.WORKERS_REFUSED, f"the API server refuses its workers: {given.refused}")
    if not given.broker:
        return Blocked(Reason.BROKER_UNREACHABLE, "the message broker cannot be reached")
    return None


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
            "updated_replicas": 0,
            "licensed_replicas": None if given.licence is None else len(given.workers),
            "conditions": pool_conditions(given.pool, given.previous, counts, blocked, given.backoff, given.now),
        }
    )
    return PoolPlan(status=status, backoff=given.backoff, delete=going)


def _failures(given: PoolInput, failed: Sequence[Removal]) -> list[PoolFailure]:
    new = [
        PoolFailure(
            time=given.now, worker=item.worker.metadata.name, reason=item.reason[:128], message=item.message[:1024]
        )
        for item in failed
    ]
    return [*given.previous.failures, *new][-MOST_FAILURES:]


def _activities(
    given: PoolInput, counts: Counts, exits: _Exits, created: int, ended: int, spec_changed: bool
) -> list[PoolActivity]:
    """What is worth remembering of this pass, after what was."""
    new: list[tuple[Reason, str]] = []
    previous, timeout = given.previous, given.pool.spec.idle_timeout_seconds
    if counts.asleep and not was_asleep(previous):
        new.append((Reason.IDLE, f"no action for {timeout} s: {len(given.workers)} workers are ended"))
    elif (created or ended) and (spec_changed or was_asleep(previous)) and len(given.workers) != counts.desired:
        new.append((Reason.SCALED, f"from {len(given.workers)} to {counts.desired} workers"))
    progressing = find_condition(previous.conditions, ConditionType.PROGRESSING)
    if counts.renewed and (progressing is None or progressing.reason == Reason.WORKERS_UPDATED):
        message = f"{counts.outdated + counts.renewed} workers are replaced: the service or the pool has changed"
        new.append((Reason.ROLLING_OUT, message))
    if exits.moved:
        message = f"{len(exits.moved)} workers go to another site, such as {exits.moved[0].worker.metadata.name}: "
        new.append((Reason.WORKERS_MOVED, message + exits.moved[0].message))
    made = [PoolActivity(time=given.now, reason=reason, message=message[:1024]) for reason, message in new]
    return [*previous.activities, *made][-MOST_ACTIVITIES:]
