# SPDX-License-Identifier: Apache-2.0
"""Write the results of OCCI frontends as Markdown tables."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from simyard_bench.occi.promises import BASICS
from simyard_bench.occi.rows import Row
from simyard_bench.tables import measured_on, table

_HEAD = ("case", "workers", "finished", "frontends", "p50 ms", "p99 ms", "per second", "CPU us", "client's CPU us",
         "limit: p50 ms, CPU us", "memory", "load before")  # fmt: skip


def results(rows: Sequence[Row]) -> str:
    """Return the table of all cases, with conclusions below it."""
    if not rows:
        return "Not measured.\n"
    ordered = [*(row for case in BASICS for row in rows if row.case == case), *_others(rows)]
    notes = [text for text in (_more_frontends(rows), _transports(rows)) if text]
    last = rows[-1]
    return "\n".join([table(_HEAD, map(_cells, ordered)), *notes, measured_on(last.machine, last.versions, last.date)])


def _others(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.case not in BASICS]


def _cells(row: Row) -> Sequence[str]:
    limit = "-"
    if row.limit_p50_ms is not None and row.limit_cpu_us_per_request is not None:
        limit = f"{row.limit_p50_ms:.3f}, {row.limit_cpu_us_per_request:.0f}"
    return (
        row.case, f"{row.workers:,}", f"{row.finished:,}", f"{row.frontends}", f"{row.p50_ms:.3f}",
        f"{row.p99_ms:.3f}", f"{row.per_second:,.0f}", f"{row.cpu_us_per_request:.0f}",
        f"{row.client_cpu_us_per_request:.0f}", limit, f"{row.rss_mib:.0f} MiB", f"{row.load_average:.1f}",
    )  # fmt: skip


def _more_frontends(rows: Sequence[Row]) -> str:
    """Return a sentence about the growth of the throughput with the number of frontends."""
    grown = sorted((row for row in rows if row.case == "mixed"), key=lambda row: row.frontends)
    return "".join(
        f"From {few.frontends} to {many.frontends} frontends, mixed reads: {few.per_second:,.0f} to"
        f" {many.per_second:,.0f} per second, **{many.per_second / few.per_second:.2f} x**.\n"
        for few, many in pairwise(grown)
    )


def _transports(rows: Sequence[Row]) -> str:
    """Return a sentence about the cost of a request over HTTP and over AMQP."""
    amqp = next((row for row in rows if row.case == "get-compute-amqp"), None)
    if amqp is None or amqp.limit_cpu_us_per_request is None:
        return ""
    same = (row for row in rows if (row.case, row.workers, row.finished) == ("get-compute", amqp.workers, 0))
    http = "".join(f"{row.cpu_us_per_request:.0f} us of CPU over HTTP, " for row in same)
    share = amqp.limit_cpu_us_per_request / amqp.cpu_us_per_request
    return (
        f"One compute: {http}{amqp.cpu_us_per_request:.0f} us over AMQP, of which the AMQP client takes"
        f" {amqp.limit_cpu_us_per_request:.0f} us (**{share:.0%}**).\n"
    )
