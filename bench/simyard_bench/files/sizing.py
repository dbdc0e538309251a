# SPDX-License-Identifier: Apache-2.0
"""Derive the CPU and memory that the file store needs from the results of the benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simyard_bench.files.rows import Case, Row, Way
from simyard_bench.files.tables import CONTROL_PLANE, name_size
from simyard_bench.files.watching import STORE
from simyard_bench.tables import measured_on, table

_GIB = 2**30


def sizing(rows: Sequence[Row]) -> str:
    """Return a table of the CPU and memory of store, adapters and control plane, and a line that names the machine."""
    if not rows:
        return "Not measured.\n"
    last = max(rows, key=lambda row: row.date)
    return table(("", "measured"), _lines(rows)) + "\n" + measured_on(last.machine, last.versions, last.date)


def _lines(rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    compared = max(row.size for row in rows if row.way is Way.BARE)
    for case in (Case.UPLOAD, Case.DOWNLOAD):
        for row in _find(rows, case, compared):
            seconds = row.cpu_s[STORE] * _GIB / row.size
            yield f"CPU of the store for the {case} of 1 GiB", f"{seconds:.1f} s"
    yield "memory of the store, at most", f"{max(row.store_rss_mib for row in rows):.0f} MiB"
    largest = max(row.size for row in rows)
    adapters = [row.rss_mib for row in rows if row.way is Way.WORKER]
    yield f"memory of an adapter with files of up to {name_size(largest)}", f"{max(adapters):.0f} MiB"
    smallest = min(row.size for row in rows)
    for case, what in ((Case.UPLOAD, "result of a worker"), (Case.DOWNLOAD, "input of a worker")):
        for row in _find(rows, case, smallest):
            cpu = sum(row.cpu_s.get(name, 0.0) for name in CONTROL_PLANE)
            yield f"CPU of the control plane for an action with one {what}", f"{1000 * cpu:.0f} ms"
            yield f"requests to the store for one {what}", f"{row.store_requests:g}"


def _find(rows: Sequence[Row], case: Case, size: int) -> list[Row]:
    return [row for row in rows if (row.case, row.way, row.size) == (case, Way.WORKER, size)]
