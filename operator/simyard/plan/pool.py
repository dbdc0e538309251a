"""What a pool needs now: which workers to make, to drain and to delete, and its status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from simyard.api.base import find_condition
from simyard.api.names import LABEL_POOL, ConditionType, Reason
from simyard.api.worker import Worker
from simyard.api.worker_pool import PoolActivity, PoolFailure, WorkerPoolStatus
from simyard.plan.backoff import Backoff
from simyard.plan.exits import MOST_EXITS, Exits, plan_exits, send_home, without
from simyard.plan.idleness import Idleness, plan_idleness
from simyard.plan.licence import licensed_replicas, with_licence
from simyard.plan.placement import ROOM_SECONDS, Choice, permitted_sites, place, waited_for
from simyard.plan.pool_conditions import Blocked, Counts, pool_conditions
from simyard.plan.pool_input import PoolInput
from simyard.plan.replacement import is_starting
from simyard.plan.rollout import compare, revisions
from simyard.plan.rotation import plan_credentials
from simyard.plan.service import values_problem
from simyard.plan.slots import free_slots
from simyard.plan.start import begin_start, finish_start
from simyard.plan.texts import count_is, count_of
from simyard.plan.times import seconds_until
from simyard.plan.worker import is_ready
from simyard.plan.workforce import Removal, Workforce, part

MOST_CREATES = 500
"""Workers made in one pass: a larger pool takes several, so that a change of mind is heard in between."""

MOST_FAILURES = 10
MOST_ACTIVITIES = 20
DEFAULT_DEADLINE_SECONDS = 600.0
MOST_PATIENCE = 10
"""The deadline grows up to so many times."""
MOVED_SECONDS = 1.0
"""After workers went to another site, those that wait like them are looked at again."""


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
    after this time even if nothing happens. ``waits_for_room``: plan again when a place at a site becomes free.
    """

    status: WorkerPoolStatus
    backoff: Backoff
    create: tuple[NewWorker, ...] = ()
    drain: tuple[Worker, ...] = ()
    delete: tuple[Removal, ...] = ()
    adopt: tuple[tuple[Worker, str], ...] = ()
    wake_seconds: float | None = None
    waits_for_room: bool = False


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
    means = _means(given)
    patience: Mapping[str, float | None] = {}
    if means.choice is not None and pool.spec.placement.site_failure == "Wait":
        patience = waited_for(means.choice, given.sites, now)
    force = part(given.workers, _deadline(given, backoff), given.clock, patience)
    idleness = _idleness(given, force, spec_changed=spec_changed)
    desired = 0 if pool.spec.suspend or idleness.asleep else pool.spec.replicas

    outdated = compare([*force.ready, *force.unready], means.revisions)
    exits = plan_exits(given, force, outdated, means.choice, backoff, desired)
    failing = len(exits.failed) < len(force.failed)
    makes = backoff  # successors of those that only move need not wait: nothing failed
    if not failing and (exits.failed or exits.late or exits.moved):
        backoff = backoff.failed(now)
        makes = backoff if exits.failed or exits.late else makes
    ready, unready = without(force.ready, exits.uids), without(force.unready, exits.uids)
    kept = [*ready, *unready] if exits.uids else [*force.ready, *force.unready]
    home = send_home(given, force, exits)

    # Workers that fail together are one round: it is over, and successors are made, when all of them are gone.
    missing = 0 if failing else desired - len(kept)
    woken = was_asleep(previous) and not idleness.asleep
    start = begin_start(previous.start, spec_changed=spec_changed or woken, missing=missing, now=now)
    delete = (*exits.failed, *exits.late, *exits.moved, *home.ended)
    # Their names are free: so a second plan from the same objects means the same Workers, and not others beside them.
    freed = frozenset(removal.worker.metadata.name for removal in delete)
    blocked, create = _fill(given, means, makes, desired, missing, freed)
    able = not backoff.waits(now) and (blocked is None or blocked.reason == Reason.WAITING_FOR_SEATS)

    failed = [*exits.failed, *exits.late]
    backoff = replace(backoff, failures=backoff.failures + len(failed))
    failures = _failures(given, failed)
    held = len(given.workers)
    old = [worker for worker in outdated.workers if worker.metadata.uid not in exits.uids]
    counts = Counts(
        desired,
        ready=len(ready),
        starting=len(unready) + len(create),
        failed=max(len(force.failed) + len(exits.late), min(backoff.failures, max(0, desired - len(ready)))),
        last_failure=f"{failures[-1].reason} {failures[-1].message}".strip() if failures else "",
        outdated=len(old),
        renewed=len(exits.renewed),
        asleep=idleness.asleep,
    )
    conditions = pool_conditions(pool, previous, counts, blocked, backoff, now)
    credentials, rotation = plan_credentials(
        previous.broker_credentials,
        worker_left=given.worker_left,
        now=now,
        rotate_after_seconds=given.rotate_after_seconds,
    )
    status = WorkerPoolStatus(
        observed_generation=pool.metadata.generation,
        replicas=held + len(create) - len(delete),
        ready_replicas=counts.ready,
        starting_replicas=counts.starting,
        failed_replicas=counts.failed,
        updated_replicas=len(kept) + len(create) - len(old),
        selector=f"{LABEL_POOL}={pool.metadata.name}",
        start=finish_start(start, kept, desired),
        broker_credentials=credentials,
        last_active_time=idleness.last_active,
        failures=failures,
        activities=_activities(given, counts, exits, len(create), len(home.drain) + len(home.ended), spec_changed),
        licensed_replicas=licensed_replicas(given.licence, desired=desired, held=held, created=len(create), able=able),
        conditions=with_licence(conditions, given.licence, pool=pool, desired=desired, held=held, able=able, now=now),
    )
    adopt = tuple(outdated.unknown[:MOST_EXITS])
    waits_for_room = not backoff.waits(now) and len(create) < missing and _may_find_room(blocked, means.choice)
    wakes = [force.look_again, exits.look_again, home.look_again, idleness.look_again, rotation, *patience.values()]
    if waits_for_room:
        wakes.append(ROOM_SECONDS)
    if exits.more or len(adopt) < len(outdated.unknown):
        wakes.append(0.0)
    elif backoff.waits(now):
        wakes.append(seconds_until(now, [backoff.until]))
    elif exits.moved:
        wakes.append(MOVED_SECONDS)
    elif (len(create) == MOST_CREATES and blocked is None) or len(force.late) > len(exits.late):
        wakes.append(0.0)
    return PoolPlan(
        status=status,
        backoff=backoff,
        create=tuple(create),
        drain=tuple(home.drain),
        delete=delete,
        adopt=adopt,
        wake_seconds=min((seconds for seconds in wakes if seconds is not None), default=None),
        waits_for_room=waits_for_room,
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
        asleep=was_asleep(given.previous),
        starting=any(map(is_starting, force.unready)) and not was_asleep(given.previous),
        spec_changed=spec_changed,
        now=given.now,
    )


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
    given: PoolInput, means: _Means, backoff: Backoff, desired: int, missing: int, freed: frozenset[str]
) -> tuple[Blocked | None, list[NewWorker]]:
    """New workers for what is missing, or why there can be none."""
    blocked, choice = means.blocked, means.choice
    if blocked is not None or choice is None or missing <= 0 or backoff.waits(given.now):
        return blocked, []
    if given.licence is not None and (room := given.licence.seats - len(given.workers)) < missing:
        # Where the seats suffice, those that are missing are held by the pool's own workers that are on their way out.
        if given.licence.refusal is not None:
            blocked = Blocked(*given.licence.refusal)
        elif (lacking := desired - given.licence.seats) > 0:
            text = f"no seats of licence {given.licence.licence} for {min(lacking, missing - room)} more"
            blocked = Blocked(Reason.WAITING_FOR_SEATS, text)
        missing = room
    if missing <= 0:
        return blocked, []
    spread = given.pool.spec.placement.strategy == "Spread"
    own = Counter(worker.spec.site for worker in given.workers) if spread else None
    sites = place(min(missing, MOST_CREATES), choice, own)
    taken = given.taken | ({worker.metadata.name for worker in given.workers} - freed)
    names = free_slots(given.pool.metadata.name, len(sites), taken)
    if len(sites) < min(missing, MOST_CREATES):
        full = ", ".join(state.name for state in choice.permitted)
        blocked = Blocked(
            Reason.MAX_WORKERS_REACHED, f"no room for {count_of(missing - len(sites), 'more worker')} at: {full}"
        )
    return blocked, [NewWorker(name, site, means.revisions[site]) for name, site in zip(names, sites, strict=True)]


def _may_find_room(blocked: Blocked | None, choice: Choice | None) -> bool:
    """Whether workers cannot be made for lack of room, which ends without an object that says so."""
    why = (Reason.MAX_WORKERS_REACHED, Reason.NO_SITE_AVAILABLE, Reason.SITE_NOT_FOUND)
    return blocked is not None and blocked.reason in why and choice is not None and choice.may_change


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
    if given.broker_problem:
        return Blocked(Reason.BROKER_UNREACHABLE, given.broker_problem)
    return None


def _plan_deletion(given: PoolInput) -> PoolPlan:
    alive = [worker for worker in given.workers if worker.metadata.deletion_timestamp is None]
    going = tuple(Removal(worker, Reason.TERMINATING) for worker in alive[:MOST_EXITS])
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
    wakes = 0.0 if len(going) < len(alive) else None
    return PoolPlan(status=status, backoff=given.backoff, delete=going, wake_seconds=wakes)


def _failures(given: PoolInput, failed: Sequence[Removal]) -> list[PoolFailure]:
    new = [
        PoolFailure(
            time=given.now, worker=item.worker.metadata.name, reason=item.reason[:128], message=item.message[:1024]
        )
        for item in failed
    ]
    return [*given.previous.failures, *new][-MOST_FAILURES:]


def _activities(
    given: PoolInput, counts: Counts, exits: Exits, created: int, ended: int, spec_changed: bool
) -> list[PoolActivity]:
    """What is worth remembering of this pass, after what was."""
    new: list[tuple[Reason, str]] = []
    previous, timeout = given.previous, given.pool.spec.idle_timeout_seconds
    if counts.asleep and not was_asleep(previous):
        new.append((Reason.IDLE, f"no action for {timeout} s: {count_is(len(given.workers), 'worker')} ended"))
    elif (created or ended) and (spec_changed or was_asleep(previous)) and len(given.workers) != counts.desired:
        new.append((Reason.SCALED, f"from {len(given.workers)} to {count_of(counts.desired, 'worker')}"))
    progressing = find_condition(previous.conditions, ConditionType.PROGRESSING)
    if counts.renewed and (progressing is None or progressing.reason == Reason.WORKERS_UPDATED):
        replaced = count_is(counts.outdated + counts.renewed, "worker")
        message = f"{replaced} replaced: the service or the pool has changed"
        new.append((Reason.ROLLING_OUT, message))
    if exits.moved:
        moved = count_is(len(exits.moved), "worker")
        message = f"{moved} sent to another site, such as {exits.moved[0].worker.metadata.name}: "
        new.append((Reason.WORKERS_MOVED, message + exits.moved[0].message))
    if exits.returned:
        message = f"{count_is(len(exits.returned), 'worker')} sent to a site that the pool prefers, such as "
        new.append((Reason.WORKERS_RETURNED, message + exits.returned[0].metadata.name))
    made = [PoolActivity(time=given.now, reason=reason, message=message[:1024]) for reason, message in new]
    return [*previous.activities, *made][-MOST_ACTIVITIES:]
