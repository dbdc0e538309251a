"""Seats of licences: never too many, first come first served, and nobody waits for ever."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_objects import NOW, at, made_ready, make_pool, make_service, make_site, make_worker

from simyard.api.base import Condition, find_condition
from simyard.api.licence import Licence
from simyard.api.simulation_service import SimulationService
from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool
from simyard.plan.backoff import Backoff
from simyard.plan.licence import (
    Allotment,
    Claim,
    Terms,
    allot,
    allotment_of,
    claim_of,
    in_queue,
    licence_condition,
    licence_key,
    licence_status,
    shared_status,
    terms_of,
)
from simyard.plan.placement import SiteState
from simyard.plan.pool import PoolPlan, plan_pool
from simyard.plan.pool_input import PoolInput
from simyard.plan.service import ServiceCounts, plan_service

SITES = {"a": make_site("a")}
SERVICE = make_service(licence={"seats": 5})


def shared_service(name: str = "acme") -> SimulationService:
    return make_service(licence={"licenceRef": {"name": name}}).service


def make_licence(seats: int = 5, **spec: Any) -> Licence:
    return Licence.model_validate({"metadata": {"name": "acme"}, "spec": {"seats": seats, **spec}})


def claim(pool: str, held: int = 0, desired: int = 0, since: float | None = None, granted: int = 0) -> Claim:
    return Claim(pool, held, granted, desired, None if since is None else at(since))


def test_a_services_own_seats_are_for_itself_and_those_of_a_licence_for_all_that_name_it() -> None:
    assert licence_key(SERVICE.service) == "ns/service"
    assert licence_key(shared_service()) == "acme"
    assert licence_key(make_service().service) == ""


def test_the_oldest_claim_takes_what_is_free_and_a_smaller_one_does_not_overtake_it() -> None:
    claims = [claim("large", desired=10, since=1), claim("small", desired=1, since=2)]
    assert allot(4, 0, claims) == {"large": 4, "small": 0}
    assert allot(11, 0, claims) == {"large": 10, "small": 1}


def test_what_was_granted_is_kept_for_its_pool_while_its_workers_are_replaced() -> None:
    claims = [claim("first", held=2, granted=5, desired=5), claim("second", desired=5, since=0)]
    assert allot(5, 0, claims) == {"first": 5, "second": 0}


def test_fewer_seats_than_workers_end_nobody_and_let_nobody_in() -> None:
    claims = [claim("first", held=4, granted=6, desired=6), claim("second", held=1, desired=5, since=0)]
    assert allot(2, 1, claims) == {"first": 4, "second": 1}


def test_a_pool_that_cannot_use_seats_is_passed_over() -> None:
    claims = [claim("stuck", desired=5), claim("second", desired=5, since=3)]
    assert allot(5, 0, claims) == {"stuck": 0, "second": 5}


CLAIMS = st.lists(
    st.builds(
        Claim,
        pool=st.uuids().map(str),
        held=st.integers(0, 8),
        granted=st.integers(0, 8),
        desired=st.integers(0, 12),
        since=st.one_of(st.none(), st.integers(0, 5).map(at)),
    ),
    max_size=8,
    unique_by=lambda item: item.pool,
)


@given(st.integers(0, 40), st.integers(0, 10), CLAIMS)
def test_never_more_seats_than_there_are_and_none_idle_while_somebody_waits(
    seats: int, others: int, claims: list[Claim]
) -> None:
    result = allot(seats, others, claims)
    held = sum(item.held for item in claims)
    total = sum(result.values()) + others
    assert total <= max(seats, held + others)
    assert all(result[item.pool] >= item.held for item in claims)
    unmet = [item for item in in_queue(claims) if result[item.pool] < item.desired]
    assert not unmet or total >= seats
    if unmet:  # nobody behind the first whose claim is not met got anything beyond what it had
        behind = in_queue(claims)[in_queue(claims).index(unmet[0]) + 1 :]
        assert all(result[item.pool] <= item.kept for item in behind)
    assert allot(seats, others, list(reversed(claims))) == result


@given(st.integers(0, 40), CLAIMS, st.integers(0, 7), st.integers(0, 7))
def test_two_operators_at_the_same_moment_give_out_free_seats_twice_at_most_and_then_no_more(
    seats: int, claims: list[Claim], first: int, second: int
) -> None:
    if not claims:
        return
    planned = [claims[index % len(claims)].pool for index in (first, second)]
    free = max(0, seats - sum(item.held for item in claims))
    new: dict[str, int] = {}
    for pool in planned:  # both see the same objects, and neither sees what the other one does
        seen = [replace(item, since=item.since or at(9)) if item.pool == pool else item for item in claims]
        held = next(item.held for item in claims if item.pool == pool)
        new[pool] = max(new.get(pool, 0), allot(seats, 0, seen)[pool] - held)  # names are slots: one set of Workers
    assert sum(new.values()) <= free * len(new)
    after = [replace(item, held=item.held + new.get(item.pool, 0), since=at(9)) for item in claims]
    if sum(item.held for item in after) >= seats:
        assert allot(seats, 0, after) == {item.pool: item.held for item in after}


@dataclass
class World:
    """Pools that share a licence, in the hands of their plans; what is created takes a while to be seen by others."""

    seats: int
    pools: dict[str, WorkerPool]
    workers: dict[str, dict[str, Worker]] = field(default_factory=dict)
    alone: int = 0
    now: datetime = NOW
    sites: dict[str, SiteState] = field(default_factory=lambda: SITES)
    stuck: set[str] = field(default_factory=set)
    flying: dict[str, PoolPlan] = field(default_factory=dict)

    def held(self, name: str) -> int:
        return len(self.workers.setdefault(name, {}))

    def claims(self, asks: str = "") -> dict[str, Claim]:
        return {
            name: claim_of(pool, pool.status, self.held(name), asks=self.now if name == asks else None)
            for name, pool in self.pools.items()
        }

    def allotment(self, name: str) -> Allotment:
        claims = self.claims(name)
        return allotment_of(
            claims[name], list(claims.values()), licence="acme", terms=Terms(self.seats), others=self.alone, here={}
        )

    def decide(self, name: str) -> PoolPlan:
        """The plan is made, and counts; its Workers come later."""
        pool = self.pools[name]
        plan = plan_pool(
            PoolInput(
                pool=pool,
                previous=pool.status,
                backoff=Backoff(),
                workers=list(self.workers.setdefault(name, {}).values()),
                service=SERVICE,
                sites={} if name in self.stuck else self.sites,
                now=self.now,
                licence=self.allotment(name),
            )
        )
        self.pools[name] = pool.model_copy(update={"status": plan.status})
        self.flying[name] = plan
        return plan

    def carry_out(self, name: str) -> None:
        plan = self.flying.pop(name, None)
        if plan is None:
            return
        mine = self.workers[name]
        for removal in plan.delete:
            mine.pop(removal.worker.metadata.name, None)
        for worker in plan.drain:
            mine.pop(worker.metadata.name, None)
        for new in plan.create:
            mine.setdefault(new.name, made_ready(make_worker(new.name, requested=self.now), self.now))

    def plan(self, name: str) -> PoolPlan:
        self.carry_out(name)
        plan = self.decide(name)
        self.carry_out(name)
        return plan

    def scale(self, name: str, replicas: int) -> None:
        pool = self.pools[name]
        meta = pool.metadata.model_copy(update={"generation": pool.metadata.generation + 1})
        spec = pool.spec.model_copy(update={"replicas": replicas})
        self.pools[name] = pool.model_copy(update={"metadata": meta, "spec": spec})

    def restart(self) -> None:
        """Nothing is remembered but objects, and whatever was under way was done in part or not at all."""
        self.flying.clear()

    def total(self) -> int:
        return self.alone + sum(map(len, self.workers.values()))

    def condition(self, name: str) -> Condition:
        found = find_condition(self.pools[name].status.conditions, "LicenceAvailable")
        assert found is not None
        return found


def world(seats: int, **replicas: int) -> World:
    """Pools in the order of their creation, a minute apart; the last one is a minute old."""
    pools = {}
    for age, (name, count) in enumerate(reversed(replicas.items()), 1):
        pool = make_pool(count, name)
        meta = pool.metadata.model_copy(update={"creation_timestamp": at(-60 * age)})
        pools[name] = pool.model_copy(update={"metadata": meta})
    return World(seats, pools)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["decide", "done", "plan", "lose", "stick"]), st.sampled_from("abc"), st.just(0)),
        st.tuples(st.just("scale"), st.sampled_from("abc"), st.integers(0, 9)),
        st.tuples(st.just("restart"), st.just("a"), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
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
    own = claim_of(pool, pool.status, 1, asks=NOW)
    seen = allotment_of(
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


CLOSED = {"from": "Selected", "names": ["elsewhere"]}


@pytest.mark.parametrize(
    ("licence", "status", "reason"),
    [
        (None, "False", "LicenceNotFound"),
        (make_licence(allowedNamespaces=CLOSED), "False", "LicenceForbidden"),
        (make_licence(), "True", "LicenceFound"),
    ],
)
def test_a_service_says_whether_it_may_use_the_licence_that_it_names(
    licence: Licence | None, status: str, reason: str
) -> None:
    service = shared_service()
    found = licence_condition(service, terms_of(service, licence), NOW)
    assert found is not None
    assert (found.status, found.reason) == (status, reason)
    assert licence_condition(SERVICE.service, terms_of(SERVICE.service, None), NOW) is None


@pytest.mark.parametrize("licence", [None, make_licence(allowedNamespaces=CLOSED)])
def test_a_pool_of_a_service_that_may_not_use_its_licence_waits_with_that_reason(licence: Licence | None) -> None:
    pool, terms = make_pool(3, "mine"), terms_of(shared_service(), licence)
    own = claim_of(pool, pool.status, 1, asks=NOW)
    given = allotment_of(own, [own], licence="acme", terms=terms, others=0, here={})
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


@given(st.integers(0, 40), st.integers(1, 10), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20)), max_size=8))
def test_no_namespace_is_given_more_than_its_limit_and_the_others_get_what_it_leaves(
    seats: int, limit: int, wanted: list[tuple[int, int]]
) -> None:
    claims = [
        Claim(f"pool-{index}", held, held, desired, at(index), f"ns-{index % 2}")
        for index, (held, desired) in enumerate(wanted)
    ]
    result = allot(seats, 1, claims, limit=limit, outside={"ns-0": 1})
    for namespace, outside in (("ns-0", 1), ("ns-1", 0)):
        mine = [claim for claim in claims if claim.namespace == namespace]
        held = outside + sum(claim.held for claim in mine)
        given = outside + sum(result[claim.pool] for claim in mine)
        assert given <= max(limit, held)
        short = any(result[claim.pool] < claim.desired for claim in mine)
        assert not short or given >= limit or 1 + sum(result.values()) >= seats


def test_the_status_of_a_licence_counts_seats_and_services() -> None:
    claims = [claim("a", held=3, granted=3, desired=3), claim("b", held=2, granted=2, desired=6, since=1)]
    status = shared_status(make_licence(6), 2, 1, claims, NOW)
    assert (status.services, status.used, status.waiting) == (2, 6, 4)
    assert [(item.type, item.status, item.reason) for item in status.conditions] == [
        ("Available", "False", "SeatsTaken")
    ]
    assert shared_status(make_licence(7), 2, 1, claims, NOW).conditions[0].reason == "SeatsLeft"


def test_a_service_shows_the_seats_of_its_licence() -> None:
    claims = [claim("a", held=3, granted=3, desired=3), claim("b", held=2, granted=2, desired=6, since=1)]
    status = plan_service(SERVICE, ServiceCounts(2, 6, 5), NOW, licence_status(6, 1, claims))
    assert status.licence is not None
    assert (status.licence.seats, status.licence.taken, status.licence.waiting) == (6, 6, 4)
    assert plan_service(make_service(), ServiceCounts(0, 0, 0), NOW).licence is None
