"""Which workers of a pool must go, and how."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from simyard.api.names import Reason
from simyard.api.worker import Worker
from simyard.api.worker_pool import Placement
from simyard.plan.backoff import Backoff
from simyard.plan.placement import Choice, stranded
from simyard.plan.pool_input import PoolInput
from simyard.plan.rebalance import misplaced
from simyard.plan.rollout import Outdated, most_unavailable, replaceable
from simyard.plan.scale_in import drain_ends, victims
from simyard.plan.worker import is_ready
from simyard.plan.workforce import Removal, Workforce
from simyard_adapter.wire import ACTIVE_SECONDS

MOST_EXITS = 1000
"""Workers that failed, are too many, or have drained, and are ended in one pass: a change of mind is heard in between.

Those that are late, or wait in vain, are bounded by ``maxUnavailable``.
"""
REST_SECONDS = 1.5 * ACTIVE_SECONDS
"""A worker of which no work was heard for so long rests: it needs no draining."""


@dataclass(frozen=True, slots=True)
class Exits:
    """The workers that must go now, by why; ``uids`` has those of all but the failed ones.

    Attributes:
        look_again: after how many seconds others may have to go.
        more: others must go as soon as these have.
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
class WayHome:
    """Workers to be drained, workers to be ended now, and when to look again at those that drain."""

    drain: list[Worker]
    ended: list[Removal]
    look_again: float | None


def plan_exits(
    given: PoolInput,
    force: Workforce,
    outdated: Outdated,
    choice: Choice | None,
    backoff: Backoff,
    desired: int,
) -> Exits:
    """Which workers must go: failed ones, too many, too late, waiting in vain, outdated ones, and those elsewhere than
    the pool prefers.
    """
    spec = given.pool.spec
    serving = len(force.ready) + len(force.unready)
    failed = force.failed[:MOST_EXITS]
    left = MOST_EXITS - len(failed)
    surplus = (
        victims(
            [*force.ready, *force.unready], min(serving - desired, left), spec.scale_in, _at_work(given), outdated.uids
        )
        if serving > desired
        else []
    )
    left -= len(surplus)
    going = {worker.metadata.uid for worker in surplus}
    more = len(failed) < len(force.failed) or len(surplus) < serving - desired
    if backoff.waits(given.now) or desired == 0 or more:
        return Exits(failed, surplus, uids=frozenset(going), more=more)
    few = most_unavailable(spec.rollout.max_unavailable, desired)
    late = [removal for removal in force.late if removal.worker.metadata.uid not in going][:few]
    going.update(removal.worker.metadata.uid for removal in late)
    moved: list[Removal] = []
    renewed: list[Worker] = []
    returned: list[Worker] = []
    look_again: float | None = None
    if choice is not None:
        waiting = without(force.unready, going)
        stay = choice.away if spec.placement.site_failure == "Wait" else ()
        missing = desired - serving + len(going)
        moved, look_again = stranded(waiting, choice, given.clock, most=few, missing=missing, stay=stay)
        going.update(removal.worker.metadata.uid for removal in moved)
        serves, serves_not = replaceable(outdated, choice, going)
        gone_ready = sum(worker.metadata.uid in going for worker in force.ready) if surplus else 0
        # What a licence does not give is not unavailable: the wait for seats must not hold up a rollout.
        possible = desired if given.licence is None else min(desired, given.licence.seats)
        spare = few - max(0, possible - (len(force.ready) - gone_ready))
        budget = spare - len(force.draining)
        # Idle workers do not wait for those that finish long actions: old and new ones run side by side meanwhile.
        idle = victims([worker for worker in serves if rests(worker, given)], spare, spec.scale_in, ())
        chosen = frozenset(worker.metadata.uid for worker in idle)
        others = [worker for worker in serves if worker.metadata.uid not in chosen]
        working = victims(others, min(budget, spare - len(idle)), spec.scale_in, _at_work(given))
        renewed = [*serves_not, *idle, *working]
        more = len(renewed) > left
        renewed = renewed[:left]
        going.update(worker.metadata.uid for worker in renewed)
        settled = not going and not outdated.uids and not force.unready and serving == desired and not backoff.rounds
        if _rebalances(spec.placement) and settled:
            elsewhere = misplaced(force.ready, choice, spread=spec.placement.strategy == "Spread")
            resting = [worker for worker in elsewhere if rests(worker, given)]
            returned = victims(resting, budget, spec.scale_in, ())
            going.update(worker.metadata.uid for worker in returned)
            if elsewhere and not returned:
                look_again = min(look_again or REST_SECONDS, REST_SECONDS)
    return Exits(failed, surplus, late, moved, renewed, returned, frozenset(going), look_again, more)


def send_home(given: PoolInput, force: Workforce, exits: Exits) -> WayHome:
    """How those go that may finish what they do, and which of those that drain have finished."""
    policy = given.pool.spec.scale_in
    drain: list[Worker] = []
    ended: list[Removal] = []
    look_again: float | None = None
    for worker in (*exits.surplus, *exits.renewed, *exits.returned):
        if is_ready(worker) and policy.drain_seconds != 0 and not rests(worker, given):
            drain.append(worker)
        else:
            ended.append(Removal(worker, Reason.SCALED))
    left = MOST_EXITS - len(exits.failed) - len(ended)
    for worker in force.draining:
        seconds = max(0.0, drain_ends(worker, policy, given.drained, given.busy, given.clock.seconds(worker)))
        if seconds == 0 and left > 0:
            ended.append(Removal(worker, Reason.SCALED))
            left -= 1
        elif look_again is None or seconds < look_again:
            look_again = seconds
    return WayHome(drain, ended, look_again)


def rests(worker: Worker, given: PoolInput) -> bool:
    """Whether a ready worker surely runs nothing, so that there is nothing to wait for.

    It would have said so: at the begin of a Sync request, and then once in ``ACTIVE_SECONDS``.
    """
    uid, clock = worker.metadata.uid, given.clock
    quiet = min(given.heard_seconds, clock.seconds(worker), clock.now - given.active.get(uid, float("-inf")))
    return uid not in given.busy and quiet >= REST_SECONDS


def _rebalances(placement: Placement) -> bool:
    """Fastest does not: what is fastest changes with each start."""
    return placement.rebalance == "WhenIdle" and placement.strategy != "Fastest"


def _at_work(given: PoolInput) -> frozenset[str]:
    """The workers that run something, or did a moment ago, as far as was heard."""
    recently = given.clock.now - REST_SECONDS
    return given.busy | {uid for uid, time in given.active.items() if time > recently}


def without(workers: list[Worker], uids: Container[str]) -> list[Worker]:
    """The workers that are not among those."""
    return [worker for worker in workers if worker.metadata.uid not in uids]
