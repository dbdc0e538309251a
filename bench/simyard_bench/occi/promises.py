# SPDX-License-Identifier: Apache-2.0
"""Compare the results of OCCI frontends with the promised figures. Pure: from rows to verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simyard_bench.check import Verdict, missing
from simyard_bench.occi.rows import Row

SMALL, LARGE = 2, 10_000
FINISHED = 25_000
BASICS = ("get-compute", "get-model", "action")
LISTS = ("list-uri", "list-text")
MAX_GROWTH = 1.2
MAX_LIMIT_RATIO = 2.0
MAX_LIMIT_CPU_RATIO = 1.5
MAX_VISIBLE_MS = 500.0
MAX_RSS_MIB = 250.0
REGISTERING = 40
"""Number of workers that register at once."""


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Return the verdicts in the order of the promises."""
    return [
        *(_growth(rows, case, 0) for case in BASICS),
        *(_growth(rows, case, FINISHED) for case in BASICS),
        *(_list(rows, case) for case in LISTS),
        _cpu(rows),
        *_register(rows),
        _memory(rows),
    ]


def find(rows: Sequence[Row], case: str, workers: int, finished: int = 0) -> Row | None:
    """Return the row of a case with one frontend."""
    return next(
        (row for row in rows if (row.case, row.workers, row.finished, row.frontends) == (case, workers, finished, 1)),
        None,
    )


def _growth(rows: Sequence[Row], case: str, finished: int) -> Verdict:
    after = f", after {finished} finished ones" if finished else ""
    figure = f"{case}: p50 with {LARGE} workers{after}"
    required = f"at most {MAX_GROWTH:g} x p50 with {SMALL}"
    small, large = find(rows, case, SMALL), find(rows, case, LARGE, finished)
    if small is None or large is None:
        return missing(figure, required)
    ratio = large.p50_ms / small.p50_ms
    measured = f"{large.p50_ms:.3f} ms, {ratio:.2f} x {small.p50_ms:.3f} ms"
    return Verdict(figure, required, measured, ratio <= MAX_GROWTH)


def _list(rows: Sequence[Row], case: str) -> Verdict:
    figure, required = f"{case}: p50 with {LARGE} workers", f"at most {MAX_LIMIT_RATIO:g} x limit"
    row = find(rows, case, LARGE)
    if row is None or not row.limit_p50_ms:
        return missing(figure, required)
    ratio = row.p50_ms / row.limit_p50_ms
    measured = f"{row.p50_ms:.2f} ms, {ratio:.2f} x limit ({row.limit_p50_ms:.2f} ms)"
    return Verdict(figure, required, measured, ratio <= MAX_LIMIT_RATIO)


def _cpu(rows: Sequence[Row]) -> Verdict:
    """Return the verdict on the CPU time, for the size with the worst ratio."""
    figure, required = "get-compute: CPU per request", f"at most {MAX_LIMIT_CPU_RATIO:g} x limit"
    found = [
        (row.cpu_us_per_request / limit, row, limit)
        for row in rows
        if row.case == "get-compute" and (limit := row.limit_cpu_us_per_request)
    ]
    if not found:
        return missing(figure, required)
    ratio, row, limit = max(found, key=lambda item: item[0])
    measured = f"{row.cpu_us_per_request:.0f} us, {ratio:.2f} x limit ({limit:.0f} us), with {row.workers} workers"
    return Verdict(figure, required, measured, ratio <= MAX_LIMIT_CPU_RATIO)


def _register(rows: Sequence[Row]) -> Iterator[Verdict]:
    figure, required = (
        f"{REGISTERING} workers register at once",
        f"all visible within {MAX_VISIBLE_MS / 1000:g} s after the last",
    )
    row = next((row for row in rows if row.case == "register"), None)
    if row is None or row.visible_ms is None or row.messages is None:
        yield missing(figure, required)
        return
    yield Verdict(figure, required, f"{row.visible_ms / 1000:.3f} s", row.visible_ms <= MAX_VISIBLE_MS)
    yield Verdict(figure, "one message each", f"{row.messages} messages", row.messages == REGISTERING)


def _memory(rows: Sequence[Row]) -> Verdict:
    """Return the verdict on the peak memory, without rows with finished Workers, which took additional memory."""
    figure, required = f"memory of a frontend with {LARGE} workers", f"at most {MAX_RSS_MIB:.0f} MiB"
    most = max((row.rss_mib for row in rows if row.workers >= LARGE and not row.finished), default=0.0)
    return Verdict(figure, required, f"{most:.0f} MiB", most <= MAX_RSS_MIB) if most else missing(figure, required)
