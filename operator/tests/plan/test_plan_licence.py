# SPDX-License-Identifier: Apache-2.0
"""Seats of licences: never too many, first come first served, and nobody waits for ever."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from licence_world import CLOSED, SERVICE, claim, make_licence, shared_service
from plan_objects import NOW, at, make_service

from simyard.api.licence import Licence
from simyard.plan.licence import (
    Claim,
    allot_seats,
    get_licence_key,
    get_terms,
    plan_licence_condition,
    plan_shared_status,
    sort_queue,
    sum_seats,
)
from simyard.plan.service import ServiceCounts, plan_service


def test_a_services_own_seats_are_for_itself_and_those_of_a_licence_for_all_that_name_it() -> None:
    assert get_licence_key(SERVICE.service) == "ns/service"
    assert get_licence_key(shared_service()) == "acme"
    assert get_licence_key(make_service().service) == ""


def test_the_oldest_claim_takes_what_is_free_and_a_smaller_one_does_not_overtake_it() -> None:
    claims = [claim("large", desired=10, since=1), claim("small", desired=1, since=2)]
    assert allot_seats(4, 0, claims) == {"large": 4, "small": 0}
    assert allot_seats(11, 0, claims) == {"large": 10, "small": 1}


def test_what_was_granted_is_kept_for_its_pool_while_its_workers_are_replaced() -> None:
    claims = [claim("first", held=2, granted=5, desired=5), claim("second", desired=5, since=0)]
    assert allot_seats(5, 0, claims) == {"first": 5, "second": 0}


def test_fewer_seats_than_workers_end_nobody_and_let_nobody_in() -> None:
    claims = [claim("first", held=4, granted=6, desired=6), claim("second", held=1, desired=5, since=0)]
    assert allot_seats(2, 1, claims) == {"first": 4, "second": 1}


def test_a_pool_that_cannot_use_seats_is_passed_over() -> None:
    claims = [claim("stuck", desired=5), claim("second", desired=5, since=3)]
    assert allot_seats(5, 0, claims) == {"stuck": 0, "second": 5}


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
    result = allot_seats(seats, others, claims)
    held = sum(item.held for item in claims)
    total = sum(result.values()) + others
    assert total <= max(seats, held + others)
    assert all(result[item.pool] >= item.held for item in claims)
    unmet = [item for item in sort_queue(claims) if result[item.pool] < item.desired]
    assert not unmet or total >= seats
    if unmet:  # nobody behind the first whose claim is not met got anything beyond what it had
        behind = sort_queue(claims)[sort_queue(claims).index(unmet[0]) + 1 :]
        assert all(result[item.pool] <= item.kept for item in behind)
    assert allot_seats(seats, others, list(reversed(claims))) == result


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
        new[pool] = max(
            new.get(pool, 0), allot_seats(seats, 0, seen)[pool] - held
        )  # names are slots: one set of Workers
    assert sum(new.values()) <= free * len(new)
    after = [replace(item, held=item.held + new.get(item.pool, 0), since=at(9)) for item in claims]
    if sum(item.held for item in after) >= seats:
        assert allot_seats(seats, 0, after) == {item.pool: item.held for item in after}


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
    found = plan_licence_condition(service, get_terms(service, licence), NOW)
    assert found is not None
    assert (found.status, found.reason) == (status, reason)
    assert plan_licence_condition(SERVICE.service, get_terms(SERVICE.service, None), NOW) is None


@given(st.integers(0, 40), st.integers(1, 10), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20)), max_size=8))
def test_no_namespace_is_given_more_than_its_limit_and_the_others_get_what_it_leaves(
    seats: int, limit: int, wanted: list[tuple[int, int]]
) -> None:
    claims = [
        Claim(f"pool-{index}", held, held, desired, at(index), f"ns-{index % 2}")
        for index, (held, desired) in enumerate(wanted)
    ]
    result = allot_seats(seats, 1, claims, limit=limit, outside={"ns-0": 1})
    for namespace, outside in (("ns-0", 1), ("ns-1", 0)):
        mine = [claim for claim in claims if claim.namespace == namespace]
        held = outside + sum(claim.held for claim in mine)
        given = outside + sum(result[claim.pool] for claim in mine)
        assert given <= max(limit, held)
        short = any(result[claim.pool] < claim.desired for claim in mine)
        assert not short or given >= limit or 1 + sum(result.values()) >= seats


def test_the_status_of_a_licence_counts_seats_and_services() -> None:
    claims = [Claim("a", 3, 3, 3, None, "ns"), Claim("b", 2, 2, 6, at(1), "ns")]
    status = plan_shared_status(make_licence(6), 2, {"ns": 1}, claims, NOW)
    assert (status.services, status.used, status.waiting) == (2, 6, 4)
    assert [(item.type, item.status, item.reason) for item in status.conditions] == [
        ("Available", "False", "SeatsTaken")
    ]
    assert plan_shared_status(make_licence(7), 2, {"ns": 1}, claims, NOW).conditions[0].reason == "SeatsLeft"


def test_the_status_of_a_licence_names_the_namespaces_that_hold_seats_most_seats_first() -> None:
    claims = [Claim("a", 2, 2, 2, None, "few"), Claim("b", 4, 4, 4, None, "many"), Claim("c", 0, 0, 9, at(1), "none")]
    status = plan_shared_status(make_licence(9), 3, {"few": 1, "gone": 1, "none": 0}, claims, NOW)
    assert [(item.name, item.used) for item in status.namespaces] == [("many", 4), ("few", 3), ("gone", 1)]
    assert status.used == 8


def test_the_status_of_a_licence_names_a_bounded_number_of_namespaces() -> None:
    outside = {f"ns-{number:03}": 1 for number in range(150)} | {"ns-149": 2}
    status = plan_shared_status(make_licence(200), 150, outside, [], NOW)
    assert [item.name for item in status.namespaces] == ["ns-149", *(f"ns-{number:03}" for number in range(99))]
    assert status.used == 151


def test_a_service_shows_the_seats_of_its_licence() -> None:
    claims = [claim("a", held=3, granted=3, desired=3), claim("b", held=2, granted=2, desired=6, since=1)]
    status = plan_service(SERVICE, ServiceCounts(2, 6, 5), NOW, sum_seats(6, 1, claims))
    assert status.licence is not None
    assert (status.licence.seats, status.licence.taken, status.licence.waiting) == (6, 6, 4)
    assert plan_service(make_service(), ServiceCounts(0, 0, 0), NOW).licence is None
