# SPDX-License-Identifier: Apache-2.0
"""Choice of the workers that leave a pool in this pass, and the way in which they leave.

A worker leaves for one of six reasons, and there is one phase for each, in this order:

- failed: the worker cannot become ready any more;
- surplus: the pool has more workers than desired;
- late: the worker did not register in time;
- moved: the worker waits in vain for a machine;
- renewed: the worker is outdated;
- returned: the pool prefers another site.

Each phase leaves out the workers that an earlier one has chosen. While a backoff runs, only failed and surplus workers
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

The bound lets the operator notice a changed spec in between. Workers that are late, or wait for a machine, are bounded
by ``maxUnavailable``.
"""
REST_SECONDS = 1.5 * ACTIVE_SECONDS
"""A worker that reported no work for this time is idle: it needs no draining."""


@dataclass(frozen=True, slots=True)
class Exits:
    """Workers that leave in this pass, by reason.

    Attributes:
        failed: Workers that failed or were lost.
        surplus: Workers above the desired number.
        late: Workers that did not register in time.
        moved: Workers that wait for a machine at a site without room, while another site has room.
        renewed: Outdated workers.
        returned: Idle workers that the pool prefers to have at another site.
        uids: Uids of all these workers except the failed ones.
        look_again: Seconds after which other workers may have to leave; None if no time is known.
        more: True if other workers must leave as soon as these workers have left.
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
    """Way in which the chosen workers leave.

    Attributes:
        drain: Workers to be drained.
        ended: Workers to be deleted now.
        look_again: Seconds until the next draining worker may be deleted; None if no worker drains.
    """

    drain: list[Worker]
    ended: list[Removal]
    look_again: float | None


@dataclass(slots=True)
class _Scope:
    """State that the phases of :func:`plan_exits` share.

    Attributes:
        going: Uids of the workers that earlier phases have chosen, without the failed ones.
        left: Number of workers that may still leave in this pass.
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
        """Number of workers that may be missing or draining at a time."""
        return parse_max_unavailable(self.given.pool.spec.rollout.max_unavailable, self.desired)

    def add(self, workers: Iterable[Worker]) -> None:
        """Add workers to the leaving workers."""
        self.going.update(worker.metadata.uid for worker in workers)


@dataclass(frozen=True, slots=True)
class _Allowance:
    """Numbers of idle and of working ready workers that may leave within ``maxUnavailable``."""

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
    """Return the workers that wait in vain for a machine, and the seconds until others may have waited long enough."""
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
    """Return the numbers of ready workers that may leave for a rollout or for a preferred site.

    Workers without a seat of the licence do not count as unavailable, so a pool that waits for seats can still roll
    out.
    """
    given, force = scope.given, scope.force
    leaving = sum(worker.metadata.uid in scope.going for worker in force.ready) if surplus else 0
    possible = scope.desired if given.licence is None else min(scope.desired, given.licence.seats)
    spare = scope.max_unavailable - max(0, possible - (len(force.ready) - leaving))
    return _Allowance(idle=spare, draining=spare - len(force.draining))


def _choose_renewed(scope: _Scope, choice: Choice, allowance: _Allowance) -> tuple[list[Worker], bool]:
    """Return the outdated workers to be replaced, and whether there are more than this pass may delete.

    Idle workers are replaced while other workers still run long actions, so old and new workers run side by side.
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
    """Return the idle workers that move to a preferred site, and the seconds until a busy one may have become idle.

    Workers move only while the pool is at rest: no worker leaves, starts or is outdated, and no failure was recent.
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
    """Return the workers to drain and the workers to delete now, among leaving and draining ones."""
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
    """Return whether a ready worker certainly runs nothing, so that it needs no draining.

    A working adapter reports at the begin of a Sync request, and then once in ``ACTIVE_SECONDS``.
    """
    uid, clock = worker.metadata.uid, given.clock
    quiet = min(given.heard_seconds, clock.get_seconds(worker), clock.now - given.active.get(uid, float("-inf")))
    return uid not in given.busy and quiet >= REST_SECONDS


def _may_rebalance(placement: Placement) -> bool:
    """Return whether workers move to preferred sites: not with Fastest, because its order changes with each start."""
    return placement.rebalance == "WhenIdle" and placement.strategy != "Fastest"


def _find_working(given: PoolInput) -> frozenset[str]:
    """Return the uids of the workers that run something, or reported work a moment ago."""
    recently = given.clock.now - REST_SECONDS
    return given.busy | {uid for uid, time in given.active.items() if time > recently}


def exclude_workers(workers: list[Worker], uids: Container[str]) -> list[Worker]:
    """Return the workers whose uid is not in ``uids``."""
    return [worker for worker in workers if worker.metadata.uid not in uids]
