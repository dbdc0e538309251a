# SPDX-License-Identifier: Apache-2.0
"""Treatment of workers whose site fails, and of workers at a site that the pool does not prefer."""

from collections import Counter
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_objects import make_condition, make_pool, make_site, not_ready
from plan_world import World

from simyard.plan.exits import REST_SECONDS
from simyard.plan.lost_workers import RECONNECT_SECONDS
from simyard.plan.placement import SiteState
from simyard.plan.pool import PoolPlan, plan_pool

RATHER_A = {"sites": ["a", "b"], "rebalance": "WhenIdle"}


class HearingWorld(World):
    """Return a world in which all reports of workers were received."""

    busy: frozenset[str] = frozenset()

    def plan(self) -> PoolPlan:
        return plan_pool(replace(self.given(), heard_seconds=self.steady, busy=self.busy))

    def turn(self) -> PoolPlan:
        plan = self.plan()
        self.carry_out(plan)
        return plan


def where(world: World) -> Counter[str]:
    return Counter(worker.spec.site for worker in world.workers.values())


def failed_over(replicas: int = 4, away: dict[str, Any] | None = None, **placement: Any) -> HearingWorld:
    """Return a pool whose workers all run at ``b``, because ``a`` was not Ready; ``away``: it is not Ready yet."""
    world = HearingWorld(
        make_pool(replicas, placement={**RATHER_A, **placement}, rollout={"maxUnavailable": 1}),
        sites={"a": make_site("a", ready=False), "b": make_site("b")},
    )
    world.settle()
    assert where(world) == {"b": replicas}
    world.sites = {"a": make_site("a", **(away or {})), "b": make_site("b")}
    return world


def rest(world: World) -> None:
    world.pass_time(REST_SECONDS)


def test_workers_that_rest_go_back_a_few_at_a_time() -> None:
    world = failed_over()
    rest(world)
    plan = world.turn()
    assert ([removal.worker.spec.site for removal in plan.delete], [new.site for new in plan.create]) == (["b"], ["a"])
    assert "prefers" in world.pool.status.activities[-1].message
    assert not world.turn().delete, "not before that one is ready"
    for _ in range(3):
        world.come_up()
        rest(world)
        world.turn()
    world.come_up()
    assert where(world) == {"a": 4}
    rest(world)
    assert not world.turn().delete


def test_workers_at_work_stay_and_are_looked_at_again() -> None:
    world = failed_over()
    rest(world)
    world.busy = frozenset(worker.metadata.uid for worker in world.workers.values())
    plan = world.turn()
    assert (plan.delete, plan.drain, plan.wake_seconds) == ((), (), REST_SECONDS)


@pytest.mark.parametrize("placement", [{"rebalance": "Never"}, {"strategy": "Fastest"}])
def test_nobody_goes_back_unasked(placement: dict[str, Any]) -> None:
    world = failed_over(**placement)
    rest(world)
    assert not world.turn().delete


@pytest.mark.parametrize(
    "away",
    [
        {"exhausted": True},
        {"cordoned": True},
        {"ready": False},
        {"limits": {"maxWorkers": 0}},
        {"capacity": 0},
        {"full_at": 0},
    ],
)
def test_nobody_goes_where_there_is_no_room(away: dict[str, Any]) -> None:
    world = failed_over(away=away)
    rest(world)
    assert not world.turn().delete


def test_so_many_go_back_as_there_are_places_shown_to_exist_and_the_others_when_a_quota_is_raised() -> None:
    world = failed_over(away={"full_at": 1})

    def turns(count: int) -> None:
        for _ in range(count):
            rest(world)
            world.turn()
            world.come_up()

    turns(6)
    assert where(world) == {"a": 1, "b": 3}, "it was full with one machine"
    world.sites = {"a": make_site("a", capacity=3), "b": make_site("b")}
    turns(6)
    assert where(world) == {"a": 3, "b": 1}
    world.sites = {"a": make_site("a", capacity=9), "b": make_site("b")}
    turns(6)
    assert where(world) == {"a": 4}


def test_workers_at_a_cordoned_site_stay() -> None:
    world = failed_over(sites=["b", "a"])
    world.sites = {"a": make_site("a"), "b": make_site("b", cordoned=True)}
    rest(world)
    assert not world.turn().delete


def test_spread_evens_out() -> None:
    world = failed_over(5, strategy="Spread")
    for _ in range(4):
        rest(world)
        world.turn()
        world.come_up()
    assert where(world) == {"b": 3, "a": 2}


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 8)), min_size=2, max_size=4),
    st.sampled_from(["Ordered", "Spread", "Cheapest"]),
    st.integers(1, 3),
)
def test_it_comes_to_rest_without_passing_a_limit(
    sites: list[tuple[int, int]], strategy: str, unavailable: int
) -> None:
    def named(limited: bool) -> dict[str, SiteState]:
        made = {}
        for index, (price, most) in enumerate(sites):
            limits = {"limits": {"maxWorkers": most}} if limited else {}
            made[f"s{index}"] = make_site(f"s{index}", cost={"workerHourMillis": price}, **limits)
        return made

    last = f"s{len(sites) - 1}"
    world = HearingWorld(
        make_pool(
            6, placement={"strategy": strategy, "rebalance": "WhenIdle"}, rollout={"maxUnavailable": unavailable}
        ),
        sites={last: named(False)[last]},
    )
    world.settle()
    world.sites = {**named(True), last: named(False)[last]}
    for _ in range(8):
        rest(world)
        plan = world.turn()
        assert len(plan.delete) <= unavailable
        assert all(where(world)[f"s{index}"] <= most for index, (_, most) in enumerate(sites[:-1]))
        world.come_up()
    rest(world)
    assert not world.turn().delete
    assert len(world.ready()) == 6


def with_ready_since(state: SiteState, since: datetime) -> SiteState:
    conditions = [make_condition("Ready", True, "ProbeSucceeded", since)]
    status = state.site.status.model_copy(update={"conditions": conditions})
    return replace(state, site=state.site.model_copy(update={"status": status}))


def lost(world: World) -> None:
    for worker in list(world.workers.values()):
        world.put(not_ready(worker, "AdapterDisconnected", world.now))


def test_lost_workers_of_a_failed_site_are_replaced_elsewhere() -> None:
    world = failed_over(2)
    world.sites = {"a": make_site("a"), "b": make_site("b", ready=False)}
    lost(world)
    world.pass_time(RECONNECT_SECONDS)
    world.settle()
    assert where(world) == {"a": 2}


def test_with_wait_they_are_waited_for_until_the_site_is_back() -> None:
    world = failed_over(2, siteFailure="Wait")
    world.sites = {"a": make_site("a"), "b": make_site("b", ready=False)}
    lost(world)
    world.pass_time(10 * RECONNECT_SECONDS)
    assert not world.turn().delete
    back = with_ready_since(make_site("b"), world.now)
    world.sites = {"a": make_site("a"), "b": back}
    plan = world.turn()
    assert (plan.delete, plan.wake_seconds) == ((), RECONNECT_SECONDS), "they may come back by themselves"
    world.pass_time(RECONNECT_SECONDS)
    assert [removal.reason for removal in world.turn().delete] == ["AdapterDisconnected"] * 2
