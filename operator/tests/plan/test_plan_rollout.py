# SPDX-License-Identifier: Apache-2.0
"""Workers are replaced when what they are made from has changed: a few at a time, and never into nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_objects import at, made_ready, make_pool, make_service, make_site, make_worker, not_ready
from plan_world import World, labelled

from simyard.api.base import Condition, find_condition
from simyard.api.names import LABEL_REVISION
from simyard.plan.licence import Allotment
from simyard.plan.rollout import compute_revisions, parse_max_unavailable
from simyard.plan.worker import is_ready


def started(replicas: int, **spec: Any) -> World:
    """A pool whose workers are ready, and are ended without draining."""
    world = World(make_pool(replicas, **{"scaleIn": {"drainSeconds": 0}, **spec}))
    world.settle()
    assert len(world.ready()) == replicas
    return world


def condition(world: World, kind: str) -> Condition:
    found = find_condition(world.pool.status.conditions, kind)
    assert found is not None
    return found


def revision_of(service: Any, **pool: Any) -> str:
    return compute_revisions(service, pool.get("attributes", {}), {"a": make_site("a")})["a"]


BASE: dict[str, Any] = {
    "interface": {
        "attributes": [{"name": "load", "type": "number"}],
        "actions": [{"name": "solve", "parameters": [{"name": "size", "type": "integer"}]}],
    }
}


def changed_interface(**action: Any) -> dict[str, Any]:
    solve = {**BASE["interface"]["actions"][0], **action}
    return {"interface": {**BASE["interface"], "actions": [solve]}}


@pytest.mark.parametrize(
    "change",
    [
        {"description": "new words", "displayName": "new name", "version": "2"},
        {"readinessDeadlineSeconds": 5},
        {"images": {"pod": "an image for other sites"}},
        {"resources": {"cpu": 1}},
        changed_interface(description="new words", timeoutSeconds=7),
        changed_interface(parameters=[{"name": "size", "type": "integer", "description": "new words"}]),
    ],
)
def test_what_needs_no_new_machine_changes_no_revision(change: dict[str, Any]) -> None:
    assert revision_of(make_service(**{**BASE, **change})) == revision_of(make_service(**BASE))


@pytest.mark.parametrize(
    "change",
    [
        {"resources": {"cpu": 2}},
        {"connector": {"python": {"class": "module:Other"}}},
        {"connector": {"python": {"class": "module:Class"}, "files": [{"path": "a.py", "content": "1"}]}},
        changed_interface(concurrent=True),
        changed_interface(parameters=[{"name": "size", "type": "number"}]),
    ],
)
def test_what_a_machine_is_made_from_changes_its_revision(change: dict[str, Any]) -> None:
    assert revision_of(make_service(**{**BASE, **change})) != revision_of(make_service(**BASE))


def test_the_image_counts_at_the_sites_that_use_it_and_attributes_everywhere() -> None:
    sites = {"a": make_site("a"), "p": make_site("p", provider={"pod": {}})}
    old, new = (compute_revisions(make_service(images={"pod": image}), {}, sites) for image in ("one", "two"))
    assert old["a"] == new["a"]
    assert old["p"] != new["p"]
    assert revision_of(make_service(), attributes={"load": 1}) != revision_of(make_service())


@pytest.mark.parametrize(
    ("value", "desired", "most"),
    [(3, 10, 3), ("10%", 10, 1), ("10%", 19, 1), ("25%", 10, 2), ("0%", 10, 1), ("10%", 1, 1), ("100%", 7, 7)],
)
def test_percentages_are_rounded_down_and_one_is_always_permitted(value: int | str, desired: int, most: int) -> None:
    assert parse_max_unavailable(value, desired) == most


def test_a_changed_service_replaces_the_workers_a_few_at_a_time() -> None:
    world = started(10, rollout={"maxUnavailable": "25%"})
    world.publish(resources={"cpu": 4})
    least = 10
    for _ in range(40):
        world.turn()
        least = min(least, len(world.ready()))
        assert condition(world, "Available").status == "True", "a rollout is no outage"
        if condition(world, "Progressing").reason == "WorkersUpdated":
            break
        assert condition(world, "Progressing").reason == "RollingOut"
        world.pass_time(1)
        world.come_up()
    assert least == 8
    assert world.created == 20
    assert world.pool.status.updated_replicas == 10


def test_a_rollout_that_does_not_come_up_stops_and_says_so_and_another_change_saves_it() -> None:
    world = started(10, rollout={"maxUnavailable": 2}, start={"deadlineSeconds": 60})
    good = {worker.metadata.labels[LABEL_REVISION] for worker in world.ready()}
    world.publish(resources={"cpu": 4})
    for _ in range(50):
        world.pass_time(world.turn().wake_seconds or 1)
        assert len(world.ready()) >= 8
    progressing = condition(world, "Progressing")
    assert (progressing.status, progressing.reason) == ("False", "ProgressDeadlineExceeded")
    assert "8 are ready" in progressing.message
    assert condition(world, "Available").status == "True"
    assert {worker.metadata.labels[LABEL_REVISION] for worker in world.ready()} == good

    world.publish(resources={"cpu": 2})
    world.settle()
    assert len(world.ready()) == world.pool.status.updated_replicas == 10
    assert condition(world, "Progressing").reason == "WorkersUpdated"


def test_a_pool_that_waits_for_seats_is_rolled_out_with_those_it_has() -> None:
    world = World(make_pool(6, scaleIn={"drainSeconds": 0}))
    world.licence = Allotment("acme", total=4, taken=4, seats=4, place=1, since=world.now)
    world.settle()
    assert len(world.ready()) == 4
    world.publish(resources={"cpu": 4})
    for _ in range(20):
        world.turn()
        assert len(world.ready()) >= 3
        assert len(world.workers) <= 4
        assert condition(world, "Progressing").status == "True"
        world.come_up()
        world.pass_time(1)
    assert world.pool.status.updated_replicas == world.pool.status.ready_replicas == 4
    assert world.created == 8
    assert condition(world, "Progressing").reason == "WorkersUpdated"
    assert condition(world, "LicenceAvailable").reason == "WaitingForSeats"


@pytest.mark.parametrize("replicas", [1, 4])
def test_a_licensed_pool_with_all_its_seats_does_not_wait_for_seats_while_it_is_rolled_out(replicas: int) -> None:
    world = World(make_pool(replicas, scaleIn={"drainSeconds": 600}))
    world.licence = Allotment("acme", total=replicas, taken=replicas, seats=replicas, place=1, since=world.now)
    world.settle()
    world.publish(resources={"cpu": 4})
    assert len(world.turn().drain) == 1
    for _ in range(3):
        plan = world.turn()
        assert plan.create == (), "the worker that drains has its seat still"
        assert plan.wake_seconds != 0
        assert condition(world, "Available").reason != "WaitingForSeats"
        for kind in ("Available", "Progressing"):
            assert "seats" not in condition(world, kind).message
        world.pass_time(1)
    world.settle()
    assert world.pool.status.updated_replicas == replicas


def test_idle_workers_are_replaced_beside_those_that_finish_long_actions() -> None:
    world = World(make_pool(4, rollout={"maxUnavailable": 1}), heard_seconds=1e6)
    world.settle()
    world.pass_time(60)
    working = world.workers["pool-0"]
    world.busy = frozenset({working.metadata.uid})
    world.publish(resources={"cpu": 4})
    for _ in range(30):
        world.turn()
        world.come_up()
        world.pass_time(60)
    kept = world.workers["pool-0"]
    assert kept.metadata.uid == working.metadata.uid, "it runs its action still"
    assert kept.spec.drain
    assert world.pool.status.updated_replicas == world.pool.status.ready_replicas == 4
    world.busy = frozenset()
    world.settle()
    assert len(world.workers) == 4
    assert working.metadata.uid not in {worker.metadata.uid for worker in world.workers.values()}


def test_a_pool_of_one_is_not_available_while_it_is_replaced_and_says_why() -> None:
    world = started(1)
    world.publish(resources={"cpu": 4})
    world.turn()
    assert condition(world, "Available").status == "False"
    assert condition(world, "Progressing").reason == "RollingOut"
    world.come_up()
    world.turn()
    assert condition(world, "Available").status == "True"
    assert condition(world, "Progressing").reason == "WorkersUpdated"


def test_taking_a_change_back_spares_the_workers_that_were_not_replaced_yet() -> None:
    world = started(10, rollout={"maxUnavailable": 3})
    before = {worker.metadata.uid for worker in world.ready()}
    world.publish(resources={"cpu": 4})
    world.turn()
    world.publish()
    world.settle()
    assert len(before & {worker.metadata.uid for worker in world.ready()}) == 7


def test_outdated_workers_that_are_not_ready_go_at_once_and_first() -> None:
    world = World(make_pool(10))
    world.turn()
    world.set(0, "ready")
    world.publish(resources={"cpu": 4})
    plan = world.turn()
    assert (len(plan.delete), plan.drain, len(plan.create)) == (9, (), 9)


def test_a_worker_that_reconnects_is_not_lost_to_a_rollout() -> None:
    world = started(10)
    for slot in range(5):
        worker = sorted(world.workers.values(), key=lambda item: item.metadata.name)[slot]
        world.put(not_ready(worker, "AdapterDisconnected", world.now))
    world.publish(resources={"cpu": 4})
    assert world.turn().delete == ()


def test_ready_workers_drain_and_count_as_unavailable_while_they_do() -> None:
    world = started(10, scaleIn={"drainSeconds": 600}, rollout={"maxUnavailable": 2})
    world.publish(resources={"cpu": 4})
    assert len(world.turn().drain) == 2
    for _ in range(5):
        world.come_up()
        world.pass_time(60)
        plan = world.turn()
        assert (plan.drain, plan.delete) == ((), ()), "the next ones wait until these are through"
    assert len(world.ready()) == 10
    assert len(world.workers) == 12, "there are never more than maxUnavailable too many, and those only drain"
    world.settle()
    assert len(world.workers) == world.pool.status.updated_replicas == 10


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"service": None}, "ServiceNotFound"),
        ({"sites": {"a": make_site("a", ready=False)}}, "NoSiteAvailable"),
        ({"sites": {"a": make_site("a", cordoned=True)}}, "NoSiteAvailable"),
    ],
)
def test_nobody_is_replaced_where_no_successor_can_be_made(change: dict[str, Any], reason: str) -> None:
    world = started(3)
    world.publish(resources={"cpu": 4})
    for name, value in change.items():
        setattr(world, name, value)
    plan = world.turn()
    assert (plan.delete, plan.drain, plan.create) == ((), (), ())
    assert (condition(world, "Available").status == "True") is (world.service is not None)
    if world.service is not None:
        assert (condition(world, "Progressing").status, condition(world, "Progressing").reason) == ("False", reason)


def test_a_site_with_no_room_left_still_rolls_out_in_place() -> None:
    world = World(make_pool(4, scaleIn={"drainSeconds": 0}), sites={"a": make_site("a", limits={"maxWorkers": 4})})
    world.settle()
    world.publish(resources={"cpu": 4})
    world.settle()
    assert len(world.ready()) == world.pool.status.updated_replicas == 4


def test_workers_that_do_not_say_what_they_were_made_from_are_adopted() -> None:
    world = started(3)
    before = {worker.metadata.uid for worker in world.ready()}
    for slot in range(3):
        world.set(slot, "unlabelled")
    plan = world.turn()
    assert len(plan.adopt) == 3
    assert (plan.delete, plan.drain) == ((), ())
    assert world.pool.status.updated_replicas == 3
    assert world.turn().adopt == ()
    world.publish(resources={"cpu": 4})
    world.settle()
    assert not before & {worker.metadata.uid for worker in world.ready()}, "the next change replaces them"


def test_scaling_in_takes_the_outdated_ones_first() -> None:
    world = started(4, rollout={"maxUnavailable": 1})
    old = {worker.metadata.uid for worker in world.ready()}
    world.publish(resources={"cpu": 4})
    for _ in range(2):
        world.turn()
        world.come_up()
        world.pass_time(1)
    new = {worker.metadata.uid for worker in world.ready()} - old
    assert new
    world.change(replicas=1)
    world.turn()
    assert {worker.metadata.uid for worker in world.serving()} <= new


def test_a_worker_at_a_site_that_is_gone_stays_as_it_is() -> None:
    world = started(1)
    lost = labelled(made_ready(make_worker("pool-1", site="gone"), at(1)), "other")
    world.put(lost)
    world.change(replicas=2)
    plan = world.turn()
    assert (plan.delete, plan.drain, plan.adopt) == ((), (), ())


@given(
    st.integers(1, 15),
    st.sampled_from([1, 2, 5, "10%", "40%", "100%"]),
    st.integers(0, 30),
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4), st.sets(st.integers(0, 14))), min_size=1, max_size=5),
)
def test_changes_in_the_middle_of_a_rollout_never_cost_more_than_permitted_and_all_end_well(
    replicas: int, unavailable: int | str, drain: int, changes: list[tuple[int, int, set[int]]]
) -> None:
    world = started(replicas, rollout={"maxUnavailable": unavailable}, scaleIn={"drainSeconds": drain})
    least = replicas - parse_max_unavailable(unavailable, replicas)
    for cpu, turns, slow in changes:
        world.publish(resources={"cpu": cpu})
        for _ in range(turns):
            world.turn()
            assert len(world.ready()) >= least
            assert len(world.serving()) <= replicas
            assert len(world.workers) <= replicas + parse_max_unavailable(unavailable, replicas)
            world.pass_time(1)
            world.come_up(lambda worker, slow=slow: int(worker.metadata.name.removeprefix("pool-")) not in slow)
    world.settle(turns=200)
    assert len(world.workers) == world.pool.status.updated_replicas == replicas
    assert all(map(is_ready, world.workers.values()))
    assert condition(world, "Progressing").reason == "WorkersUpdated"
