# SPDX-License-Identifier: Apache-2.0
"""The allowance of events of a broker user."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from simyard.messaging.allowance import (
    BURST_SECONDS,
    BYTES_PER_TOKEN,
    EVENTS_PER_SECOND,
    EVENTS_PER_SECOND_AND_WORKER,
    Allowances,
)


def allowances(**workers: int) -> Allowances:
    counts: Mapping[str, int] = workers
    return Allowances(lambda user: counts.get(user, 0))


def spent(found: Allowances, user: str, now: float, events: int) -> int:
    return sum(found.spend(user, now) for _ in range(events))


def test_a_burst_is_permitted_and_no_more_at_the_same_moment() -> None:
    assert spent(allowances(), "a", 1.0, 10_000) == EVENTS_PER_SECOND * BURST_SECONDS


def test_each_sender_has_its_own_allowance_that_grows_with_its_workers() -> None:
    found = allowances(large=10_000)
    assert spent(found, "small", 1.0, 100_000) == EVENTS_PER_SECOND * BURST_SECONDS
    rate = EVENTS_PER_SECOND + 10_000 * EVENTS_PER_SECOND_AND_WORKER
    assert spent(found, "large", 1.0, 1_000_000) == rate * BURST_SECONDS


def test_a_steady_sender_below_the_rate_is_never_refused() -> None:
    found = allowances()
    step = 1.01 / EVENTS_PER_SECOND
    assert all(found.spend("a", number * step) for number in range(20_000))


def test_large_events_cost_more_and_one_above_the_bucket_is_permitted() -> None:
    found = allowances()
    assert found.spend("a", 1.0, size=int(EVENTS_PER_SECOND * BURST_SECONDS) * BYTES_PER_TOKEN)
    assert not found.spend("a", 1.0)
    assert not found.spend("a", 1.001)
    assert found.spend("a", 1.1)


def test_a_forgotten_sender_begins_with_a_full_bucket() -> None:
    found = allowances()
    spent(found, "a", 1.0, 10_000)
    assert not found.spend("a", 1.0)
    found.forget("a")
    assert found.spend("a", 1.0)


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(1, 3000)), max_size=30))
def test_no_sender_gets_more_than_its_burst_and_its_rate(steps: list[tuple[float, int]]) -> None:
    found, now, permitted = allowances(), 0.0, 0
    for pause, events in steps:
        now += pause
        permitted += spent(found, "a", now, events)
    assert permitted <= EVENTS_PER_SECOND * (BURST_SECONDS + now) + 1
