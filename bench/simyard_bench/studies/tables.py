# SPDX-License-Identifier: Apache-2.0
"""Write the results of studies as Markdown tables."""

from __future__ import annotations

from collections.abc import Sequence

from simyard_bench.studies.promises import NAMES
from simyard_bench.studies.rows import Row, System
from simyard_bench.studies.study import STORE
from simyard_bench.tables import measured_on, table
from simyard_bench.world import GUESTS

_HEAD = ("system", "workers", "tasks", "time", "tasks/s", "CPU of a task", "memory", "API writes for 1,000 tasks",
         "growth of etcd for a task", "load")  # fmt: skip
_PROCESSES = ("operator", GUESTS, "rabbitmq", STORE, "kube-apiserver", "etcd")
_COSTS = ("workers", "tasks", *_PROCESSES, "size of the Study", "download of the table")


def results(rows: Sequence[Row]) -> str:
    """Return a table of all systems, and one of the costs of Studies."""
    if not rows:
        return "Not measured.\n"
    ours = [row for row in rows if row.system is System.STUDY]
    last = max(rows, key=lambda row: row.date)
    versions = {name: version for row in rows for name, version in row.versions.items()}
    parts = (
        [table(_HEAD, map(_run, rows)), table(_COSTS, map(_cost, ours))] if ours else [table(_HEAD, map(_run, rows))]
    )
    return "\n".join([*parts, measured_on(last.machine, versions, last.date)])


def _run(row: Row) -> Sequence[str]:
    writes = row.writes_per_thousand
    return (
        NAMES[row.system],
        f"{row.workers:,}",
        f"{row.tasks:,}",
        f"{row.seconds:.1f} s",
        f"{row.rate:,.0f}",
        f"{row.cpu_us:,.0f} us",
        f"{row.rss_mib:,.0f} MiB",
        "-" if writes is None else f"{writes:,.2f}",
        "-" if row.etcd_bytes is None else f"{row.etcd_bytes / row.tasks:,.1f} B",
        f"{row.load_average:.1f}",
    )


def _cost(row: Row) -> Sequence[str]:
    cpu = (f"{1e6 * row.cpu_s.get(name, 0.0) / row.tasks:.1f} us" for name in _PROCESSES)
    size = "-" if row.object_bytes is None else f"{row.object_bytes:,} B"
    download = "-" if row.table is None else f"{row.table.bytes / 1e6:.1f} MB in {row.table.seconds:.1f} s"
    return f"{row.workers:,}", f"{row.tasks:,}", *cpu, size, download
