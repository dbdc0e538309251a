"""The timeline of a pool's start: when each worker entered each stage.

PURE: from Workers to data, text and SVG. The stages are those of the OpenNebula study: ``start -> pending`` (request
accepted), ``pending -> prolog`` (placed), ``prolog -> boot`` (disk ready), ``boot -> running`` (hypervisor says
running), ``running -> registered`` (the service adapter's message arrived).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from statistics import median
from xml.sax.saxutils import escape

from simyard.api.base import Json
from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool

STAGES = ("start", "pending", "prolog", "boot", "running", "registered")
INTERVALS = tuple(pairwise(STAGES))
MARKS = (".", ":", "-", "=", "#")
COLOURS = ("#bdbdbd", "#9ecae1", "#6baed6", "#3182bd", "#31a354")
TEXT_WIDTH = 60


@dataclass(frozen=True)
class WorkerLine:
    """One worker: seconds since the pool's start at which it entered each stage, where it has."""

    name: str
    site: str
    entered: dict[str, float]

    @property
    def end(self) -> float:
        """The last time known."""
        return max(self.entered.values(), default=0.0)


@dataclass(frozen=True)
class Timeline:
    """A pool's start. ``t_boot`` and ``t_r`` are seconds; None until all workers are there."""

    pool: str
    requested: datetime
    lines: Sequence[WorkerLine]
    t_boot: float | None
    t_r: float | None

    @property
    def end(self) -> float:
        """Seconds until the last event."""
        return max((line.end for line in self.lines), default=0.0)


def timeline_of(pool: WorkerPool, workers: Sequence[Worker]) -> Timeline | None:
    """The timeline of the workers that the pool's newest start asked for; None before the first start."""
    start = pool.status.start
    if start is None:
        return None
    requested = start.requested_time
    lines = []
    for worker in workers:
        created = worker.status.stages.start or worker.metadata.creation_timestamp
        if created is None or (created - requested).total_seconds() < -1:
            continue
        entered = {}
        for stage in STAGES:
            moment: datetime | None = getattr(worker.status.stages, stage)
            if moment is not None:
                entered[stage] = max(0.0, (moment - requested).total_seconds())
        lines.append(WorkerLine(worker.metadata.name, worker.spec.site, entered))
    lines.sort(key=lambda line: (line.end, line.name))
    return Timeline(
        pool=pool.metadata.name,
        requested=requested,
        lines=lines,
        t_boot=_seconds(start.boot_milliseconds),
        t_r=_seconds(start.registered_milliseconds),
    )


def to_json(timeline: Timeline) -> Json:
    """As data; times in seconds since ``requestedTime``."""
    return {
        "pool": timeline.pool,
        "requestedTime": timeline.requested.isoformat(),
        "tBootSeconds": timeline.t_boot,
        "tRSeconds": timeline.t_r,
        "stages": {f"{first}->{second}": value for (first, second), value in _medians(timeline).items()},
        "workers": [{"name": line.name, "site": line.site, "entered": line.entered} for line in timeline.lines],
    }


def to_text(timeline: Timeline, *, most: int = 40) -> str:
    """As a bar of characters per worker, for a terminal; of many workers, ``most`` evenly chosen ones."""
    end = timeline.end or 1.0
    lines = _sample(timeline.lines, most)
    width = max((len(line.name) for line in lines), default=4)
    legend = "  ".join(f"{mark} {a}->{b}" for mark, (a, b) in zip(MARKS, INTERVALS, strict=True))
    out = [
        f"Start of {timeline.pool} at {timeline.requested:%Y-%m-%d %H:%M:%S} UTC, {len(timeline.lines)} workers",
        legend,
    ]
    for line in lines:
        bar = ""
        for mark, (first, second) in zip(MARKS, INTERVALS, strict=True):
            if first in line.entered and second in line.entered:
                bar = bar.ljust(round(line.entered[first] / end * TEXT_WIDTH))
                bar += mark * (round(line.entered[second] / end * TEXT_WIDTH) - len(bar))
        out.append(f"{line.name.ljust(width)} |{bar.ljust(TEXT_WIDTH)}| {line.end:.3f}s")
    if len(lines) < len(timeline.lines):
        out.append(f"({len(lines)} of {len(timeline.lines)} workers shown)")
    medians = ", ".join(f"{a}->{b} {value:.3f}s" for (a, b), value in _medians(timeline).items())
    out.append(f"Median: {medians}" if medians else "No stage is complete yet.")
    out.append(f"T_boot {_shown(timeline.t_boot)}, T_r {_shown(timeline.t_r)}")
    return "\n".join(out)


def to_svg(timeline: Timeline) -> str:
    """As a picture: one row per worker, one colour per stage, in the order in which the workers were ready."""
    left, right, top, bottom, plot_width = 60, 20, 64, 44, 660
    count = max(1, len(timeline.lines))
    row = min(18.0, max(1.0, 480 / count))
    height = row * count
    end = timeline.end or 1.0
    scale = plot_width / end
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + plot_width + right}" '
        f'height="{top + height + bottom:.0f}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{left}" y="18" font-size="14">Start of {escape(timeline.pool)}: {len(timeline.lines)} workers, '
        f"T_boot {_shown(timeline.t_boot)}, T_r {_shown(timeline.t_r)}</text>",
    ]
    for index, ((first, second), colour) in enumerate(zip(INTERVALS, COLOURS, strict=True)):
        key = left + index * 132
        parts.append(f'<rect x="{key}" y="28" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{key + 16}" y="38" font-size="10">{first} → {second}</text>')
    for index, line in enumerate(timeline.lines):
        y = top + index * row
        for (first, second), colour in zip(INTERVALS, COLOURS, strict=True):
            if first in line.entered and second in line.entered:
                x, wide = left + line.entered[first] * scale, (line.entered[second] - line.entered[first]) * scale
                parts.append(
                    f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(0.0, wide):.1f}" height="{row * 0.9:.1f}" '
                    f'fill="{colour}"><title>{escape(line.name)}</title></rect>'
                )
    for moment, name in ((timeline.t_boot, "T_boot"), (timeline.t_r, "T_r")):
        if moment is not None:
            x = left + min(moment, end) * scale
            parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{top + height:.1f}" stroke="#d62728"/>')
            parts.append(f'<text x="{x:.1f}" y="{top - 4}" text-anchor="middle" fill="#d62728">{name}</text>')
    for moment in _ticks(end):
        x = left + moment * scale
        parts.append(f'<text x="{x:.1f}" y="{top + height + 16:.1f}" text-anchor="middle">{moment:g}</text>')
    parts.append(
        f'<text x="{left + plot_width / 2}" y="{top + height + 34:.1f}" text-anchor="middle">seconds since the request'
        "</text>"
    )
    parts.append(
        f'<text transform="translate(20,{top + height / 2:.0f}) rotate(-90)" text-anchor="middle">workers</text>'
    )
    return "\n".join([*parts, "</svg>", ""])


def _medians(timeline: Timeline) -> dict[tuple[str, str], float]:
    found = {}
    for first, second in INTERVALS:
        spans = [
            line.entered[second] - line.entered[first]
            for line in timeline.lines
            if first in line.entered and second in line.entered
        ]
        if spans:
            found[first, second] = median(spans)
    return found


def _ticks(end: float) -> list[float]:
    """Some four to ten round numbers from 0 to ``end``."""
    magnitude = 10.0 ** math.floor(math.log10(end / 4))
    step = next(factor * magnitude for factor in (5, 2, 1) if end / (factor * magnitude) >= 4)
    return [round(index * step, 6) for index in range(int(end / step + 1e-9) + 1)]


def _sample(lines: Sequence[WorkerLine], most: int) -> Sequence[WorkerLine]:
    if len(lines) <= most:
        return lines
    return [lines[index * (len(lines) - 1) // (most - 1)] for index in range(most)]


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _shown(seconds: float | None) -> str:
    return "not reached" if seconds is None else f"{seconds:.3f} s"
