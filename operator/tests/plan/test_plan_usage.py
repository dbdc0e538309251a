# SPDX-License-Identifier: Apache-2.0
"""Sums of usage for reports."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from simyard.api.usage import HOUR_MILLISECONDS, UsageRow
from simyard.plan.usage import sum_usage

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def row(pool: str = "p", site: str = "a", currency: str = "EUR", **fields: int) -> UsageRow:
    numbers = ("worker_milliseconds", "core_milliseconds", "licence_milliseconds", "cost_millis", "cost_remainder")
    rates = ("workers", "cores", "licences", "hour_cost_millis")
    values = {**dict.fromkeys((*numbers, *rates), 0), **fields}
    return UsageRow(
        pool=pool, service="s", site=site, currency=currency, accounted_until=NOW - timedelta(hours=1), **values
    )


def test_what_runs_is_counted_until_now() -> None:
    rows = [("ns", row(worker_milliseconds=1000, workers=2, cores=8, licences=1, hour_cost_millis=500))]
    used = sum_usage(rows, lambda namespace, _: (namespace,), NOW)["ns",]
    assert used.workers == 2
    assert used.worker_milliseconds == 1000 + 2 * HOUR_MILLISECONDS
    assert used.core_milliseconds == 8 * HOUR_MILLISECONDS
    assert used.licence_milliseconds == HOUR_MILLISECONDS
    assert used.get_cost_millis() == {"EUR": 500}


def test_what_was_rounded_off_in_rows_is_not_lost_in_their_sum() -> None:
    rows = [("ns", row(pool=pool, cost_remainder=HOUR_MILLISECONDS // 2)) for pool in ("p", "q")]
    assert sum_usage(rows, lambda *_: (), NOW)[()].get_cost_millis() == {"EUR": 1}
    assert sum_usage(rows, lambda _, row: (row.pool,), NOW)["p",].get_cost_millis() == {"EUR": 0}


def test_currencies_are_never_added_to_each_other() -> None:
    rows = [("a", row(cost_millis=1)), ("b", row(cost_millis=2, currency="USD")), ("c", row(cost_millis=3))]
    assert sum_usage(rows, lambda *_: (), NOW)[()].get_cost_millis() == {"EUR": 4, "USD": 2}


def test_groups_stand_in_order() -> None:
    rows = [("ns", row(pool=pool)) for pool in ("q", "", "p", "q")]
    assert list(sum_usage(rows, lambda _, row: (row.pool,), NOW)) == [("",), ("p",), ("q",)]


def test_a_clock_that_is_behind_takes_nothing_away() -> None:
    rows = [("ns", row(worker_milliseconds=1000, workers=2))]
    assert sum_usage(rows, lambda *_: (), NOW - timedelta(hours=2))[()].worker_milliseconds == 1000
