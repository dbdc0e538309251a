# SPDX-License-Identifier: Apache-2.0
"""What is said about the platform itself, and for how long."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from simyard.plan.platform import HEALED_SECONDS, MAX_OVERDUE_SECONDS, choose_problem, find_problem
from simyard.plan.times import MAX_SKEW_SECONDS

NOW = datetime(2026, 1, 2, 3, 4, 0, tzinfo=UTC)


def test_a_platform_that_is_a_little_late_or_off_is_healthy() -> None:
    assert find_problem("", 0.0, None, NOW) is None
    assert find_problem("pool", MAX_OVERDUE_SECONDS - 1, MAX_SKEW_SECONDS, NOW) is None


def test_a_standstill_is_told_with_its_part_and_its_beginning() -> None:
    found = find_problem("pool", 180.0, None, NOW)
    assert found is not None
    assert found.reason == "WorkOverdue"
    assert "the operator's work on pool has stood still since 2026-01-02T03:01:00Z" in found.message


@pytest.mark.parametrize(
    ("skew", "text"), [(75.4, "is 75 s ahead of the operator's"), (-90.0, "is 90 s behind the operator's")]
)
def test_a_wrong_clock_is_told_with_its_difference(skew: float, text: str) -> None:
    found = find_problem("pool", 0.0, skew, NOW)
    assert found is not None
    assert (found.reason, text in found.message) == ("ClockSkew", True)


def test_a_standstill_is_worse_than_a_wrong_clock() -> None:
    found = find_problem("pool", 180.0, 75.0, NOW)
    assert found is not None
    assert found.reason == "WorkOverdue"


def test_the_text_of_a_problem_stays_while_it_lasts() -> None:
    shown = None
    for seconds in range(0, 600, 15):
        found = find_problem("pool", 180.0 + seconds, 75.0 + seconds, NOW + timedelta(seconds=2 * seconds))
        shown = choose_problem(shown, found, 0.0)
        assert shown == find_problem("pool", 180.0, 75.0, NOW)
    other = find_problem("pool", 0.0, 75.0, NOW)
    assert choose_problem(shown, other, 0.0) == other


def test_a_problem_is_over_only_after_a_while() -> None:
    shown = find_problem("pool", 180.0, None, NOW)
    assert choose_problem(shown, None, HEALED_SECONDS - 1) == shown
    assert choose_problem(shown, None, HEALED_SECONDS) is None
    assert choose_problem(None, None, HEALED_SECONDS) is None
