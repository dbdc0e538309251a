# SPDX-License-Identifier: Apache-2.0
"""The timeline of a pool's start: the time at which each worker entered each stage.

This module is pure: it turns Workers into data and text (:mod:`simyard.cli.timeline_picture` draws the picture). The
stages are those of the OpenNebula study: ``start -> pending`` (request accepted), ``pending -> prolog`` (placed),
``prolog -> boot`` (disk ready), ``boot -> running`` (hypervisor reports that the machine runs), ``running ->
registered`` (first message of the service adapter).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from simyard.api.base import Json
from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool
from simyard.plan.start import INTERVALS

STAGES = ("start", *(last for _, last in INTERVALS))
MARKS = (".", ":", "-", "=", "#")
TEXT_WIDTH = 60


@dataclass(frozen=True)
class WorkerLine:
    """The line of one worker: the stages that it entered, each with its time in seconds since the request."""

    name: str
    site: str
    entered: dict[str, float]

    @property
    def end(self) -> float:
        """The time of the last known stage, in seconds since the request."""
        return max(self.entered.values(), default=0.0)


@dataclass(frozen=True)
class Timeline:
    """The start of one pool.

    Attributes:
        pool: name of the pool.
        requested: the time of the request.
        lines: the workers of the start, in the order in which they were ready.
        figures: T_boot, T_r and T_m in seconds; None until they are known.
        emulated: the names of the sites that emulate machines.
        replaced: the number of workers that replaced others after the start was complete.
    """

    pool: str
    requested: datetime
    lines: Sequence[WorkerLine]
    figures: dict[str, float | None]
    emulated: frozenset[str] = frozenset()
    replaced: int = 0

    @property
    def end(self) -> float:
        """The time of the last event, in seconds since the request."""
        return max((line.end for line in self.lines), default=0.0)

    @property
    def title(self) -> str:
        """The pool, the number of its workers, and the number of emulated workers."""
        count = len(self.lines)
        emulated = sum(line.site in self.emulated for line in self.lines)
        note = {0: "", count: " (emulated)"}.get(emulated, f" ({emulated} of them emulated)")
        return f"Start of {self.pool}: {count:,} worker{'s' if count != 1 else ''}{note}"


def build_timeline(pool: WorkerPool, workers: Sequence[Worker], emulated: Collection[str] = ()) -> Timeline | None:
    """Return the timeline of the newest start of a pool; None before its first start."""
    start = pool.status.start
    if start is None:
        return None
    requested = start.requested_time
    duration, replaced = _seconds(start.registered_milliseconds), 0
    lines = []
    for worker in workers:
        created = worker.status.stages.start or worker.metadata.creation_timestamp
        if created is None or (begun := (created - requested).total_seconds()) < -1:
            continue
        if duration is not None and begun > duration:
            replaced += 1
            continue
        entered = {}
        for stage in STAGES:
            moment: datetime | None = getattr(worker.status.stages, stage)
            if moment is not None:
                entered[stage] = max(0.0, (moment - requested).total_seconds())
        lines.append(WorkerLine(worker.metadata.name, worker.spec.site, entered))
    lines.sort(key=lambda line: (line.end, line.name))
    figures = {
        "T_boot": _seconds(start.boot_milliseconds),
        "T_r": _seconds(start.registered_milliseconds),
        "T_m": _seconds(start.published_milliseconds),
    }
    return Timeline(pool.metadata.name, requested, lines, figures, frozenset(emulated), replaced)


def to_json(timeline: Timeline) -> Json:
    """Return a timeline as JSON; its times are seconds since ``requestedTime``."""
    return {
        "pool": timeline.pool,
        "requestedTime": timeline.requested.isoformat(),
        "tBootSeconds": timeline.figures["T_boot"],
        "tRSeconds": timeline.figures["T_r"],
        "tMSeconds": timeline.figures["T_m"],
        "emulatedSites": sorted(timeline.emulated & {line.site for line in timeline.lines}),
        "stages": {f"{first}->{second}": value for (first, second), value in _medians(timeline).items()},
        "replacedWorkers": timeline.replaced,
        "workers": [{"name": line.name, "site": line.site, "entered": line.entered} for line in timeline.lines],
    }


def to_text(timeline: Timeline, *, max_lines: int = 40) -> str:
    """Return a timeline as text for a terminal, with one bar per worker.

    If the pool has more than ``max_lines`` workers, the text shows every n-th worker.
    """
    end = timeline.end or 1.0
    lines = _sample(timeline.lines, max_lines)
    width = max((len(line.name) for line in lines), default=4)
    sites = sorted({line.site for line in timeline.lines})
    legend = "  ".join(f"{mark} {a}->{b}" for mark, (a, b) in zip(MARKS, INTERVALS, strict=True))
    out = [f"{timeline.title}, at {timeline.requested:%Y-%m-%d %H:%M:%S} UTC", legend]
    for line in lines:
        bar = ""
        for mark, (first, second) in zip(MARKS, INTERVALS, strict=True):
            if first in line.entered and second in line.entered:
                bar = bar.ljust(round(line.entered[first] / end * TEXT_WIDTH))
                bar += mark * (round(line.entered[second] / end * TEXT_WIDTH) - len(bar))
        site = f" {line.site}" if len(sites) > 1 else ""
        out.append(f"{line.name.ljust(width)} |{bar.ljust(TEXT_WIDTH)}| {line.end:.3f}s{site}")
    if len(lines) < len(timeline.lines):
        out.append(f"({len(lines)} of {len(timeline.lines)} workers shown)")
    if timeline.replaced:
        word = "worker was" if timeline.replaced == 1 else "workers were"
        out.append(f"({timeline.replaced} {word} replaced after the start)")
    medians = ", ".join(f"{a}->{b} {value:.3f}s" for (a, b), value in _medians(timeline).items())
    out.append(f"Median: {medians}" if medians else "No stage is complete yet.")
    out.append(", ".join(f"{name} {_shown(value)}" for name, value in timeline.figures.items()))
    return "\n".join(out)


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


def _sample(lines: Sequence[WorkerLine], count: int) -> Sequence[WorkerLine]:
    if len(lines) <= count:
        return lines
    return [lines[index * (len(lines) - 1) // (count - 1)] for index in range(count)]


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _shown(seconds: float | None) -> str:
    return "not known yet" if seconds is None else f"{seconds:.3f} s"
