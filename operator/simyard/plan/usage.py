"""Sums of usage, for reports: what the rows of Usage objects say up to now, by whatever they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from simyard.api.usage import HOUR_MILLISECONDS, UsageRow
from simyard.plan.times import milliseconds_between


@dataclass(slots=True)
class Used:
    """Sums; ``cost`` by currency, in 3,600,000ths of a thousandth of it. ``workers`` is how many run."""

    workers: int = 0
    worker_milliseconds: int = 0
    core_milliseconds: int = 0
    licence_milliseconds: int = 0
    cost: dict[str, int] = field(default_factory=dict)

    def add(self, row: UsageRow, now: datetime) -> None:
        """Add what a row says; what ran when it was written is taken to run until now."""
        since = milliseconds_between(row.accounted_until, now)
        self.workers += row.workers
        self.worker_milliseconds += row.worker_milliseconds + since * row.workers
        self.core_milliseconds += row.core_milliseconds + since * row.cores
        self.licence_milliseconds += row.licence_milliseconds + since * row.licences
        exact = row.cost_millis * HOUR_MILLISECONDS + row.cost_remainder + since * row.hour_cost_millis
        if exact:
            self.cost[row.currency] = self.cost.get(row.currency, 0) + exact

    def cost_millis(self) -> Mapping[str, int]:
        """The cost in thousandths of each currency, rounded down."""
        return {currency: exact // HOUR_MILLISECONDS for currency, exact in sorted(self.cost.items())}


Group = tuple[str, ...]


def usage_by(
    rows: Iterable[tuple[str, UsageRow]], group: Callable[[str, UsageRow], Group], now: datetime
) -> dict[Group, Used]:
    """The sums of rows, each given with its namespace, by group; in the order of the groups."""
    found: dict[Group, Used] = {}
    for namespace, row in rows:
        found.setdefault(group(namespace, row), Used()).add(row, now)
    return dict(sorted(found.items()))
