# SPDX-License-Identifier: Apache-2.0
"""Pools that share a licence: never more workers than seats, first come first served, and a reason for each wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from licence_world import CLOSED, SERVICE, SITES, make_licence, shared_service, world
from plan_objects import NOW, at, make_pool, make_service, make_worker

from simyard.api.base import find_condition
from simyard.api.licence import Licence
from simyard.plan.backoff import Backoff
from simyard.plan.licence import (
    Claim,
    Terms,
    get_terms,
    make_allotment,
    make_claim,
)
from simyard.plan.pool import plan_pool
from simyard.plan.pool_input import PoolInput

STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["decide", "done", "plan", "lose", "stick"]), st.sampled_from("abc"), st.just(0)),
        st.tuples(st.just("scale"), st.sampled_from("abc"), st.integers(0, 9)),
        st.tuples(st.just("restart"), st.just("a"), st.just(0)),
    ),
    max_size=40,
)


@given(st.integers(0, 12), st.integers(0, 3), STEPS)
def test_whatever_happens_there_are_never_more_workers_than_seats_and_in_the_end_everybody_is_served(
    seats: int, alone: int, steps: Sequence[tuple[str, str, int]]
) -> None:
    made = world(seats, a=4, b=5, c=3)
    made.alone = min(alone, seats)
    for what, name, number in steps:
        made.now += timedelta(seconds=1)
        if what == "decide":
            made.carry_out(name)  # passes over one pool follow each other
            made.decide(name)
        elif what == "done":
            made.carry_out(name)
        elif what == "plan":
            made.plan(name)
        elif what == "lose" and made.workers.get(name):
            made.workers[name].popitem()
        elif what == "stick":
            made.stuck ^= {name}
        elif what == "scale":
            made.scale(name, number)
        elif what == "restart":
            made.restart()
        assert made.total() <= seats
    made.stuck.clear()
    for _ in range(4):
        made.now += timedelta(seconds=1)
        for name in made.pools:
            made.plan(name)
            assert made.total() <= seats
    wanted = sum(pool.spec.replicas for pool in made.pools.values())
    assert made.total() == min(seats, wanted + made.alone)
    for name, pool in made.pools.items():  # and who waits is served as soon as the others need nothing
        if made.held(name) < pool.spec.replicas:
            for other in set(made.pools) - {name}:
                made.scale(other, 0)
                made.plan(other)
                made.plan(other)  # its workers are gone now
            made.plan(name)
            assert made.held(name) == min(pool.spec.replicas, seats - made.alone)
            break


def test_a_large_pool_starts_in_part_and_says_what_it_waits_for() -> None:
    made = world(5, a=2, b=4)
    made.plan("a")
    made.now = at(1)
    plan = made.plan("b")
    assert len(plan.create) == 3
    assert made.pools["b"].status.licensed_replicas == 3
    waiting = made.condition("b")
    assert (waiting.status, waiting.reason) == ("False", "WaitingForSeats")
    assert waiting.message.startswith("waits for 1 more seats, as number 1 in the queue; licence acme has 5 seats")
    available = find_condition(made.pools["b"].status.conditions, "Available")
    assert available is not None
    assert available.reason == "WaitingForSeats"
    assert made.condition("a").reason == "SeatsGranted"


def test_first_come_survives_a_restart_since_the_condition_says_when() -> None:
    made = world(2, a=2, c=2, b=2)
    for second, name in enumerate("acb"):
        made.now = at(second)
        made.plan(name)
    assert "as number 1 " in made.condition("c").message
    assert "as number 2 " in made.condition("b").message
    since = made.condition("c").last_transition_time
    made.restart()
    made.now = at(100)
    made.scale("a", 0)
    for name in "abcabc":  # the queue decides, not the order of the plans
        made.plan(name)
    assert (made.held("a"), made.held("b"), made.held("c")) == (0, 0, 2)
    assert made.condition("b").last_transition_time > since


def test_after_a_restart_pools_that_nobody_has_planned_are_served_in_the_order_of_their_creation() -> None:
    made = world(3, early=3, late=3)
    made.plan("late")
    made.plan("early")
    made.plan("late")
    assert (made.held("late"), made.held("early")) == (0, 3)
    assert "as number 1 " in made.condition("late").message


def test_a_failed_worker_is_replaced_though_others_wait() -> None:
    made = world(3, a=3, b=3)
    made.plan("a")
    made.now = at(1)
    made.plan("b")
    made.workers["a"].popitem()
    made.plan("b")
    made.plan("a")
    assert (made.held("a"), made.held("b")) == (3, 0)


def test_who_cannot_use_a_seat_lets_others_go_first_and_keeps_its_place() -> None:
    made = world(2, a=2, b=2, c=1)
    for second, name in enumerate("abc"):
        made.now = at(second)
        made.plan(name)
    since = made.condition("b").last_transition_time
    made.stuck.add("b")
    made.plan("b")
    assert made.condition("b").reason == "PassedOver"
    made.now = at(10)
    made.scale("a", 1)
    for name in "abcabc":
        made.plan(name)
    assert (made.held("b"), made.held("c")) == (0, 1)
    made.stuck.clear()
    made.plan("b")
    assert made.condition("b").last_transition_time == since
    assert "as number 1 " in made.condition("b").message


def test_of_other_namespaces_only_a_number_is_told() -> None:
    others = [Claim(f"uid-{index}", 1, 1, 1) for index in range(4)]
    pool = make_pool(3, "mine")
    own = make_claim(pool, pool.status, 1, asks=NOW)
    seen = make_allotment(
        own, [own, *others], licence="acme", terms=Terms(8), others=3, here={"mine": 1, "next": 1, "": 1}
    )
    plan = plan_pool(
        PoolInput(pool=pool, previous=pool.status, backoff=Backoff(), workers=[make_worker("mine-0")], service=SERVICE,
                  sites=SITES, now=NOW, licence=replace(seen, seats=1))
    )  # fmt: skip
    message = next(item.message for item in plan.status.conditions if item.type == "LicenceAvailable")
    assert message.endswith("8 taken: 1 by this pool, 1 by pool next, 1 by workers without a pool, 5 elsewhere")


def test_without_a_licence_nothing_is_said_of_seats() -> None:
    made = world(1, a=2)
    made.plan("a")
    pool = made.pools["a"]
    plan = plan_pool(PoolInput(pool=pool, previous=pool.status, backoff=Backoff(), workers=[], service=make_service(),
                               sites=SITES, now=NOW))  # fmt: skip
    assert plan.status.licensed_replicas is None
    assert find_condition(plan.status.conditions, "LicenceAvailable") is None


@pytest.mark.parametrize("licence", [None, make_licence(allowedNamespaces=CLOSED)])
def test_a_pool_of_a_service_that_may_not_use_its_licence_waits_with_that_reason(licence: Licence | None) -> None:
    pool, terms = make_pool(3, "mine"), get_terms(shared_service(), licence)
    own = make_claim(pool, pool.status, 1, asks=NOW)
    given = make_allotment(own, [own], licence="acme", terms=terms, others=0, here={})
    plan = plan_pool(
        PoolInput(pool=pool, previous=pool.status, backoff=Backoff(), workers=[make_worker("mine-0")], sites=SITES,
                  service=make_service(licence={"licenceRef": {"name": "acme"}}), now=NOW, licence=given)
    )  # fmt: skip
    assert terms.refusal is not None
    assert not plan.create
    assert not plan.delete, "what runs goes on"
    for kind in ("Available", "LicenceAvailable"):
        condition = find_condition(plan.status.conditions, kind)
        assert condition is not None
        assert (condition.status, condition.reason) == ("False", terms.refusal[0])
        assert terms.refusal[1] in condition.message
