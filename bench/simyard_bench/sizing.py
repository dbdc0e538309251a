# SPDX-License-Identifier: Apache-2.0
"""Derive the CPU and memory that pools of some sizes need from the results of the benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from simyard_bench.occi.rows import Row
from simyard_bench.results import Run
from simyard_bench.tables import measured_on, table
from simyard_dev.errors import SetupError

SIZES = (1_000, 10_000)
PROFILE = "instant"
_STEP_MIB = 64
_SPARE = 1.5
_PROCESSES = {"operator": "the leading operator", "kube-apiserver": "kube-apiserver", "etcd": "etcd",
              "rabbitmq": "the broker", "aggregated apiserver": "the aggregated apiserver"}  # fmt: skip


def sizing(runs: Sequence[Run], rows: Sequence[Row], sizes: Sequence[int] = SIZES) -> str:
    """Return a table with a column for each number of workers, and a line that names the machine of the measurement.

    Raises:
        SetupError: the results do not cover a size.
    """
    starts = [run for run in runs if run.profile == PROFILE and run.time_scale == 1]

    def started(figure: Callable[[Run], float]) -> list[float]:
        return [_between([(run.n, figure(run)) for run in starts], size) for size in sizes]

    def answered(case: str, figure: Callable[[Row], float]) -> list[float]:
        found = [row for row in rows if row.case == case and not row.finished and row.frontends == 1]
        return [_between([(row.workers, figure(row)) for row in found], size) for size in sizes]

    memory = started(lambda run: run.operator_rss_mib)
    writes = started(lambda run: run.n * run.writes_per_worker)
    lines = [
        ("a start, where machines take no time", _each(started(lambda run: run.t_m_s), "{:.0f} s")),
        ("writes to the API server during a start", _each(writes, "{:,.0f}")),
        *((f"CPU seconds of a start: {process}", _each(started(_cpu(name)), "{:.1f}"))
          for name, process in _PROCESSES.items()),
        ("the operator's memory, at most", _each(memory, "{:.0f} MiB")),
        ("`operator.resources.requests.memory` at least", _each(map(_requested, memory), "{:.0f}Mi")),
        ("an OCCI frontend's memory, at most", _each(answered("get-compute", lambda row: row.rss_mib), "{:.0f} MiB")),
        ("reads of one compute per second, for each frontend",
         _each(answered("get-compute", lambda row: row.per_second), "{:,.0f}")),
        ("actions per second, for each frontend", _each(answered("action", lambda row: row.per_second), "{:,.0f}")),
    ]  # fmt: skip
    head = ("", *(f"{size:,} workers" for size in sizes))
    last = starts[-1]
    return table(head, [(name, *cells) for name, cells in lines]) + "\n" + measured_on(
        last.machine, last.versions, last.date
    )  # fmt: skip


def _cpu(process: str) -> Callable[[Run], float]:
    return lambda run: run.cpu_s[process]


def _between(measured: Sequence[tuple[int, float]], size: int) -> float:
    """Return the figure at that size: measured, or interpolated linearly between the sizes around it."""
    known = dict(sorted(measured))
    if size in known:
        return known[size]
    for (low, below), (high, above) in pairwise(known.items()):
        if low < size < high:
            return below + (above - below) * (size - low) / (high - low)
    raise SetupError(f"no results cover {size:,} workers: run the benchmarks with more workers")


def _requested(used_mib: float) -> int:
    """Return the memory to request: one and a half times the peak, rounded up to a step of 64 MiB."""
    return -int(-used_mib * _SPARE // _STEP_MIB) * _STEP_MIB


def _each(figures: Iterable[float], form: str) -> list[str]:
    return [form.format(figure) for figure in figures]
