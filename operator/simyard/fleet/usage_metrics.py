# SPDX-License-Identifier: Apache-2.0
"""Exports the accounts of namespaces as metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from simyard.api.usage import HOUR_MILLISECONDS, UsageRow


class UsageSource(Protocol):
    """A provider of the accounts of namespaces."""

    def count_current(self) -> Iterator[tuple[str, UsageRow]]:
        """Return all rows with their namespaces, counted up to now."""
        ...


class UsageCollector(Collector):
    """Prometheus collector that computes counters from the accounts at each scrape."""

    def __init__(self) -> None:
        self.sources: list[UsageSource] = []

    def describe(self) -> list[Metric]:
        """Return an empty list, because the set of counters changes with time."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Return the counters. They include the use that earlier processes stored in the Usage objects."""
        labels = ["namespace", "pool", "service", "site"]
        prefix = "simyard_usage"
        workers = CounterMetricFamily(f"{prefix}_worker_seconds", "Time for which machines ran.", labels=labels)
        cores = CounterMetricFamily(
            f"{prefix}_core_seconds", "Time for which machines ran, times their cores.", labels=labels
        )
        licences = CounterMetricFamily(
            f"{prefix}_licence_seconds", "Time for which machines ran, times their licence seats.", labels=labels
        )
        cost = CounterMetricFamily(f"{prefix}_cost", "Cost of machines, in the currency.", labels=[*labels, "currency"])
        sums: dict[tuple[str, str, str, str], list[float]] = {}
        for source in self.sources:
            for namespace, row in source.count_current():
                values = [namespace, row.pool, row.service, row.site]
                total = sums.setdefault((namespace, row.pool, row.service, row.site), [0.0, 0.0, 0.0])
                total[0] += row.worker_milliseconds / 1000
                total[1] += row.core_milliseconds / 1000
                total[2] += row.licence_milliseconds / 1000
                exact = row.cost_millis + row.cost_remainder / HOUR_MILLISECONDS
                cost.add_metric([*values, row.currency], exact / 1000)
        for key, total in sums.items():
            for family, value in zip((workers, cores, licences), total, strict=True):
                family.add_metric(list(key), value)
        yield from (workers, cores, licences, cost)


COLLECTOR = UsageCollector()
REGISTRY.register(COLLECTOR)
