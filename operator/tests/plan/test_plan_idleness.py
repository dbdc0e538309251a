# SPDX-License-Identifier: Apache-2.0
"""A pool that nobody uses sleeps, and wakes when it is needed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_objects import NOW, at, make_pool
from plan_world import World

from simyard.api.base import find_condition
from simyard.plan.idleness import Use, get_rounding_seconds
from simyard.plan.pool import plan_pool


def started(timeout: int = 600, replicas: int = 3, **spec: Any) -> World:
    """A pool whose workers have just become ready."""
    world = World(make_pool(replicas, **{"idleTimeoutSeconds": timeout, "scaleIn": {"drainSeconds": 0}, **spec}))
    world.turn()
    world.come_up()
    world.turn()
    return world


def available(world: World) -> tuple[str, str]:
    condition = find_condition(world.pool.status.conditions, "Available")
    assert condition is not None
    return condition.status, condition.reason


def sleep(world: World) -> None:
    """Wait for as long as the pool says."""
    wake = world.turn().wake_seconds
    assert wake is not None
    world.pass_time(wake)
    world.turn()
    assert available(world) == ("False", "Idle")


def test_a_pool_that_nobody_uses_ends_its_workers_and_keeps_its_replicas() -> None:
    world = started()
    world.pass_time(599)
    assert world.turn().delete == ()
    world.pass_time(1)
    assert len(world.turn().delete) == 3
    assert available(world) == ("False", "Idle")
    assert world.pool.spec.replicas == 3
    assert world.pool.status.activities[-1].reason == "Idle"
    plan = world.turn()
    assert (plan.create, plan.delete, plan.wake_seconds) == ((), (), None)


def test_workers_that_drain_before_they_end_are_one_activity() -> None:
    world = started(scaleIn={"drainSeconds": 60})
    before = len(world.pool.status.activities)
    sleep(world)
    assert len(world.workers) == 3
    for _ in range(3):
        world.pass_time(60)
        world.turn()
    assert not world.workers
    assert [item.reason for item in world.pool.status.activities[before:]] == ["Idle"]


def test_without_a_time_out_a_pool_never_sleeps() -> None:
    world = World(make_pool(2))
    world.settle()
    world.pass_time(1e8)
    plan = world.turn()
    assert (plan.delete, plan.wake_seconds, plan.status.last_active_time) == ((), None, None)


def test_an_idle_pool_writes_nothing() -> None:
    world = started()
    seen = world.turn().status
    for seconds in (1, 100, 400):
        world.pass_time(seconds)
        assert world.turn().status == seen
    sleep(world)
    asleep = world.pool.status
    world.pass_time(10_000)
    assert world.turn().status == asleep


def test_it_counts_from_the_newest_registration_and_never_while_workers_start() -> None:
    world = World(make_pool(2, idleTimeoutSeconds=60, start={"deadlineSeconds": 5000}))
    world.turn()
    world.pass_time(1000)
    assert world.turn().delete == ()
    world.set(0, "ready")
    world.pass_time(1000)
    assert world.turn().delete == ()
    world.set(1, "ready")
    world.turn()
    world.pass_time(59)
    assert world.turn().delete == ()
    world.pass_time(10)
    assert available(world)[0] == "True"
    world.turn()
    assert available(world) == ("False", "Idle")


def test_it_does_not_sleep_while_an_action_runs_or_waits_and_counts_from_its_end() -> None:
    world = started()
    world.use = Use(now=True)
    world.pass_time(5000)
    assert world.turn().delete == ()
    world.use = Use(last=world.now)
    world.turn()
    world.pass_time(599)
    assert world.turn().delete == ()
    world.pass_time(1 + get_rounding_seconds(600))
    world.turn()
    assert available(world) == ("False", "Idle")


@pytest.mark.parametrize("how", ["action", "event", "scale"])
def test_what_wakes_it(how: str) -> None:
    world = started()
    sleep(world)
    if how == "scale":
        world.change(replicas=4)
    else:
        world.use = Use(now=True) if how == "action" else Use(last=world.now)
    plan = world.turn()
    assert len(plan.create) == world.pool.spec.replicas
    assert plan.status.start is not None
    assert plan.status.start.requested_time == world.now, "its waking is a start"
    world.use = Use()
    world.come_up()
    world.pass_time(500)
    assert world.turn().delete == ()


def test_a_restart_gives_a_pool_its_time_again_and_wakes_none_that_sleeps() -> None:
    world = started()
    world.pass_time(500)
    world.turn()
    world.restart()
    world.pass_time(599)
    world.turn()
    assert available(world)[0] == "True"
    world.pass_time(1)
    world.turn()
    assert available(world) == ("False", "Idle")
    world.restart()
    world.turn()
    assert available(world) == ("False", "Idle")


def test_a_wall_clock_that_jumps_sends_nobody_to_sleep() -> None:
    world = started()
    world.pass_time(300)
    world.use = Use(last=world.now)
    world.turn()
    world.pass_time(60)
    world.now += timedelta(minutes=15)
    plan = world.turn()
    assert (plan.delete, plan.wake_seconds) == ((), 540)
    world.pass_time(540)
    world.turn()
    assert available(world) == ("False", "Idle")


def test_workers_that_appear_late_do_not_wake_a_pool_that_sleeps() -> None:
    world = started()
    stale = plan_pool(World(world.pool.model_copy(update={"status": make_pool().status})).given())
    sleep(world)
    for new in stale.create:
        world.carry_out(type(stale)(status=world.pool.status, backoff=world.backoff, create=(new,)))
    assert len(world.turn().delete) == 3
    assert available(world) == ("False", "Idle")


def test_suspension_counts_for_more_than_idleness() -> None:
    world = started(suspend=True)
    assert available(world) == ("False", "Suspended")


@given(st.integers(1, 5000), st.lists(st.integers(0, 3000), max_size=20))
def test_it_sleeps_neither_before_its_time_nor_long_after_it(timeout: int, uses: list[int]) -> None:
    world = started(timeout, replicas=1)
    last = NOW
    for pause in uses:
        before = world.now
        world.pass_time(pause)
        world.turn()
        if available(world) == ("False", "Idle"):
            assert world.now - last >= timedelta(seconds=timeout)
        else:
            assert world.now - last <= timedelta(seconds=timeout + get_rounding_seconds(timeout))
            assert before <= world.now
        last = world.now
        world.use = Use(last=last)
        world.turn()
        world.come_up()
        world.turn()


def test_the_time_is_rounded_up_and_seldom_changes() -> None:
    world = started()
    times = set()
    for second in range(0, 600, 10):
        world.now, world.use = at(second), Use(last=at(second))
        time = world.turn().status.last_active_time
        assert time is not None
        assert timedelta() <= time - at(second) <= timedelta(seconds=get_rounding_seconds(600))
        times.add(time)
    assert len(times) <= 11
