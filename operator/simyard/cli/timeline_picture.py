# SPDX-License-Identifier: Apache-2.0
"""Draws the start of a pool: one row per worker, one colour per stage, like the figures of the OpenNebula study."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from simyard.cli.drawing import FIGURE_COLOURS, SERIES_COLOURS, STAGE_COLOURS, Format, draw_picture
from simyard.cli.timeline import Timeline, WorkerLine
from simyard.plan.start import INTERVALS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_INCHES = 8.0
MAX_NAMED_ROWS = 40
"""Maximum number of rows with the names of their workers."""
MAX_VECTOR_ROWS = 100
"""Maximum number of rows that the SVG contains as shapes.

If there are more rows, the SVG contains one bitmap, because shapes would take megabytes.
"""
LABEL_WIDTH_SHARE = 0.15
"""The width of the label of a figure, as a share of the axis; the real width is smaller."""


def to_picture(timeline: Timeline, kind: Format) -> bytes:
    """Return a timeline as SVG or PNG.

    The rows are the workers, site by site, in the order in which they were ready.

    Raises:
        Failure: matplotlib is not installed.
    """
    count = len(timeline.lines)
    height = 1.9 + min(3.4, max(0.17 * count, 0.5))
    return draw_picture(lambda figure: _paint(figure, timeline), kind, inches=(WIDTH_INCHES, height))


def _paint(figure: Figure, timeline: Timeline) -> None:
    sites = sorted({line.site for line in timeline.lines})
    lines = sorted(timeline.lines, key=lambda line: (line.site, line.end, line.name))
    end = max([timeline.end, *(value for value in timeline.figures.values() if value is not None)]) or 1.0
    axes = figure.add_subplot()
    axes.set_xlim(0, end * 1.02)
    axes.set_ylim(max(len(lines), 1), 0)
    _rows(axes, lines)
    if len(sites) > 1:
        _sites(axes, lines, sites, end * 1.02)
    levels = _figures(axes, timeline, end * 1.02)
    axes.set_title(timeline.title, pad=8 + 12 * levels)
    axes.set_xlabel("seconds since the request")
    if 0 < len(lines) <= MAX_NAMED_ROWS:
        axes.set_yticks([row + 0.5 for row in range(len(lines))], [line.name for line in lines], fontsize=7)
        axes.tick_params(axis="y", length=0)
    else:
        axes.set_ylabel("workers, in the order in which they were ready")
        axes.yaxis.set_major_formatter("{x:,.0f}")
    _legend(figure, timeline, sites)


def _rows(axes: Axes, lines: Sequence[WorkerLine]) -> None:
    from matplotlib.collections import PolyCollection

    many = len(lines) > MAX_VECTOR_ROWS
    gap = 0.0 if many else 0.1
    for first, last in INTERVALS:
        bars = [
            [(begun, row + gap), (ended, row + gap), (ended, row + 1 - gap), (begun, row + 1 - gap)]
            for row, line in enumerate(lines)
            if (begun := line.entered.get(first)) is not None and (ended := line.entered.get(last)) is not None
        ]
        axes.add_collection(
            PolyCollection(bars, facecolors=STAGE_COLOURS[last], linewidths=0, rasterized=many, antialiased=not many),
            autolim=False,
        )


def _sites(axes: Axes, lines: Sequence[WorkerLine], sites: Sequence[str], right: float) -> None:
    """Draw a strip at the right edge, with one colour per site."""
    for index, site in enumerate(sites):
        rows = [row for row, line in enumerate(lines) if line.site == site]
        colour = SERIES_COLOURS[index % len(SERIES_COLOURS)]
        axes.fill_betweenx([rows[0], rows[-1] + 1], right * 1.005, right * 1.025, color=colour, lw=0, clip_on=False)
        if index:
            axes.axhline(rows[0], color="white", lw=1.2)


def _figures(axes: Axes, timeline: Timeline, right: float) -> int:
    """Draw the lines of T_boot, T_r and T_m with their labels, and return the number of levels of labels.

    If two labels would overlap, the second one is a level higher. A label is left of its line, where no later line
    crosses it; if there is no room, it is right of the line.
    """
    ends: list[float] = []  # the end of the last label of each level
    for name, value in timeline.figures.items():
        if value is None:
            continue
        from_left = value / right < LABEL_WIDTH_SHARE
        begin = value / right - (0 if from_left else LABEL_WIDTH_SHARE)
        level = next((index for index, until in enumerate(ends) if until <= begin), len(ends))
        ends[level : level + 1] = [begin + LABEL_WIDTH_SHARE]
        axes.axvline(value, color=FIGURE_COLOURS[name], lw=1.2)
        axes.annotate(
            f"{name} {value:.2f} s",
            (value, 1.0),
            (3 if from_left else -3, 4 + 12 * level),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="left" if from_left else "right",
            color=FIGURE_COLOURS[name],
            fontsize=8,
            annotation_clip=False,
        )
        axes.annotate(
            "",
            (value, 1.0),
            (0, 12 + 12 * level),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            arrowprops={"arrowstyle": "-", "color": FIGURE_COLOURS[name], "lw": 1.2, "shrinkA": 0, "shrinkB": 0},
            annotation_clip=False,
        )
    return len(ends)


def _legend(figure: Figure, timeline: Timeline, sites: Sequence[str]) -> None:
    from matplotlib.patches import Patch

    stages: list[Patch] = [Patch(color=STAGE_COLOURS[last], label=f"{first} → {last}") for first, last in INTERVALS]
    figure.legend(handles=stages, loc="outside lower center", ncols=len(stages), handlelength=1.2, columnspacing=1.4)
    if len(sites) > 1:
        marks = [
            Patch(
                color=SERIES_COLOURS[index % len(SERIES_COLOURS)],
                label=f"{site} (emulated)" if site in timeline.emulated else site,
            )
            for index, site in enumerate(sites)
        ]
        figure.legend(handles=marks, loc="outside right upper", title="site", handlelength=1.2)
