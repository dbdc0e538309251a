# SPDX-License-Identifier: Apache-2.0
"""Draw the results of transfers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simyard.cli.drawing import SERIES_COLOURS
from simyard_bench.files.promises import MIN_RATE_RATIO, PART
from simyard_bench.files.rows import Case, Row, Way, find
from simyard_bench.files.tables import name_size
from simyard_bench.plot import save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOOKS = {
    Way.BARE: ("bare S3 client", "#888888", "o--"),
    Way.USER: ("kubectl simyard cp", SERIES_COLOURS[2], "o-"),
    Way.WORKER: ("worker", SERIES_COLOURS[1], "o-"),
}
_TITLES = {Case.UPLOAD: "Time of an upload", Case.DOWNLOAD: "Time of a download"}
_TIMES = {1e-3: "1 ms", 1e-2: "10 ms", 0.1: "0.1 s", 1: "1 s", 10: "10 s", 100: "100 s"}


def draw(rows: Sequence[Row], directory: Path) -> list[Path]:
    """Draw the times of uploads and downloads by size of the file, and the rates of large files; return the files."""
    return save(lambda figure: _paint(figure, rows), directory / "bench-files") if rows else []


def _paint(figure: Figure, rows: Sequence[Row]) -> None:
    sizes = sorted({row.size for row in rows if row.way is Way.BARE})
    uploads, downloads, rates = figure.subplots(1, 3, width_ratios=(3, 3, 2))
    for axes, case in ((uploads, Case.UPLOAD), (downloads, Case.DOWNLOAD)):
        for way, (label, colour, marks) in _LOOKS.items():
            found = [row for size in sizes if (row := find(rows, case, way, size)) is not None]
            times = [row.seconds for row in found]
            axes.plot([row.size for row in found], times, marks, markersize=4, color=colour, label=label)
        axes.set_title(_TITLES[case])
        _log_axes(axes, sizes)
    downloads.sharey(uploads)
    downloads.tick_params(labelleft=False)
    _paint_rates(rates, rows, [size for size in sizes if size > PART])
    handles, labels = uploads.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)


def _log_axes(axes: Axes, sizes: Sequence[int]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(sizes, [name_size(size) for size in sizes])
    axes.set_yticks(list(_TIMES), list(_TIMES.values()))
    axes.minorticks_off()
    axes.tick_params(axis="x", labelrotation=60)
    axes.grid(axis="y", color="#e5e5e5", linewidth=0.6)


def _paint_rates(axes: Axes, rows: Sequence[Row], sizes: Sequence[int]) -> None:
    labels = []
    for place, (case, size) in enumerate((case, size) for case in _TITLES for size in sizes):
        labels.append(f"{case}\n{name_size(size)}")
        bare = find(rows, case, Way.BARE, size)
        for shift, way in ((-0.2, Way.USER), (0.2, Way.WORKER)):
            row = find(rows, case, way, size)
            if row is not None and bare is not None:
                axes.bar(place + shift, row.rate / bare.rate, 0.36, color=_LOOKS[way][1])
    axes.axhline(1, color=_LOOKS[Way.BARE][1], linewidth=0.8, linestyle="--")
    axes.axhline(MIN_RATE_RATIO, color="#333333", linewidth=0.8)
    axes.text(1, MIN_RATE_RATIO, "promised", transform=axes.get_yaxis_transform(), ha="right", va="bottom", fontsize=7)
    axes.set_xticks(range(len(labels)), labels, rotation=60)
    axes.set_title("Rate, bare client = 1")
