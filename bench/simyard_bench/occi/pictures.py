# SPDX-License-Identifier: Apache-2.0
"""Draw the results of OCCI frontends."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simyard.cli.drawing import SERIES_COLOURS
from simyard_bench.occi.promises import BASICS, LISTS
from simyard_bench.occi.rows import Row
from simyard_bench.plot import save, workers_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(rows: Sequence[Row], directory: Path) -> list[Path]:
    """Draw the latency by the number of workers, and the times of listings with their limits; return the files."""
    return save(lambda figure: _paint(figure, rows), directory / "bench-occi") if rows else []


def _paint(figure: Figure, rows: Sequence[Row]) -> None:
    latency, lists = figure.subplots(1, 2, width_ratios=(3, 2))
    _latency(latency, rows)
    _lists(lists, [row for case in LISTS for row in rows if row.case == case])
    figure.legend(loc="outside lower center", ncols=6)


def _latency(axes: Axes, rows: Sequence[Row]) -> None:
    for case, colour in zip(BASICS, SERIES_COLOURS, strict=False):
        of_case = sorted((row for row in rows if row.case == case), key=lambda row: (row.workers, row.finished))
        grown = [row for row in of_case if not row.finished]
        counts = [row.workers for row in grown]
        axes.plot(counts, [row.p50_ms for row in grown], marker="o", markersize=3, color=colour, label=case)
        finished = [row for row in of_case if row.finished]
        axes.plot([row.workers for row in finished], [row.p50_ms for row in finished], linestyle="", marker="x",
                  color=colour)  # fmt: skip
        if grown:
            workers_axis(axes, counts)
    axes.plot([], [], linestyle="", marker="x", color="#5a5a5a", label="after 25,000 finished ones")
    axes.set_yscale("log")
    axes.set_ylim(bottom=0.05)
    axes.set_ylabel("ms, median")
    axes.set_title("Latency of one request")


def _lists(axes: Axes, rows: Sequence[Row]) -> None:
    places = list(range(len(rows)))
    limits = [row.limit_p50_ms or 0.0 for row in rows]
    axes.bar([place - 0.2 for place in places], [row.p50_ms for row in rows], 0.36, color=SERIES_COLOURS[3],
             label="listing")  # fmt: skip
    axes.bar([place + 0.2 for place in places], limits, 0.36, color="#c9c9c9", label="limit (a bare handler)")
    for place, row in zip(places, rows, strict=True):
        axes.annotate(f"{row.body_bytes / 1e6:.1f} MB", (place, max(row.p50_ms, limits[place])), xytext=(0, 3),
                      textcoords="offset points", ha="center", fontsize=8)  # fmt: skip
    axes.set_yscale("log")
    axes.set_xticks(places, [row.case for row in rows])
    axes.set_ylabel("ms, median")
    axes.set_title("Listing of all" + (f" {rows[0].workers:,} workers" if rows else ""))
