# SPDX-License-Identifier: Apache-2.0
"""Reports the starts of pools as Events and in a histogram."""

from __future__ import annotations

from prometheus_client import Histogram

from simyard.api.names import WORKER_POOLS, Reason
from simyard.api.worker_pool import WorkerPool, WorkerPoolStatus
from simyard.fleet.recorder import Recorder
from simyard.plan.texts import format_count_is

START_SECONDS = Histogram(
    "simyard_pool_start_seconds",
    "Start of a pool: T_boot (all machines booted), T_r (all services registered), T_m (the API server shows it).",
    ["figure"],
    buckets=(0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600),
)


def report_start_begun(recorder: Recorder, pool: WorkerPool, before: WorkerPoolStatus, after: WorkerPoolStatus) -> None:
    """Emit an Event if a start has begun between two statuses."""
    start = after.start
    if start is not None and (before.start is None or before.start.requested_time != start.requested_time):
        note = f"{format_count_is(start.workers, 'worker')} requested"
        recorder.emit(WORKER_POOLS, pool.metadata, Reason.START_BEGUN, note)


def report_start_finished(recorder: Recorder, pool: WorkerPool, status: WorkerPoolStatus) -> None:
    """Emit an Event and update the histogram after the status of a finished start is stored."""
    if (start := status.start) is None:
        return
    figures = {
        "T_boot": start.boot_milliseconds,
        "T_r": start.registered_milliseconds,
        "T_m": start.published_milliseconds,
    }
    known = {name: value / 1000 for name, value in figures.items() if value is not None}
    for name, seconds in known.items():
        START_SECONDS.labels(name).observe(seconds)
    note = f"{format_count_is(status.ready_replicas, 'worker')} ready: "
    note += ", ".join(f"{name} {seconds:.3f} s" for name, seconds in known.items())
    recorder.emit(WORKER_POOLS, pool.metadata, Reason.START_FINISHED, note)
