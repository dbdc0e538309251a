# SPDX-License-Identifier: Apache-2.0
"""Draw the results of sites."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simyard.cli.drawing import SERIES_COLOURS
from simyard_bench.plot import save
from simyard_bench.sites.rows import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_YARDSTICK = "#c9c9c9"


def draw(rows: Sequence[Row], directory: Path) -> list[Path]:
    """Draw the times of starts with their yardsticks, and the CPU time of polls; return the files."""
    return save(lambda figure: _paint(figure, rows), directory / "bench-sites") if rows else []


def _paint(figure: Figure, rows: Sequence[Row]) -> None:
    starts, looks = figure.subplots(1, 2, width_ratios=(3, 2))
    started = [row for row in rows if row.case.startswith("start")]
    _bars(starts, [_name(row) for row in started], [(row.ours_s, row.yardstick_s) for row in started])
    starts.set_ylabel("seconds until all machines run")
    starts.set_title("Starts (clouds simulated)")
    looked = [row for row in rows if not row.case.startswith("start")]
    cpu = [(1000 * row.cpu_s, 1000 * (row.yardstick_cpu_s or 0)) for row in looked]
    _bars(looks, [f"{row.case}\n{row.n:,}\n({row.finished:,})" for row in looked], cpu)
    looks.set_ylabel("ms of CPU of the client")
    looks.set_title("A look at VMs (and finished ones)")
    looks.set_yscale("log")
    ours, theirs = starts.containers
    figure.legend(
        [ours, theirs], ["ours", "yardstick (bare client, Deployment, pyone)"], loc="outside lower center", ncols=2
    )


def _bars(axes: Axes, labels: Sequence[str], values: Sequence[tuple[float, float | None]]) -> None:
    places = list(range(len(labels)))
    axes.bar([place - 0.2 for place in places], [ours for ours, _ in values], 0.36, color=SERIES_COLOURS[3])
    axes.bar([place + 0.2 for place in places], [theirs or 0.0 for _, theirs in values], 0.36, color=_YARDSTICK)
    axes.set_xticks(places, labels, fontsize=8)


def _name(row: Row) -> str:
    kind = row.case.removeprefix("start").removeprefix("-")
    return "\n".join(filter(None, (row.site, kind, f"{row.n:,}")))
