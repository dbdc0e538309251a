# SPDX-License-Identifier: Apache-2.0
"""Plan of a pool: the Workers to create, to drain and to delete, and the pool's status.

The plan is a pure function of :class:`~simyard.plan.pool_input.PoolInput`. Each phase is a function that returns one
frozen part of the plan. Later phases read the parts that earlier phases returned. The parts are:

- the scene: the observed workers, and the desired number of workers;
- the leaving: the workers that leave in this pass;
- the creation: the workers that this pass creates;
- the counts and the status.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from simyard.api.names import LABEL_POOL, Reason
from simyard.api.worker import Worker
from simyard.api.worker_pool import BrokerCredentials, PoolStart, WorkerPoolStatus
from simyard.plan.backoff import Backoff
from simyard.plan.creation import (
    MAX_CREATES_PER_PASS,
    NewWorker,
    Sources,
    create_workers,
    find_sources,
    may_find_room,
)
from simyard.plan.exits import (
    MAX_EXITS_PER_PASS,
    Departures,
    Exits,
    exclude_workers,
    plan_departures,
    plan_exits,
)
from simyard.plan.idleness import Idleness, plan_idleness, was_asleep
from simyard.plan.licence import add_licence_condition, count_licensed_replicas
from simyard.plan.lost_workers import is_starting
from simyard.plan.placement import ROOM_CHECK_SECONDS, find_awaited_sites
from simyard.plan.pool_conditions import Blocked, Counts, plan_pool_conditions
from simyard.plan.pool_history import add_activities, add_failures
from simyard.plan.pool_input import PoolInput
from simyard.plan.rollout import Outdated, find_outdated
from simyard.plan.rotation import plan_credentials
from simyard.plan.start import begin_start, finish_start
from simyard.plan.times import get_seconds_until
from simyard.plan.worker import is_ready
from simyard.plan.workforce import Removal, Workforce, split_workers

DEFAULT_DEADLINE_SECONDS = 600.0
MAX_DEADLINE_FACTOR = 10
"""Maximum factor by which failed rounds of replacements lengthen the registration deadline."""
MOVED_SECONDS = 1.0
"""Delay of the next pass after workers moved to another site; in that pass, further workers may move."""


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """Changes to a pool's Workers, and the status of the pool after these changes.

    Attributes:
        adopt: Workers without a revision, each with the revision that it gets.
        wake_seconds: Seconds until the next pass, unless a change causes an earlier pass; None: only a change causes a
            pass.
        waits_for_room: True if the pool needs another pass when a place at a site becomes free.
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
class _Scene:
    """Observed state of a pool, and its desired number of workers.

    Attributes:
        backoff: Backoff before this pass. A changed spec, or a worker that became ready, has reset it.
        patience: Sites for whose disconnected workers the pool still waits, with the seconds that are left.
    """

    given: PoolInput
    spec_changed: bool
    backoff: Backoff
    sources: Sources
    patience: Mapping[str, float | None]
    force: Workforce
    idleness: Idleness
    outdated: Outdated
    desired: int


@dataclass(frozen=True, slots=True)
class _Leaving:
    """Workers that leave the pool in this pass, and workers that stay.

    Attributes:
        ready: Ready workers that stay.
        unready: Starting or disconnected workers that stay.
        failing: True if this pass cannot delete all failed workers.
        creation_backoff: Backoff that delays new workers. Workers that move to another site do not extend it.
        backoff: Backoff after this pass.
    """

    exits: Exits
    departures: Departures
    ready: list[Worker]
    unready: list[Worker]
    failing: bool
    creation_backoff: Backoff
    backoff: Backoff

    @property
    def delete(self) -> tuple[Removal, ...]:
        """Workers to delete now."""
        return (*self.exits.failed, *self.exits.late, *self.exits.moved, *self.departures.ended)

    @property
    def failures(self) -> list[Removal]:
        """Workers that leave because they failed."""
        return [*self.exits.failed, *self.exits.late]


@dataclass(frozen=True, slots=True)
class _Creation:
    """Workers that this pass creates.

    Attributes:
        missing: Number of workers by which the pool is below its desired number.
        able: True if the pool could use seats of a licence now.
    """

    missing: int
    start: PoolStart | None
    blocked: Blocked | None
    workers: list[NewWorker]
    able: bool


def plan_pool(given: PoolInput) -> PoolPlan:
    """Return the plan of a pool."""
    if given.pool.metadata.deletion_timestamp is not None:
        return _plan_deletion(given)
    scene = _observe(given)
    leaving = _plan_leaving(scene)
    creation = _plan_creation(scene, leaving)
    counts = _count(scene, leaving, creation)
    credentials, rotation_seconds = _plan_credentials(given)
    status = _plan_status(scene, leaving, creation, counts, credentials)
    waits_for_room = _waits_for_room(scene, leaving, creation)
    return PoolPlan(
        status=status,
        backoff=leaving.backoff,
        create=tuple(creation.workers),
        drain=tuple(leaving.departures.drain),
        delete=leaving.delete,
        adopt=tuple(scene.outdated.unknown[:MAX_EXITS_PER_PASS]),
        wake_seconds=_plan_wake(scene, leaving, creation, rotation_seconds, waits_for_room=waits_for_room),
        waits_for_room=waits_for_room,
    )


def _plan_deletion(given: PoolInput) -> PoolPlan:
    alive = [worker for worker in given.workers if worker.metadata.deletion_timestamp is None]
    going = tuple(Removal(worker, Reason.TERMINATING) for worker in alive[:MAX_EXITS_PER_PASS])
    counts = Counts(desired=0, ready=0, starting=0, failed=0)
    left = len(given.workers) - len(going)
    blocked = Blocked(Reason.TERMINATING, "the pool's workers are being deleted")
    status = given.previous.model_copy(
        update={
            "observed_generation": given.pool.metadata.generation,
            "replicas": left,
            "ready_replicas": 0,
            "starting_replicas": 0,
            "failed_replicas": 0,
            "updated_replicas": 0,
            "licensed_replicas": None if given.licence is None else len(given.workers),
            "conditions": plan_pool_conditions(given.pool, given.previous, counts, blocked, given.backoff, given.now),
        }
    )
    wakes = 0.0 if len(going) < len(alive) else None
    return PoolPlan(status=status, backoff=given.backoff, delete=going, wake_seconds=wakes)


def _observe(given: PoolInput) -> _Scene:
    """Return the observed state of the pool, and its desired number of workers."""
    pool = given.pool
    spec_changed = pool.metadata.generation != given.previous.observed_generation
    backoff = Backoff() if spec_changed else given.backoff
    if backoff.until is not None:
        newest_ready = max(_get_registration_times(filter(is_ready, given.workers)), default=None)
        backoff = backoff.record_ready(newest_ready)
    sources = find_sources(given)
    patience: Mapping[str, float | None] = {}
    if sources.choice is not None and pool.spec.placement.site_failure == "Wait":
        patience = find_awaited_sites(sources.choice, given.sites, given.now)
    force = split_workers(given.workers, _get_deadline_seconds(given, backoff), given.clock, patience)
    idleness = _plan_idleness(given, force, spec_changed=spec_changed)
    return _Scene(
        given=given,
        spec_changed=spec_changed,
        backoff=backoff,
        sources=sources,
        patience=patience,
        force=force,
        idleness=idleness,
        outdated=find_outdated([*force.ready, *force.unready], sources.revisions),
        desired=0 if pool.spec.suspend or idleness.asleep else max(pool.spec.replicas, given.demand),
    )


def _plan_leaving(scene: _Scene) -> _Leaving:
    """Return the workers that leave, and the backoff after their failures."""
    given, force = scene.given, scene.force
    exits = plan_exits(given, force, scene.outdated, scene.sources.choice, scene.backoff, scene.desired)
    failing = len(exits.failed) < len(force.failed)
    backoff = creation_backoff = scene.backoff
    if not failing and (exits.failed or exits.late or exits.moved):
        backoff = backoff.record_failure(given.now)
        if exits.failed or exits.late:
            creation_backoff = backoff
    failures = len(exits.failed) + len(exits.late)
    return _Leaving(
        exits=exits,
        departures=plan_departures(given, force, exits),
        ready=exclude_workers(force.ready, exits.uids),
        unready=exclude_workers(force.unready, exits.uids),
        failing=failing,
        creation_backoff=creation_backoff,
        backoff=replace(backoff, failures=backoff.failures + failures),
    )


def _plan_creation(scene: _Scene, leaving: _Leaving) -> _Creation:
    """Return the workers to create.

    Workers that fail together are one round. The pool creates replacements only after it has deleted all failed workers
    of the round. Replacements use the names of the deleted workers. So a second plan from the same objects creates the
    same Workers, and no additional ones.
    """
    given = scene.given
    missing = 0 if leaving.failing else scene.desired - len(leaving.ready) - len(leaving.unready)
    woken = was_asleep(given.previous) and not scene.idleness.asleep
    start = begin_start(given.previous.start, spec_changed=scene.spec_changed or woken, missing=missing, now=given.now)
    freed = frozenset(removal.worker.metadata.name for removal in leaving.delete)
    blocked, workers = create_workers(given, scene.sources, leaving.creation_backoff, scene.desired, missing, freed)
    waits_for_seats_only = blocked is None or blocked.reason == Reason.WAITING_FOR_SEATS
    able = not leaving.backoff.is_waiting(given.now) and waits_for_seats_only
    return _Creation(missing, start, blocked, workers, able)


def _count(scene: _Scene, leaving: _Leaving, creation: _Creation) -> Counts:
    failures = add_failures(scene.given, leaving.failures)
    lacking = max(0, scene.desired - len(leaving.ready))
    return Counts(
        scene.desired,
        ready=len(leaving.ready),
        starting=len(leaving.unready) + len(creation.workers),
        failed=max(len(scene.force.failed) + len(leaving.exits.late), min(leaving.backoff.failures, lacking)),
        last_failure=f"{failures[-1].reason} {failures[-1].message}".strip() if failures else "",
        outdated=sum(worker.metadata.uid not in leaving.exits.uids for worker in scene.outdated.workers),
        renewed=len(leaving.exits.renewed),
        asleep=scene.idleness.asleep,
    )


def _plan_credentials(given: PoolInput) -> tuple[BrokerCredentials | None, float | None]:
    """Return the credentials of the pool's broker user, and the seconds until they change; None if none is due."""
    return plan_credentials(
        given.previous.broker_credentials,
        worker_left=given.worker_left,
        now=given.now,
        rotate_after_seconds=given.rotate_after_seconds,
    )


def _plan_status(
    scene: _Scene, leaving: _Leaving, creation: _Creation, counts: Counts, credentials: BrokerCredentials | None
) -> WorkerPoolStatus:
    """Return the status that describes the pool after the changes of this pass."""
    given, desired = scene.given, scene.desired
    pool, held, created = given.pool, len(given.workers), len(creation.workers)
    ended = len(leaving.departures.drain) + len(leaving.departures.ended)
    conditions = plan_pool_conditions(pool, given.previous, counts, creation.blocked, leaving.backoff, given.now)
    return WorkerPoolStatus(
        observed_generation=pool.metadata.generation,
        replicas=held + created - len(leaving.delete),
        ready_replicas=counts.ready,
        starting_replicas=counts.starting,
        failed_replicas=counts.failed,
        updated_replicas=counts.ready + counts.starting - counts.outdated,
        selector=f"{LABEL_POOL}={pool.metadata.name}",
        start=finish_start(creation.start, [*leaving.ready, *leaving.unready], desired),
        broker_credentials=credentials,
        last_active_time=scene.idleness.last_active,
        failures=add_failures(given, leaving.failures),
        activities=add_activities(
            given, counts, leaving.exits, created=created, ended=ended, spec_changed=scene.spec_changed
        ),
        licensed_replicas=count_licensed_replicas(
            given.licence, desired=desired, held=held, created=created, able=creation.able
        ),
        conditions=add_licence_condition(
            conditions, given.licence, pool=pool, desired=desired, held=held, able=creation.able, now=given.now
        ),
    )


def _waits_for_room(scene: _Scene, leaving: _Leaving, creation: _Creation) -> bool:
    if leaving.backoff.is_waiting(scene.given.now) or len(creation.workers) >= creation.missing:
        return False
    return may_find_room(creation.blocked, scene.sources.choice)


def _plan_wake(
    scene: _Scene, leaving: _Leaving, creation: _Creation, rotation_seconds: float | None, *, waits_for_room: bool
) -> float | None:
    """Return the seconds until the next pass; None if only a change of an object causes a pass."""
    exits, now = leaving.exits, scene.given.now
    wakes = [
        scene.force.look_again,
        exits.look_again,
        leaving.departures.look_again,
        scene.idleness.look_again,
        rotation_seconds,
        *scene.patience.values(),
    ]
    if waits_for_room:
        wakes.append(ROOM_CHECK_SECONDS)
    creates_more = len(creation.workers) == MAX_CREATES_PER_PASS and creation.blocked is None
    if exits.more or len(scene.outdated.unknown) > MAX_EXITS_PER_PASS:
        wakes.append(0.0)
    elif leaving.backoff.is_waiting(now):
        wakes.append(get_seconds_until(now, [leaving.backoff.until]))
    elif exits.moved:
        wakes.append(MOVED_SECONDS)
    elif creates_more or len(scene.force.late) > len(exits.late):
        wakes.append(0.0)
    return min((seconds for seconds in wakes if seconds is not None), default=None)


def _get_deadline_seconds(given: PoolInput, backoff: Backoff) -> float:
    """Return the seconds in which a worker must register.

    The time grows with each failed round until a worker becomes ready. Otherwise, no worker would ever become ready at
    a site that is slower than the deadline.
    """
    seconds = given.pool.spec.start.deadline_seconds or (
        given.service.service.spec.readiness_deadline_seconds if given.service else DEFAULT_DEADLINE_SECONDS
    )
    return seconds * min(1 + backoff.rounds, MAX_DEADLINE_FACTOR)


def _get_registration_times(workers: Iterable[Worker]) -> list[datetime]:
    return [worker.status.stages.registered for worker in workers if worker.status.stages.registered is not None]


def _plan_idleness(given: PoolInput, force: Workforce, *, spec_changed: bool) -> Idleness:
    if given.pool.spec.idle_timeout_seconds is None:
        return Idleness()
    asleep = was_asleep(given.previous)
    return plan_idleness(
        given.pool,
        given.previous,
        given.use,
        registered=_get_registration_times(force.ready),
        asleep=asleep,
        starting=any(map(is_starting, force.unready)) and not asleep,
        spec_changed=spec_changed,
        now=given.now,
    )
