# SPDX-License-Identifier: Apache-2.0
"""Metrics of the sweep of the file store."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import Counter, Gauge

from simyard.files.quotas import NamespaceUsage

MAX_NAMESPACES = 200
"""The largest number of namespaces with series of their own; the sum of the others has an empty label."""
BYTES = Gauge("simyard_files_stored_bytes", "The size of all files of a namespace, from the last sweep.", ["namespace"])
FILES = Gauge("simyard_files_stored", "The number of files of a namespace, from the last sweep.", ["namespace"])
DELETED = Counter(
    "simyard_files_deleted_total",
    "Files that the sweep deleted (expired: not named and not used; orphaned: the namespace is gone), and uploads that "
    "it aborted (abandoned); studies whose results it deleted (studies).",
    ["reason"],
)
FAILED = Counter("simyard_files_sweep_failures_total", "Sweeps of the file store that failed.")
SUCCEEDED = Gauge(
    "simyard_files_sweep_last_success_timestamp_seconds",
    "The time of the last sweep of the file store that succeeded; 0 before the first.",
)


def show_usages(usages: Sequence[NamespaceUsage]) -> None:
    """Set the figures of all namespaces: the largest ones singly, the others as a sum."""
    BYTES.clear()
    FILES.clear()
    ordered = sorted(usages, key=lambda usage: (-usage.total_bytes, usage.namespace))
    for place, usage in enumerate(ordered):
        name = usage.namespace if place < MAX_NAMESPACES else ""
        BYTES.labels(name).inc(usage.total_bytes)
        FILES.labels(name).inc(usage.files)
