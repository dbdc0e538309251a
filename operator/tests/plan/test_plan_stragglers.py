# SPDX-License-Identifier: Apache-2.0
"""Workers that come too late are replaced, but not before, not all at once, and not because a clock jumped."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_objects import make_pool, make_site, with_status
from plan_world import World

from simyard.api.base import find_condition
from simyard.plan.placement import MOVE_DELAY_SECONDS


def begun(replicas: int, ready: int, **spec: Any) -> World:
    """A pool that starts, some of whose workers are ready."""
    world = World(make_pool(replicas, **{"start": {"deadlineSeconds": 60, "quorumPercent": 90}, **spec}))
    world.turn()
    names = [f"pool-{slot}" for slot in range(ready)]
    world.come_up(lambda worker: worker.metadata.name in names)
    world.turn()
    return world


def available(world: World) -> str:
    condition = find_condition(world.pool.status.conditions, "Available")
    assert condition is not None
    return condition.status


def test_the_quorum_makes_a_pool_available_and_the_rest_has_time_until_the_deadline() -> None:
    world = begun(20, ready=18)
    assert available(world) == "True"
    world.pass_time(59)
    assert world.turn().delete == ()
    world.pass_time(1)
    plan = world.turn()
    assert {removal.reason for removal in plan.delete} == {"ReadinessDeadlineExceeded"}
    assert available(world) == "True"


def test_stragglers_go_a_few_at_a_time_and_with_patience_while_that_does_not_help() -> None:
    world = begun(100, ready=0, rollout={"maxUnavailable": "10%"})
    world.pass_time(60)
    times, gone = [], 0
    while gone < 60:
        plan = world.turn()
        assert len(plan.delete) <= 10
        if plan.delete:
            times.append(world.steady - 60)
            gone += len(plan.delete)
        world.pass_time(plan.wake_seconds or 0)
    assert times == [0, 60, 120, 180, 240, 300]


def test_where_replacing_helps_the_next_few_follow_at_once() -> None:
    world = begun(20, ready=0, rollout={"maxUnavailable": 5})
    hung = {worker.metadata.uid for worker in world.workers.values()}
    world.pass_time(60)
    for _ in range(12):
        world.turn()
        world.pass_time(1)
        world.come_up(lambda worker: worker.metadata.uid not in hung)
    assert len(world.ready()) == 20
    assert world.steady < 90


@pytest.mark.parametrize("boot_seconds", [65, 120, 200])
def test_a_site_that_is_merely_slow_catches_up(boot_seconds: int) -> None:
    world = begun(40, ready=0)
    for _ in range(2000):
        plan = world.turn()
        world.come_up(lambda worker: world.steady - world.since[worker.metadata.uid] >= boot_seconds)
        if len(world.ready()) == 40:
            break
        world.pass_time(min(1.0, plan.wake_seconds if plan.wake_seconds else 1.0))
    assert world.created < 120
    assert len(world.ready()) == 40, "it does not replace for ever what would have come up"


@pytest.mark.parametrize("jump", [86_400, -86_400])
def test_a_clock_that_jumps_makes_nobody_a_straggler_and_excuses_nobody(jump: int) -> None:
    world = begun(5, ready=2)
    world.pass_time(30)
    world.now += timedelta(seconds=jump)
    assert world.turn().delete == ()
    world.pass_time(30)
    assert len(world.turn().delete) == 1


@given(st.lists(st.tuples(st.integers(0, 25), st.integers(-10_000, 10_000)), max_size=12))
def test_no_series_of_jumps_ends_a_worker_before_its_time(steps: list[tuple[int, int]]) -> None:
    world = begun(5, ready=2)
    for seconds, jump in steps:
        world.pass_time(seconds)
        world.now += timedelta(seconds=jump)
        if world.turn().delete:
            assert world.steady >= 60
            break


def test_an_operator_that_starts_anew_gives_them_their_time_again() -> None:
    world = begun(5, ready=2)
    world.pass_time(59)
    world.restart()
    world.pass_time(59)
    assert world.turn().delete == ()


def two_sites(**first: Any) -> dict[str, Any]:
    return {"a": make_site("a", **first), "b": make_site("b")}


@pytest.mark.parametrize(
    "trouble", [{"exhausted": True}, {"ready": False}, {"cordoned": True}, {"allowedNamespaces": {"from": "Selected"}}]
)
def test_workers_that_wait_where_there_is_no_machine_go_elsewhere(trouble: dict[str, Any]) -> None:
    world = World(make_pool(4, rollout={"maxUnavailable": 2}), sites=two_sites())
    world.turn()
    kept = world.workers["pool-0"] = with_status(world.workers["pool-0"], machine_id="m")
    world.sites = two_sites(**trouble)
    world.pass_time(MOVE_DELAY_SECONDS / 2)
    plan = world.turn()
    assert (plan.delete, plan.wake_seconds) == ((), MOVE_DELAY_SECONDS / 2)
    world.pass_time(MOVE_DELAY_SECONDS / 2)
    plan = world.turn()
    assert {removal.reason for removal in plan.delete} == {"WorkersMoved"}
    assert [new.site for new in plan.create] == ["b", "b"], "a few at a time"
    assert world.pool.status.failures == []
    assert "a: " in world.pool.status.activities[-1].message
    world.settle(can=lambda worker: worker.spec.site == "b" or worker.metadata.uid == kept.metadata.uid)
    assert sorted(worker.spec.site for worker in world.ready()) == ["a", "b", "b", "b"]


def test_while_workers_move_one_after_the_other_the_pool_has_as_many_as_before() -> None:
    world = World(make_pool(12, placement={"sites": ["a", "b"]}), sites=two_sites())
    world.turn()
    assert {worker.spec.site for worker in world.workers.values()} == {"a"}
    world.sites = two_sites(ready=False)
    for _ in range(60):
        plan = world.turn()
        assert len(world.workers) == 12, "who goes is made at the other site at once"
        assert "keep failing" not in world.pool.status.conditions[0].message
        world.come_up(lambda worker: worker.spec.site == "b")
        world.pass_time(max(0.1, plan.wake_seconds or 60))
    assert {worker.spec.site for worker in world.ready()} == {"b"}
    assert len(world.ready()) == 12


def test_nobody_moves_where_there_is_no_other_place() -> None:
    cordoned = {"a": make_site("a", cordoned=True)}
    for sites in (cordoned, {**cordoned, "b": make_site("b", limits={"maxWorkers": 0})}):
        world = World(make_pool(3), sites={"a": make_site("a")})
        world.turn()
        world.sites = sites
        world.pass_time(100)
        assert world.turn().delete == ()


def test_a_site_that_reached_its_maximum_keeps_those_that_wait_there() -> None:
    world = World(make_pool(3), sites=two_sites(limits={"maxWorkers": 3}))
    world.turn()
    world.pass_time(100)
    assert world.turn().delete == ()


def test_workers_do_not_run_back_and_forth_between_two_full_sites() -> None:
    world = World(make_pool(1), sites=two_sites())
    world.turn()
    moves, here = 0, "a"
    for _ in range(3600):
        here = next((worker.spec.site for worker in world.workers.values()), here)
        world.sites = {name: make_site(name, exhausted=name == here) for name in ("a", "b")}
        moves += len(world.turn().delete)
        world.pass_time(1)
    assert 1 <= moves <= 24
