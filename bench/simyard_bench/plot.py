# SPDX-License-Identifier: Apache-2.0
"""Draw the results of starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from simyard.cli.drawing import FIGURE_COLOURS, SERIES_COLOURS, STAGE_COLOURS, Format, draw_picture
from simyard_bench.check import MAX_WRITES_PER_WORKER
from simyard_bench.results import QUANTILES, STAGES, Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INCHES = (8.0, 5.0)


@dataclass(frozen=True, slots=True)
class _Looks:
    """The style of a curve for one kind of guests: its text in the legend, and the line and marker of matplotlib."""

    label: str
    marks: str


_GUESTS = {
    "process": _Looks("a process per worker", "o:"),
    "shared": _Looks("adapters in one process", "o-"),
}


def draw(runs: Sequence[Run], directory: Path) -> list[Path]:
    """Draw the growth of the profile ``instant`` and the stages of its largest start; return the files."""
    instant = [run for run in runs if run.profile == "instant" and run.time_scale == 1]
    if not instant:
        return []
    return [
        *save(lambda figure: _growth(figure, instant), directory / "bench-growth"),
        *save(lambda figure: _stages(figure, instant[-1]), directory / "bench-stages"),
    ]


def save(paint: Callable[[Figure], None], file: Path) -> list[Path]:
    """Draw a picture in each format and return the files; ``file`` has no suffix."""
    file.parent.mkdir(parents=True, exist_ok=True)
    files = [file.with_suffix(f".{kind}") for kind in get_args(Format)]
    for kind, each in zip(get_args(Format), files, strict=True):
        each.write_bytes(draw_picture(paint, kind, inches=_INCHES))
    return files


def _growth(figure: Figure, runs: Sequence[Run]) -> None:
    times, writes = figure.subplots(1, 2, width_ratios=(3, 2))
    counts = [run.n for run in runs]
    for guests, runs_of_kind in _by_guests(runs).items():
        looks = _GUESTS[guests]
        counts_of_kind = [run.n for run in runs_of_kind]
        for name, values in (
            ("T_boot", [run.t_boot_s for run in runs_of_kind]),
            ("T_r", [run.t_r_s for run in runs_of_kind]),
            ("T_m", [run.t_m_s for run in runs_of_kind]),
        ):
            label = f"{name}, {looks.label}"
            times.plot(counts_of_kind, values, looks.marks, markersize=3, color=FIGURE_COLOURS[name], label=label)
    yardsticks = (
        ("limit (a bare client)", [run.limit_s for run in runs], SERIES_COLOURS[5]),
        ("peer (a Deployment)", [run.peer_s for run in runs], SERIES_COLOURS[1]),
    )
    for name, measured, colour in yardsticks:
        known = [(n, value) for n, value in zip(counts, measured, strict=True) if value is not None]
        if known:
            times.plot(*zip(*known, strict=True), linestyle="--", marker=".", markersize=4, color=colour, label=name)
    times.set_yscale("log")
    times.set_ylabel("seconds")
    times.set_title("Start of N workers (emulated cloud without latency)")
    figure.legend(loc="outside lower center", ncols=3, fontsize=8)
    writes.plot(counts, [run.writes_per_worker for run in runs], marker="o", markersize=3, color=SERIES_COLOURS[0])
    writes.axhline(MAX_WRITES_PER_WORKER, color="#999999", linewidth=0.8)
    writes.annotate(
        "at most, for 10,000", (counts[0], MAX_WRITES_PER_WORKER), xytext=(0, 3), textcoords="offset points", fontsize=8
    )
    writes.set_ylim(bottom=0)
    writes.set_title("API writes per worker")
    for axes in (times, writes):
        workers_axis(axes, counts)


def _by_guests(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Group runs by kind of guests. Each kind is a separate curve, because the guests do different work."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.guests, []).append(run)
    return groups


def workers_axis(axes: Axes, counts: Sequence[int]) -> None:
    """Scale the x axis logarithmically and label it with numbers of workers."""
    axes.set_xscale("log")
    axes.set_xticks(counts, [f"{n:,}" for n in counts])
    axes.minorticks_off()
    axes.tick_params(axis="x", labelrotation=45)
    axes.set_xlabel("workers")
    axes.grid(axis="y", color="#e5e5e5", linewidth=0.6)


def _stages(figure: Figure, run: Run) -> None:
    axes = figure.subplots()
    share = [100 * step / QUANTILES for step in range(QUANTILES + 1)]
    for stage in STAGES:
        if stage in run.stages:
            axes.plot(run.stages[stage].quantiles, share, color=STAGE_COLOURS[stage], label=stage)
    for name, seconds in (("T_boot", run.t_boot_s), ("T_r", run.t_r_s), ("T_m", run.t_m_s)):
        axes.axvline(seconds, color=FIGURE_COLOURS[name], linewidth=0.9, linestyle=":", label=f"{name} {seconds:.1f} s")
    axes.set_xlim(left=0)
    axes.set_ylim(0, 100)
    axes.set_xlabel("seconds since the start was asked for")
    axes.set_ylabel("% of the workers that have entered the stage")
    axes.set_title(f"{run.n:,} workers, profile {run.profile} (emulated)")
    figure.legend(loc="outside lower center", ncols=4)
