# SPDX-License-Identifier: Apache-2.0
"""Plan of a pool: its workers, its status, and the convergence to the desired state."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_objects import NOW, at, made_ready, make_pool, make_site, make_worker, not_ready
from plan_world import SERVICE, World

from simyard.api.base import find_condition
from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool
from simyard.plan import pool as planning
from simyard.plan.backoff import Backoff
from simyard.plan.exits import MAX_EXITS_PER_PASS, REST_SECONDS
from simyard.plan.placement import ROOM_CHECK_SECONDS
from simyard.plan.pool import PoolPlan, plan_pool
from simyard.plan.pool_input import PoolInput
from simyard.plan.rollout import parse_max_unavailable
from simyard.plan.worker import is_ready
from simyard.plan.workforce import Clock

SITES = {"a": make_site("a")}


def given_pool(pool: WorkerPool, workers: list[Worker] | None = None, now: datetime = NOW, **more: Any) -> PoolInput:
    fields = {"previous": pool.status, "backoff": Backoff(), "service": SERVICE, "sites": SITES, **more}
    return PoolInput(pool=pool, workers=workers or [], now=now, **fields)


def available(plan: PoolPlan) -> tuple[str, str, str]:
    condition = find_condition(plan.status.conditions, "Available")
    assert condition is not None
    return condition.status, condition.reason, condition.message


def test_a_new_pool_gets_its_workers_at_once() -> None:
    plan = plan_pool(given_pool(make_pool(3)))
    assert [(new.name, new.site) for new in plan.create] == [("pool-0", "a"), ("pool-1", "a"), ("pool-2", "a")]
    assert available(plan)[:2] == ("False", "WorkersStarting")
    assert plan.status.start is not None


def test_a_large_pool_is_made_in_several_passes() -> None:
    plan = plan_pool(given_pool(make_pool(planning.MAX_CREATES_PER_PASS + 1)))
    assert len(plan.create) == planning.MAX_CREATES_PER_PASS
    assert plan.wake_seconds == 0


def test_a_large_pool_is_scaled_in_in_several_passes_and_its_status_is_true_in_each() -> None:
    most = MAX_EXITS_PER_PASS
    workers = [made_ready(make_worker(f"pool-{slot}"), at(1)) for slot in range(most + 5)]
    plan = plan_pool(given_pool(make_pool(2), workers, now=at(5)))
    assert (len(plan.drain), plan.wake_seconds) == (most, 0)
    assert (plan.status.ready_replicas, plan.status.replicas) == (5, most + 5)
    plan = plan_pool(given_pool(make_pool(2, scaleIn={"drainSeconds": 0}), workers, now=at(5)))
    assert (len(plan.delete), plan.wake_seconds) == (most, 0)
    assert (plan.status.ready_replicas, plan.status.replicas) == (5, 5)
    plan = plan_pool(given_pool(make_pool(2, deleted=True), workers))
    assert (len(plan.delete), plan.wake_seconds, plan.status.replicas) == (most, 0, 5)


def test_many_that_fail_together_are_one_round_however_many_passes_it_takes() -> None:
    failed = [not_ready(make_worker(f"pool-{slot}"), "MachineFailed", at(1)) for slot in range(MAX_EXITS_PER_PASS + 5)]
    pool = make_pool(len(failed))
    seen = pool.status.model_copy(update={"observed_generation": 1})
    first = plan_pool(given_pool(pool, failed, now=at(5), previous=seen, backoff=Backoff(rounds=3, until=at(4))))
    assert (len(first.delete), first.create, first.wake_seconds) == (MAX_EXITS_PER_PASS, (), 0)
    assert (first.backoff.rounds, first.status.failed_replicas) == (3, len(failed))
    left = failed[MAX_EXITS_PER_PASS:]
    second = plan_pool(given_pool(pool, left, now=at(6), previous=first.status, backoff=first.backoff))
    assert (len(second.delete), second.create, second.backoff.rounds) == (5, (), 4)


@pytest.mark.parametrize("state", [{"workers": 4}, {"workers": 3}, {"exhausted": True}])
def test_a_pool_without_room_looks_again_although_nothing_tells(state: Any) -> None:
    sites = {"a": make_site("a", limits={"maxWorkers": 4}, **state)}
    plan = plan_pool(given_pool(make_pool(2), sites=sites))
    assert (plan.waits_for_room, plan.wake_seconds) == (True, ROOM_CHECK_SECONDS)
    down = plan_pool(given_pool(make_pool(2), sites={"a": make_site("a", ready=False)}))
    assert (down.waits_for_room, down.wake_seconds) == (False, None), "the site's own condition tells"


def test_names_that_belong_to_somebody_else_are_passed_over() -> None:
    plan = plan_pool(given_pool(make_pool(2), taken=frozenset({"pool-0"})))
    assert [new.name for new in plan.create] == ["pool-1", "pool-2"]


def test_what_stands_in_the_way_is_told_but_does_not_end_what_runs() -> None:
    pool = make_pool(1, attributes={"load": -1})
    running = [made_ready(make_worker(), at(1))]
    cases: list[tuple[dict[str, Any], str]] = [
        ({"service": None}, "ServiceNotFound"),
        ({"service": replace(SERVICE, problem="is wrong")}, "InterfaceInvalid"),
        ({}, "AttributesInvalid"),
        ({"pool": make_pool(1), "sites": {}}, "NoSiteAvailable"),
        ({"pool": make_pool(1, placement={"sites": ["b"]})}, "SiteNotFound"),
        ({"pool": make_pool(1), "sites": {"a": make_site("a", limits={"maxWorkers": 0})}}, "NoSiteAvailable"),
        ({"pool": make_pool(1), "broker_problem": "it is away"}, "BrokerUnreachable"),
    ]
    for changes, reason in cases:
        plan = plan_pool(replace(given_pool(pool), **changes))
        assert (plan.create, available(plan)[1]) == ((), reason)
        stays = plan_pool(replace(given_pool(pool, running), **changes))
        assert (stays.delete, stays.drain) == ((), ())
        assert available(stays)[0] == ("False" if reason == "ServiceNotFound" else "True")


def test_a_pool_that_runs_stays_available_and_says_what_will_not_pass_by_itself() -> None:
    running = [made_ready(make_worker(), at(1))]
    wrong = available(plan_pool(given_pool(make_pool(1), running, service=replace(SERVICE, problem="is wrong"))))
    assert wrong == ("True", "WorkersReady", "1 of 1 workers are ready; SimulationService service: is wrong")
    down = available(plan_pool(given_pool(make_pool(1), running, broker_problem="it is away")))
    assert down == ("True", "WorkersReady", "1 of 1 workers are ready")


def test_a_pool_whose_service_was_deleted_is_not_available_although_its_workers_run() -> None:
    running = [made_ready(make_worker(), at(1))]
    status, reason, message = available(plan_pool(given_pool(make_pool(1), running, service=None)))
    assert (status, reason) == ("False", "ServiceNotFound")
    assert "SimulationService service does not exist" in message


def test_workers_that_fail_again_and_again_are_counted_and_explained_until_one_is_ready() -> None:
    world = World(make_pool(1))
    for _ in range(3):
        world.turn()
        (worker,) = world.workers.values()
        world.put(not_ready(worker, "MachineFailed", world.now, message="exit code 3: no such module"))
        world.turn()
        world.pass_time(10)
        world.turn()
        assert len(world.workers) == 1, "the successor starts"
        assert world.pool.status.failed_replicas == 1
        message = world.pool.status.conditions[0].message
        assert "the last failure was: MachineFailed exit code 3: no such module" in message
    world.come_up()
    world.pass_time(1)
    world.turn()
    assert world.pool.status.failed_replicas == 0
    assert "failing" not in world.pool.status.conditions[0].message


def test_a_full_site_takes_what_fits_and_says_so() -> None:
    plan = plan_pool(given_pool(make_pool(3), sites={"a": make_site("a", limits={"maxWorkers": 2})}))
    assert len(plan.create) == 2
    assert available(plan)[1] == "MaxWorkersReached"


def test_a_failed_worker_is_replaced_and_remembered() -> None:
    failed = not_ready(make_worker("pool-1"), "MachineFailed", at(1), "no host")
    plan = plan_pool(given_pool(make_pool(2), [made_ready(make_worker("pool-0"), at(1)), failed], now=at(5)))
    assert [(removal.worker, removal.failed) for removal in plan.delete] == [(failed, True)]
    (entry,) = plan.status.failures
    assert (entry.worker, entry.reason, entry.message, entry.time) == ("pool-1", "MachineFailed", "no host", at(5))
    assert plan.status.failed_replicas == 1
    assert [new.name for new in plan.create] == ["pool-1"], "a second plan from the same objects means the same Worker"


def test_workers_that_keep_failing_are_made_ever_more_slowly() -> None:
    pool = make_pool(1, start={"deadlineSeconds": 600})
    backoff = Backoff(rounds=4, until=at(10))
    seen = pool.status.model_copy(update={"observed_generation": 1})
    plan = plan_pool(given_pool(pool, now=at(5), backoff=backoff, previous=seen))
    assert plan.create == ()
    assert plan.wake_seconds == 5
    assert "keep failing" in available(plan)[2]
    assert len(plan_pool(given_pool(pool, now=at(10), backoff=backoff, previous=seen)).create) == 1
    assert len(plan_pool(given_pool(pool, now=at(5), backoff=backoff)).create) == 1, "a change is tried at once"


def test_ready_workers_drain_before_they_are_ended() -> None:
    workers = [made_ready(make_worker(f"pool-{slot}"), at(1)) for slot in range(3)] + [make_worker("pool-3")]
    plan = plan_pool(given_pool(make_pool(2), workers, now=at(5)))
    assert [worker.metadata.name for worker in plan.drain] == ["pool-2"]
    assert [removal.worker.metadata.name for removal in plan.delete] == ["pool-3"]
    draining = not_ready(make_worker("pool-2", spec={"drain": True}), "Draining", at(5))
    since = {draining.metadata.uid: 5.0}
    later = given_pool(make_pool(2), [*workers[:2], draining], clock=Clock(6.0, since))
    assert plan_pool(later).wake_seconds == 29
    assert [removal.worker for removal in plan_pool(replace(later, clock=Clock(35.0, since))).delete] == [draining]


def test_workers_that_surely_rest_are_ended_without_draining() -> None:
    workers = [made_ready(make_worker(f"pool-{slot}"), at(1)) for slot in range(4)]
    uids = [worker.metadata.uid for worker in workers]
    resting = given_pool(
        make_pool(0),
        workers,
        busy=frozenset(uids[:1]),
        active={uids[1]: 1000.0 - REST_SECONDS / 2, uids[2]: 1000.0 - 2 * REST_SECONDS},
        clock=Clock(1000.0, dict.fromkeys(uids, 0.0)),
        heard_seconds=REST_SECONDS,
    )
    plan = plan_pool(resting)
    assert plan.drain == (workers[1], workers[0]), "one was active lately, one runs a ServiceAction"
    assert {removal.worker.metadata.uid for removal in plan.delete} == {*uids[2:]}
    for unsure in (
        replace(resting, heard_seconds=REST_SECONDS - 1),
        replace(resting, clock=Clock(1000.0, dict.fromkeys(uids, 1000.0 - REST_SECONDS + 1))),
        replace(resting, clock=Clock(1000.0)),
    ):
        assert plan_pool(unsure).delete == (), "it may have begun to work unheard"
        assert len(plan_pool(unsure).drain) == 4


def test_workers_at_work_go_last() -> None:
    workers = [made_ready(make_worker(f"pool-{slot}"), at(1)) for slot in range(4)]
    active = {workers[3].metadata.uid: 990.0}
    plan = plan_pool(given_pool(make_pool(3), workers, active=active, clock=Clock(1000.0)))
    assert plan.drain == (workers[2],)


def test_a_suspended_pool_keeps_its_replicas_in_mind() -> None:
    workers = [make_worker(f"pool-{slot}") for slot in range(2)]
    plan = plan_pool(given_pool(make_pool(2, suspend=True), workers))
    assert len(plan.delete) == 2
    assert available(plan)[1] == "Suspended"


def test_a_deleted_pool_deletes_all_its_workers_without_delay() -> None:
    workers = [made_ready(make_worker(f"pool-{slot}"), at(1)) for slot in range(2)]
    plan = plan_pool(given_pool(make_pool(2, deleted=True), workers))
    assert (len(plan.delete), plan.drain, plan.create) == (2, (), ())
    assert available(plan)[:2] == ("False", "Terminating")


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("pass"), st.integers(0, 400)),
        st.tuples(st.sampled_from(["ready", "failed", "gone", "unlabelled"]), st.integers(0, 20)),
        st.tuples(st.just("scale"), st.integers(0, 12)),
        st.tuples(st.just("publish"), st.integers(0, 3)),
        st.tuples(st.just("jump"), st.integers(-100_000, 100_000)),
        st.tuples(st.sampled_from(["restart", "stale", "cordon", "uncordon"]), st.just(0)),
    ),
    max_size=40,
)


@given(st.integers(0, 12), st.sampled_from([1, 3, "10%", "50%", "100%"]), EVENTS)
def test_whatever_happens_there_are_never_too_many_and_in_the_end_just_enough(
    replicas: int, unavailable: int | str, events: list[tuple[str, int]]
) -> None:
    open_sites = {"a": make_site("a"), "b": make_site("b")}
    world = World(make_pool(replicas, rollout={"maxUnavailable": unavailable}), sites=open_sites)
    stale = world.given()
    for what, number in events:
        if what == "pass":
            world.pass_time(number)
            before = len(world.serving())
            ready, surplus = len(world.ready()), len(world.ready()) - world.pool.spec.replicas
            stale, plan = world.given(), plan_pool(world.given())
            assert plan == plan_pool(world.given()), "the same input gives the same plan"
            names = [new.name for new in plan.create]
            assert len(set(names)) == len(names)
            assert not set(names) & (set(world.workers) - {removal.worker.metadata.name for removal in plan.delete})
            world.carry_out(plan)
            desired = world.pool.spec.replicas
            assert len(world.serving()) <= max(before, desired)
            lost = ready - len(world.ready()) - max(0, surplus)
            permitted = parse_max_unavailable(unavailable, desired)
            assert lost <= 0 or len(world.ready()) >= desired - permitted, "a rollout takes no more than it may"
        elif what == "scale":
            world.change(replicas=number)
        elif what == "publish":
            world.publish(images={"pod": "image"}, resources={"cpu": number + 1})
        elif what == "jump":
            world.now += timedelta(seconds=number)
        elif what == "restart":
            world.restart()
        elif what == "stale":
            world.carry_out(plan_pool(replace(stale, pool=world.pool, now=world.now)))
        elif what in ("cordon", "uncordon"):
            world.sites = {**open_sites, "a": make_site("a", cordoned=what == "cordon")}
        else:
            world.set(number, what)
    world.settle(turns=120)
    desired = world.pool.spec.replicas
    assert len(world.workers) == desired
    assert all(map(is_ready, world.workers.values()))
    plan = plan_pool(world.given())
    assert (plan.create, plan.drain, plan.delete, plan.adopt) == ((), (), (), ())
    assert (plan.status.ready_replicas, plan.status.updated_replicas) == (desired, desired)
    assert plan.wake_seconds is None
    assert plan.status == plan_pool(replace(world.given(), previous=plan.status)).status, "at rest nothing is written"
