# SPDX-License-Identifier: Apache-2.0
"""Circuit breaker: the number of requests to a broken site, and its recovery."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simyard.plan.breaker import MAX_PAUSE_SECONDS, OPENING_FAILURES, Breaker, BreakerState, judge_call
from simyard.plan.pace import MAX_RETRY_AFTER_SECONDS
from simyard_sites.base import (
    CapacityExhaustedError,
    InternalError,
    InvalidSpecError,
    SiteError,
    ThrottledError,
    UnauthenticatedError,
    UnavailableError,
    UnknownOutcomeError,
)

DOWN = UnavailableError("down")


def opened(breaker: Breaker, now: float = 0.0) -> Breaker:
    for _ in range(OPENING_FAILURES):
        breaker = breaker.record_failure(DOWN, now, 0.5)
    assert breaker.state is BreakerState.OPEN
    return breaker


def test_it_opens_after_failures_in_a_row_and_permits_nothing() -> None:
    breaker = Breaker()
    for _ in range(OPENING_FAILURES - 1):
        breaker = breaker.record_failure(DOWN, 0.0, 0.5)
        assert breaker.permitted is None
    breaker = breaker.record_failure(DOWN, 0.0, 0.5)
    assert (breaker.state, breaker.permitted, breaker.until, breaker.cause) == (BreakerState.OPEN, 0, 1.0, DOWN)


def test_it_opens_when_every_other_call_fails() -> None:
    breaker = Breaker()
    for _ in range(OPENING_FAILURES):
        breaker = breaker.record_success().record_failure(DOWN, 0.0, 0.5)
    assert breaker.state is BreakerState.OPEN


def test_a_call_that_fails_now_and_then_does_not_open_it() -> None:
    breaker = Breaker()
    for _ in range(50):
        breaker = breaker.record_failure(DOWN, 0.0, 0.5).record_success().record_success()
    assert breaker.state is BreakerState.CLOSED


def test_wrong_credentials_are_not_tried_again_at_once() -> None:
    assert Breaker().record_failure(UnauthenticatedError("no"), 0.0, 0.5).state is BreakerState.OPEN


def test_a_probe_lets_one_item_through_and_its_success_closes_it() -> None:
    breaker = opened(Breaker())
    assert breaker.record_probe(None, 0.5, 0.5, waiting=True).state is BreakerState.OPEN, "its pause is not over"
    breaker = breaker.record_probe(None, 1.0, 0.5, waiting=True)
    assert (breaker.state, breaker.permitted) == (BreakerState.HALF_OPEN, 1)
    assert breaker.record_success().state is BreakerState.CLOSED
    assert breaker.record_failure(DOWN, 1.0, 0.5).until == 3.0, "it stays open twice as long"


def test_it_closes_by_a_probe_when_nothing_waits_to_be_tried() -> None:
    assert opened(Breaker()).record_probe(None, 1.0, 0.5, waiting=False).state is BreakerState.CLOSED


def test_a_site_that_asks_for_a_day_is_tried_again_after_minutes() -> None:
    error = UnavailableError("maintenance", retry_after_seconds=86_400)
    assert Breaker().record_probe(error, 7.0, 0.5, waiting=False).until == 7.0 + MAX_RETRY_AFTER_SECONDS
    error = UnavailableError("maintenance", retry_after_seconds=30)
    assert Breaker().record_probe(error, 7.0, 0.5, waiting=False).until == 37.0


def test_an_answer_to_what_was_sent_before_does_not_close_it() -> None:
    assert opened(Breaker()).record_success().state is BreakerState.OPEN


def test_a_site_that_breaks_again_soon_is_left_alone_for_longer_until_it_has_been_good_for_a_while() -> None:
    breaker = opened(Breaker()).record_probe(None, 1.0, 0.5, waiting=True).record_success()
    assert opened(breaker, 10.0).until == 12.0
    for _ in range(10):
        breaker = breaker.record_success()
    assert opened(breaker, 20.0).until == 21.0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=300), st.booleans())
def test_a_site_that_stays_broken_is_tried_a_few_times_a_minute(chances: list[float], probes_work: bool) -> None:
    breaker, now, tries = opened(Breaker()), 0.0, []
    for chance in chances:
        now = max(now, breaker.until)
        tries.append(now)
        breaker = breaker.record_probe(None if probes_work else DOWN, now, chance, waiting=True)
        if breaker.permitted:
            breaker = breaker.record_failure(DOWN, now, chance)
        assert breaker.state is BreakerState.OPEN
        assert 0 < breaker.until - now <= MAX_PAUSE_SECONDS * 1.2 + 1e-6
    assert max(sum(begin <= time < begin + 60 for time in tries) for begin in tries) <= 8


@pytest.mark.parametrize(
    ("errors", "whole", "judged"),
    [
        ([None, InternalError("x")], False, True),
        ([ThrottledError("x")], True, True),
        ([CapacityExhaustedError("x")], True, True),
        ([InvalidSpecError("x")], False, True),
        ([InternalError("x")], False, None),
        ([UnknownOutcomeError("x")], True, UnknownOutcomeError),
        ([InternalError("x"), InternalError("x")], False, InternalError),
        ([DOWN], False, UnavailableError),
        ([], False, None),
    ],
)
def test_what_a_call_says_of_its_site(errors: list[SiteError | None], whole: bool, judged: object) -> None:
    found = judge_call(errors, whole=whole)
    assert found is judged or (isinstance(judged, type) and isinstance(found, judged))
