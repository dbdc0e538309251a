# SPDX-License-Identifier: Apache-2.0
"""Which sites a pool may use, and how workers are spread over them."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from plan_objects import make_pool, make_site

from simyard.api.simulation_service import Resources
from simyard.plan.placement import Choice, choose_sites, place_workers


def choose(*sites: Any, **placement: Any) -> Choice:
    return choose_sites(make_pool(placement=placement), {site.name: site for site in sites}, Resources())


def names(choice: Choice) -> list[str]:
    return [state.name for state in choice.permitted]


def test_every_reason_that_keeps_a_site_out_is_told() -> None:
    choice = choose(
        make_site("good"),
        make_site("cordoned", cordoned=True),
        make_site("down", ready=False),
        make_site("others", allowedNamespaces={"from": "Selected", "names": ["elsewhere"]}),
        make_site("abroad", trust="External"),
        make_site("full", exhausted=True),
        make_site("crowded", workers=5, limits={"maxWorkers": 5}),
    )
    assert names(choice) == ["good"]
    assert set(choice.refused) == {"cordoned", "down", "others", "abroad", "full", "crowded"}
    assert "Unavailable" in choice.refused["down"]
    assert "consent" in choice.refused["abroad"]


def test_an_external_site_needs_consent_by_name() -> None:
    assert names(choose(make_site("abroad", trust="External"), consent=["abroad"])) == ["abroad"]
    assert names(choose(make_site("abroad", trust="External"), sites=["abroad"])) == []


def test_named_sites_keep_their_order_and_absent_ones_are_missed() -> None:
    choice = choose(make_site("a"), make_site("b"), sites=["b", "nowhere", "a"])
    assert names(choice) == ["b", "a"]
    assert choice.missing == ("nowhere",)
    assert choice.reason == "SiteNotFound"


def test_cheapest_counts_cores() -> None:
    sites = (
        make_site("flat", cost={"workerHourMillis": 50}),
        make_site("per-core", cost={"coreHourMillis": 20}),
    )
    pool = make_pool(placement={"strategy": "Cheapest"})
    by_name = {site.name: site for site in sites}
    assert names(choose_sites(pool, by_name, Resources(cpu=2))) == ["per-core", "flat"]
    assert names(choose_sites(pool, by_name, Resources(cpu="3500m"))) == ["flat", "per-core"]


def test_cheapest_compares_prices_of_one_currency_only() -> None:
    sites = (
        make_site("a-yen", cost={"workerHourMillis": 9000, "currency": "JPY"}),
        make_site("b-euro", cost={"workerHourMillis": 50}),
        make_site("c-yen", cost={"workerHourMillis": 8000, "currency": "JPY"}),
        make_site("d-dollar", cost={"workerHourMillis": 40, "currency": "USD"}),
        make_site("e-free"),
    )
    assert names(choose(*sites, strategy="Cheapest")) == ["e-free", "c-yen", "a-yen", "b-euro", "d-dollar"]


def test_fastest_prefers_what_was_seen_to_be_fast() -> None:
    sites = (make_site("unknown"), make_site("slow", boot_seconds=90), make_site("fast", boot_seconds=3))
    assert names(choose(*sites, strategy="Fastest")) == ["fast", "slow", "unknown"]


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 30)), min_size=1, max_size=6),
    st.integers(0, 60),
    st.booleans(),
)
def test_placing_fills_the_room_there_is_and_no_more(sites: list[tuple[int, int]], count: int, spread: bool) -> None:
    states = [
        make_site(f"s{index}", workers=workers, limits={"maxWorkers": most})
        for index, (workers, most) in enumerate(sites)
    ]
    choice = Choice(tuple(states), {})
    own = {state.name: state.workers // 2 for state in states}
    placed = place_workers(count, choice, own if spread else None)
    assert len(placed) == min(count, sum(state.room for state in states))
    for state in states:
        assert placed.count(state.name) <= state.room
    if spread:
        loads = {state.name: own[state.name] + placed.count(state.name) for state in states}
        free = [state.name for state in states if placed.count(state.name) < state.room]
        given_some = [name for name in loads if placed.count(name)]
        assert all(loads[name] <= loads[other] + 1 for name in given_some for other in free)


def test_a_spread_pool_is_spread_whatever_others_have_where() -> None:
    choice = Choice((make_site("a", workers=70), make_site("b")), {})
    assert sorted(place_workers(4, choice, {})) == ["a", "a", "b", "b"]
    assert place_workers(1, choice, {"a": 1, "b": 1}) == ["b"], "of equal ones the site with fewer workers"
