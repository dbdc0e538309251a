# SPDX-License-Identifier: Apache-2.0
"""Draw the results of studies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simyard.cli.drawing import SERIES_COLOURS
from simyard_bench.plot import save
from simyard_bench.studies.promises import NAMES
from simyard_bench.studies.rows import Row, System

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = {
    System.STUDY: SERIES_COLOURS[1],
    System.DASK: SERIES_COLOURS[2],
    System.RAY: SERIES_COLOURS[3],
    System.JOB: "#888888",
}


def draw(rows: Sequence[Row], directory: Path) -> list[Path]:
    """Draw the rate and the CPU of a task for each run; return the files."""
    return save(lambda figure: _paint(figure, rows), directory / "bench-studies") if rows else []


def _paint(figure: Figure, rows: Sequence[Row]) -> None:
    rates, cpu = figure.subplots(1, 2)
    _paint_bars(rates, rows, [row.rate for row in rows], "{:,.0f}")
    rates.set_title("Tasks per second")
    _paint_bars(cpu, rows, [row.cpu_us for row in rows], "{:,.0f} us")
    cpu.set_title("CPU of a task that does nothing")
    cpu.tick_params(labelleft=False)


def _paint_bars(axes: Axes, rows: Sequence[Row], values: Sequence[float], form: str) -> None:
    places = range(len(rows))[::-1]
    bars = axes.barh(places, values, color=[_COLOURS[row.system] for row in rows])
    axes.bar_label(bars, [form.format(value) for value in values], padding=3, fontsize=8)
    labels = [f"{NAMES[row.system]}\n{row.workers:,} workers, {row.tasks:,} tasks" for row in rows]
    axes.set_yticks(places, labels, fontsize=7)
    axes.set_xscale("log")
    axes.set_xlim(right=8 * max(values))
    axes.minorticks_off()
