# SPDX-License-Identifier: Apache-2.0
"""When a pool's password changes, whom to tell, and when the former login may go."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simyard.api.worker_pool import BrokerCredentials
from simyard.plan.rotation import (
    DEADLINE_SECONDS,
    LINGER_SECONDS,
    measure_progress,
    plan_credentials,
    was_changed_lately,
)

NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
HOUR = 3600.0


def test_a_pool_that_nobody_left_keeps_its_password() -> None:
    assert plan_credentials(None, worker_left=False, now=NOW, rotate_after_seconds=HOUR) == (None, None)


def test_the_first_departure_is_noted_and_later_ones_do_not_defer_the_change() -> None:
    noted, waits = plan_credentials(None, worker_left=True, now=NOW, rotate_after_seconds=HOUR)
    assert (noted, waits) == (BrokerCredentials(worker_left_time=NOW), HOUR)
    later = NOW + timedelta(seconds=HOUR - 10)
    assert plan_credentials(noted, worker_left=True, now=later, rotate_after_seconds=HOUR) == (noted, 10.0)


def test_the_password_changes_when_the_time_has_come_and_the_departure_is_forgotten() -> None:
    noted = BrokerCredentials(generation=4, worker_left_time=NOW)
    due = NOW + timedelta(seconds=HOUR)
    changed, waits = plan_credentials(noted, worker_left=False, now=due, rotate_after_seconds=HOUR)
    assert (changed, waits) == (BrokerCredentials(generation=5, rotated_time=due), None)
    assert plan_credentials(changed, worker_left=False, now=due, rotate_after_seconds=HOUR) == (changed, None)


def test_without_a_time_nothing_is_noted() -> None:
    assert plan_credentials(None, worker_left=True, now=NOW, rotate_after_seconds=0) == (None, None)


def test_workers_that_consume_under_a_former_login_alone_are_told() -> None:
    consumed = {"old": {"pool-1"}, "both": {"pool-1", "pool-1~1.1"}, "new": {"pool-1~1.1"}, "away": frozenset[str]()}
    state = measure_progress("pool-1~1.1", consumed)
    assert (state.outdated, state.finished) == (("old",), False)
    assert measure_progress("pool-1~1.1", {"new": {"pool-1~1.1"}}).finished
    assert measure_progress("pool-1~1.1", {}).finished, "nobody is left who could use it"


@pytest.mark.parametrize(
    ("logins", "finished_seconds", "rotating_seconds", "expected"),
    [
        ({"new"}, LINGER_SECONDS - 1, LINGER_SECONDS, False),
        ({"new"}, LINGER_SECONDS, LINGER_SECONDS, True),
        ({"old"}, 0.0, DEADLINE_SECONDS - 1, False),
        ({"old"}, 0.0, DEADLINE_SECONDS, True),
        (set(), 0.0, DEADLINE_SECONDS - 1, False),
    ],
)
def test_the_former_login_goes_when_nobody_needs_it_or_at_the_deadline(
    logins: set[str], finished_seconds: float, rotating_seconds: float, expected: bool
) -> None:
    state = measure_progress("new", {"worker": logins})
    assert state.may_delete(finished_seconds=finished_seconds, rotating_seconds=rotating_seconds) is expected


@given(st.dictionaries(st.text(max_size=3), st.sets(st.sampled_from(["old", "older", "new"]))))
def test_nobody_who_is_told_has_finished(consumed: dict[str, set[str]]) -> None:
    state = measure_progress("new", consumed)
    assert not (state.finished and state.outdated)
    assert all("new" not in consumed[uid] and consumed[uid] for uid in state.outdated)


def test_the_former_password_may_be_needed_until_the_deadline() -> None:
    credentials = BrokerCredentials(generation=1, rotated_time=NOW)
    assert not was_changed_lately(None, NOW)
    assert not was_changed_lately(BrokerCredentials(), NOW)
    assert was_changed_lately(credentials, NOW + timedelta(seconds=DEADLINE_SECONDS - 1))
    assert not was_changed_lately(credentials, NOW + timedelta(seconds=DEADLINE_SECONDS))
