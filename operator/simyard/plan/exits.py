# SPDX-License-Identifier: Apache-2.0
"""Choice of the workers that leave a pool in this pass, and the way in which they leave.

A worker leaves for one of six reasons, and there is one phase for each, in this order:

- failed: the worker cannot become ready any more;
- surplus: the pool has more workers than desired;
- late: the worker did not register in time;
- moved: the worker's site creates no machine for it, and another site has room;
- renewed: the worker is outdated;
- returned: the pool prefers another site.

Each phase skips the workers that an earlier phase has chosen. While a backoff runs, only failed and surplus workers
leave.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field

from simyard.api.names import Reason
from simyard.api.worker import Worker
from simyard.api.worker_pool import Placement
from simyard.plan.backoff import Backoff
from simyard.plan.placement import Choice, find_stranded
from simyard.plan.pool_input import PoolInput
from simyard.plan.rebalance import find_misplaced
from simyard.plan.rollout import Outdated, find_replaceable, parse_max_unavailable
from simyard.plan.scale_in import choose_victims, get_drain_seconds_left
from simyard.plan.worker import is_ready
from simyard.plan.workforce import Removal, Workforce
from simyard_adapter.wire import ACTIVE_SECONDS

MAX_EXITS_PER_PASS = 1000
"""Maximum number of failed, surplus, outdated and drained workers that one pass deletes.

The bound lets the operator see a changed spec before it deletes more workers. For workers that are late or wait for a
machine, ``maxUnavailable`` is the bound.
"""
REST_SECONDS = 1.5 * ACTIVE_SECONDS
"""A worker that reported no work for this time is idle, so the operator deletes it without draining."""


@dataclass(frozen=True, slots=True)
class Exits:
    """Workers that leave in this pass, by reason.

    Attributes:
        failed: Workers that failed or were lost.
        surplus: Workers above the desired number.
        late: Workers that did not register in time.
        moved: Workers whose site creates no machine for them now, while another site has room.
        renewed: Outdated workers that new workers replace.
        returned: Idle workers whose replacements the pool prefers to place at another site.
        uids: Uids of all these workers except the failed ones.
        look_again: Seconds until further workers may have to leave; None if this time is unknown.
        more: True if further workers must leave in the next pass.
    """

    failed: list[Removal]
    surplus: list[Worker]
    late: list[Removal] = field(default_factory=list)
    moved: list[Removal] = field(default_factory=list)
    renewed: list[Worker] = field(default_factory=list)
    returned: list[Worker] = field(default_factory=list)
    uids: frozenset[str] = frozenset()
    look_again: float | None = None
    more: bool = False


@dataclass(frozen=True, slots=True)
class Departures:
    """Decision which workers drain and which workers are deleted now.

    Attributes:
        drain: Workers that begin to drain.
        ended: Workers to delete now.
        look_again: Seconds until the next draining worker may be deleted; None if no worker keeps draining.
    """

    drain: list[Worker]
    ended: list[Removal]
    look_again: float | None


@dataclass(slots=True)
class _Scope:
    """State that the phases of :func:`plan_exits` share.

    Attributes:
        going: Uids of the workers that earlier phases have chosen, except the failed workers.
        left: Number of further workers that this pass may delete.
    """

    given: PoolInput
    force: Workforce
    outdated: Outdated
    backoff: Backoff
    desired: int
    going: set[str] = field(default_factory=set)
    left: int = MAX_EXITS_PER_PASS

    @property
    def serving(self) -> int:
        """Number of workers that are ready or starting."""
        return len(self.force.ready) + len(self.force.unready)

    @property
    def max_unavailable(self) -> int:
        """Maximum number of workers that may be missing or draining at the same time."""
        return parse_max_unavailable(self.given.pool.spec.rollout.max_unavailable, self.desired)

    def add(self, workers: Iterable[Worker]) -> None:
        """Record that a phase has chosen these workers."""
        self.going.update(worker.metadata.uid for worker in workers)


@dataclass(frozen=True, slots=True)
class _Allowance:
    """Numbers of ready workers that may leave within ``maxUnavailable``.

    Attributes:
        idle: Maximum number of idle workers; the pass deletes them without draining.
        draining: Maximum number of workers that may begin to drain.
    """

    idle: int
    draining: int


def plan_exits(
    given: PoolInput,
    force: Workforce,
    outdated: Outdated,
    choice: Choice | None,
    backoff: Backoff,
    desired: int,
) -> Exits:
    """Return the workers that must leave now, by reason."""
    scope = _Scope(given, force, outdated, backoff, desired)
    failed = _choose_failed(scope)
    surplus = _choose_surplus(scope)
    more = len(failed) < len(force.failed) or len(surplus) < scope.serving - desired
    if backoff.is_waiting(given.now) or desired == 0 or more:
        return Exits(failed, surplus, uids=frozenset(scope.going), more=more)
    late = _choose_late(scope)
    if choice is None:
        return Exits(failed, surplus, late, uids=frozenset(scope.going))
    moved, move_seconds = _choose_moved(scope, choice)
    allowance = _count_allowance(scope, surplus)
    renewed, more = _choose_renewed(scope, choice, allowance)
    returned, return_seconds = _choose_returned(scope, choice, allowance)
    look_again = min((seconds for seconds in (move_seconds, return_seconds) if seconds is not None), default=None)
    return Exits(failed, surplus, late, moved, renewed, returned, frozenset(scope.going), look_again, more)


def _choose_failed(scope: _Scope) -> list[Removal]:
    failed = scope.force.failed[:MAX_EXITS_PER_PASS]
    scope.left -= len(failed)
    return failed


def _choose_surplus(scope: _Scope) -> list[Worker]:
    force, count = scope.force, scope.serving - scope.desired
    if count <= 0:
        return []
    surplus = choose_victims(
        [*force.ready, *force.unready],
        min(count, scope.left),
        scope.given.pool.spec.scale_in,
        _find_working(scope.given),
        scope.outdated.uids,
    )
    scope.left -= len(surplus)
    scope.add(surplus)
    return surplus


def _choose_late(scope: _Scope) -> list[Removal]:
    late = [removal for removal in scope.force.late if removal.worker.metadata.uid not in scope.going]
    late = late[: scope.max_unavailable]
    scope.add(removal.worker for removal in late)
    return late


def _choose_moved(scope: _Scope, choice: Choice) -> tuple[list[Removal], float | None]:
    """Return the workers that move to a site with room, and the seconds until further workers may have to move."""
    given = scope.given
    moved, look_again = find_stranded(
        exclude_workers(scope.force.unready, scope.going),
        choice,
        given.clock,
        most=scope.max_unavailable,
        missing=scope.desired - scope.serving + len(scope.going),
        stay=choice.away if given.pool.spec.placement.site_failure == "Wait" else (),
    )
    scope.add(removal.worker for removal in moved)
    return moved, look_again


def _count_allowance(scope: _Scope, surplus: list[Worker]) -> _Allowance:
    """Return the numbers of ready workers that may leave in a rollout or for a preferred site.

    A desired worker for which the licence grants no seat does not count as unavailable. So a pool that waits for seats
    can still roll out a new revision.
    """
    given, force = scope.given, scope.force
    leaving = sum(worker.metadata.uid in scope.going for worker in force.ready) if surplus else 0
    possible = scope.desired if given.licence is None else min(scope.desired, given.licence.seats)
    spare = scope.max_unavailable - max(0, possible - (len(force.ready) - leaving))
    return _Allowance(idle=spare, draining=spare - len(force.draining))


def _choose_renewed(scope: _Scope, choice: Choice, allowance: _Allowance) -> tuple[list[Worker], bool]:
    """Return the outdated workers that leave, and whether further outdated workers must leave in the next pass.

    The function chooses idle workers before working ones. While a worker finishes a long action, the pool can already
    have workers of the new revision.
    """
    given, policy = scope.given, scope.given.pool.spec.scale_in
    ready, unready = find_replaceable(scope.outdated, choice, scope.going)
    idle = choose_victims([worker for worker in ready if is_resting(worker, given)], allowance.idle, policy, ())
    others = exclude_workers(ready, frozenset(worker.metadata.uid for worker in idle))
    count = min(allowance.draining, allowance.idle - len(idle))
    working = choose_victims(others, count, policy, _find_working(given))
    renewed = [*unready, *idle, *working]
    more = len(renewed) > scope.left
    renewed = renewed[: scope.left]
    scope.add(renewed)
    return renewed, more


def _choose_returned(scope: _Scope, choice: Choice, allowance: _Allowance) -> tuple[list[Worker], float | None]:
    """Return the idle workers that move to a preferred site, and the seconds until a busy worker may be idle.

    Workers move only in a stable pool: it has its desired number of workers, no worker leaves, starts or is outdated,
    and no backoff is left.
    """
    given, force, placement = scope.given, scope.force, scope.given.pool.spec.placement
    changing = scope.going or scope.outdated.uids or force.unready or scope.backoff.rounds
    if changing or scope.serving != scope.desired or not _may_rebalance(placement):
        return [], None
    misplaced = find_misplaced(force.ready, choice, spread=placement.strategy == "Spread")
    resting = [worker for worker in misplaced if is_resting(worker, given)]
    returned = choose_victims(resting, allowance.draining, given.pool.spec.scale_in, ())
    scope.add(returned)
    return returned, REST_SECONDS if misplaced and not returned else None


def plan_departures(given: PoolInput, force: Workforce, exits: Exits) -> Departures:
    """Return the leaving workers that begin to drain, and the leaving and draining workers to delete now."""
    policy = given.pool.spec.scale_in
    drain: list[Worker] = []
    ended: list[Removal] = []
    look_again: float | None = None
    for worker in (*exits.surplus, *exits.renewed, *exits.returned):
        if is_ready(worker) and policy.drain_seconds != 0 and not is_resting(worker, given):
            drain.append(worker)
        else:
            ended.append(Removal(worker, Reason.SCALED))
    left = MAX_EXITS_PER_PASS - len(exits.failed) - len(ended)
    for worker in force.draining:
        waited = given.clock.get_seconds(worker)
        left_seconds = get_drain_seconds_left(
            worker, policy, given.drained, given.busy, waited, given.default_drain_seconds
        )
        seconds = max(0.0, left_seconds)
        if seconds == 0 and left > 0:
            ended.append(Removal(worker, Reason.SCALED))
            left -= 1
        elif look_again is None or seconds < look_again:
            look_again = seconds
    return Departures(drain, ended, look_again)


def is_resting(worker: Worker, given: PoolInput) -> bool:
    """Return whether a ready worker certainly runs no action, so that it needs no draining.

    An adapter reports when it begins a Sync request, and then every ``ACTIVE_SECONDS`` while it works.
    """
    uid, clock = worker.metadata.uid, given.clock
    quiet = min(given.heard_seconds, clock.get_seconds(worker), clock.now - given.active.get(uid, float("-inf")))
    return uid not in given.busy and quiet >= REST_SECONDS


def _may_rebalance(placement: Placement) -> bool:
    """Return whether workers may move to preferred sites.

    With the strategy Fastest they may not, because each measured start can change the order of the sites.
    """
    return placement.rebalance == "WhenIdle" and placement.strategy != "Fastest"


def _find_working(given: PoolInput) -> frozenset[str]:
    """Return the uids of the workers that run a ServiceAction, or reported work within ``REST_SECONDS``."""
    recently = given.clock.now - REST_SECONDS
    return given.busy | {uid for uid, time in given.active.items() if time > recently}


def exclude_workers(workers: list[Worker], uids: Container[str]) -> list[Worker]:
    """Return the workers whose uid is not in ``uids``."""
    return [worker for worker in workers if worker.metadata.uid not in uids]
