# SPDX-License-Identifier: Apache-2.0
"""Write the results of sites as Markdown tables."""

from __future__ import annotations

from collections.abc import Sequence

from simyard_bench.sites.rows import Row
from simyard_bench.tables import measured_on, table

_STARTS = ("site", "case", "machines", "ours", "yardstick", "ratio", "all accepted: ours, yardstick", "writes each",
           "CPU: ours, yardstick", "tuned to", "rounds: ours; yardstick", "load before")  # fmt: skip
_LOOKS = ("case", "machines", "finished", "ours", "CPU: ours, pyone", "calls: ours, pyone",
          "oned (modelled): ours, pyone", "load before")  # fmt: skip


def results(rows: Sequence[Row]) -> str:
    """Return the tables of starts and of polls."""
    if not rows:
        return "Not measured.\n"
    parts = []
    if starts := [row for row in rows if row.case.startswith("start")]:
        parts.append(table(_STARTS, map(_start, starts)))
    if looks := [row for row in rows if not row.case.startswith("start")]:
        parts.append(table(_LOOKS, map(_look, looks)))
    last = max(rows, key=lambda row: row.date)
    return "\n".join([*parts, _clouds(rows), measured_on(last.machine, last.versions, last.date)])


def _start(row: Row) -> Sequence[str]:
    ratio = f"{row.ours_s / row.yardstick_s:.2f}" if row.yardstick_s else "-"
    tuned = f"{row.calls_at_once} calls of {row.batch}" if row.batch else "-"
    rounds = "; ".join(", ".join(map(_seconds, each)) for each in (row.ours_rounds_s, row.yardstick_rounds_s))
    return (
        row.site, row.case, f"{row.n:,}", _seconds(row.ours_s), _seconds(row.yardstick_s), ratio,
        f"{_seconds(row.accepted_s)}, {_seconds(row.yardstick_accepted_s)}", f"{row.writes_per_worker:.3f}",
        f"{_seconds(row.cpu_s)}, {_seconds(row.yardstick_cpu_s)}", tuned, rounds, f"{row.load_average:.1f}",
    )  # fmt: skip


def _look(row: Row) -> Sequence[str]:
    cpu = f"{1000 * row.cpu_s:.1f}, {1000 * (row.yardstick_cpu_s or 0):.1f} ms"
    calls = f"{sum(row.calls.values())}, {sum(row.yardstick_calls.values())}"
    server = f"{row.server_ms or 0:.1f}, {row.yardstick_server_ms or 0:.1f} ms"
    return (
        row.case, f"{row.n:,}", f"{row.finished:,}", f"{1000 * row.ours_s:.0f} ms", cpu, calls, server,
        f"{row.load_average:.1f}",
    )  # fmt: skip


def _clouds(rows: Sequence[Row]) -> str:
    """Return a Markdown list of the clouds, with their simulated parts."""
    lines = {f"- {row.site}{_scaled(row)}: {row.cloud}.\n": None for row in rows}
    return "".join(lines)


def _scaled(row: Row) -> str:
    if row.time_scale == row.cost_scale == 1:
        return ""
    return (
        f", {row.case} (times of scheduler and drivers multiplied by {row.time_scale:g},"
        f" costs of calls by {row.cost_scale:g})"
    )


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
