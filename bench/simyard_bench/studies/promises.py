# SPDX-License-Identifier: Apache-2.0
"""Compare the results of studies with the promised figures. Pure: from rows to verdicts."""

from __future__ import annotations

from collections.abc import Sequence

from simyard_bench.check import Verdict, missing
from simyard_bench.studies.rows import Row, System, find

WORKERS = (100, 1000)
TASKS = 100_000
MANY_TASKS = 1_000_000
MAX_OBJECT_BYTES = 5_000
MAX_WRITES_PER_THOUSAND = 1.0
MAX_GROWTH = 1.1
NAMES = {System.STUDY: "Study", System.DASK: "Dask", System.RAY: "Ray", System.JOB: "Indexed Job"}


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Return the verdicts in the order of the promises."""
    return [
        *(_rate(rows, workers, peer) for workers in WORKERS for peer in (System.DASK, System.JOB)),
        _object(rows),
        _writes(rows),
        _growth(rows),
    ]


def _rate(rows: Sequence[Row], workers: int, peer: System) -> Verdict:
    figure, required = f"{TASKS:,} tasks, {workers:,} workers: tasks per second", f"more than {NAMES[peer]}"
    ours, theirs = find(rows, System.STUDY, workers, TASKS), find(rows, peer, workers)
    if ours is None or theirs is None:
        return missing(figure, required)
    measured = f"{ours.rate:,.0f}, {NAMES[peer]} {theirs.rate:,.0f}"
    return Verdict(figure, required, measured, ours.rate > theirs.rate)


def _many(rows: Sequence[Row]) -> Row | None:
    return find(rows, System.STUDY, max(WORKERS), MANY_TASKS)


def _object(rows: Sequence[Row]) -> Verdict:
    figure, required = f"{MANY_TASKS:,} tasks: size of the Study", f"below {MAX_OBJECT_BYTES:,} bytes"
    row = _many(rows)
    if row is None or row.object_bytes is None:
        return missing(figure, required)
    return Verdict(figure, required, f"{row.object_bytes:,} bytes", row.object_bytes < MAX_OBJECT_BYTES)


def _writes(rows: Sequence[Row]) -> Verdict:
    figure, required = f"{MANY_TASKS:,} tasks: API writes for 1,000 tasks", f"below {MAX_WRITES_PER_THOUSAND:g}"
    row = _many(rows)
    if row is None or row.writes_per_thousand is None:
        return missing(figure, required)
    writes = row.writes_per_thousand
    return Verdict(figure, required, f"{writes:.2f}", writes < MAX_WRITES_PER_THOUSAND)


def _growth(rows: Sequence[Row]) -> Verdict:
    figure = f"CPU of a task from {TASKS:,} to {MANY_TASKS:,} tasks"
    required = f"grows by at most {MAX_GROWTH - 1:.0%}"
    few, many = find(rows, System.STUDY, max(WORKERS), TASKS), _many(rows)
    if few is None or many is None:
        return missing(figure, required)
    growth = many.cpu_us / few.cpu_us
    measured = f"{few.cpu_us:.0f} us to {many.cpu_us:.0f} us ({growth - 1:+.0%})"
    return Verdict(figure, required, measured, growth <= MAX_GROWTH)
