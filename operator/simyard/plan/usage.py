# SPDX-License-Identifier: Apache-2.0
"""Sums of the rows of Usage objects up to the present, for reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from simyard.api.usage import HOUR_MILLISECONDS, UsageRow
from simyard.plan.times import get_milliseconds_between


@dataclass(slots=True)
class Used:
    """Sums of one group of rows.

    ``workers`` run now. ``cost`` is by currency, in 1/3,600,000 of a thousandth of the currency.
    """

    workers: int = 0
    worker_milliseconds: int = 0
    core_milliseconds: int = 0
    licence_milliseconds: int = 0
    cost: dict[str, int] = field(default_factory=dict)

    def add(self, row: UsageRow, now: datetime) -> None:
        """Add a row, as if the workers that ran when the row was written had run until now."""
        since = get_milliseconds_between(row.accounted_until, now)
        self.workers += row.workers
        self.worker_milliseconds += row.worker_milliseconds + since * row.workers
        self.core_milliseconds += row.core_milliseconds + since * row.cores
        self.licence_milliseconds += row.licence_milliseconds + since * row.licences
        exact = row.cost_millis * HOUR_MILLISECONDS + row.cost_remainder + since * row.hour_cost_millis
        if exact:
            self.cost[row.currency] = self.cost.get(row.currency, 0) + exact

    def get_cost_millis(self) -> Mapping[str, int]:
        """Return the cost in thousandths of each currency, rounded down."""
        return {currency: exact // HOUR_MILLISECONDS for currency, exact in sorted(self.cost.items())}


Group = tuple[str, ...]


def sum_usage(
    rows: Iterable[tuple[str, UsageRow]], group: Callable[[str, UsageRow], Group], now: datetime
) -> dict[Group, Used]:
    """Return the sums of each group, sorted by group.

    Args:
        rows: Rows of Usage objects, each with its namespace.
        group: Function that returns the group of a namespace and a row.
        now: Present time.
    """
    found: dict[Group, Used] = {}
    for namespace, row in rows:
        found.setdefault(group(namespace, row), Used()).add(row, now)
    return dict(sorted(found.items()))
