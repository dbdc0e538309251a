# SPDX-License-Identifier: Apache-2.0
"""Run all parts of the benchmark of studies, and return their rows."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from simyard_bench import machine
from simyard_bench.start import revision
from simyard_bench.studies import job, peers, study
from simyard_bench.studies.rows import Figures, Row, System
from simyard_dev import tools
from simyard_dev.errors import SetupError
from simyard_dev.progress import say

TASKS = 100_000
MANY_TASKS = 1_000_000
JOB_TASKS = 5_000
"""Number of completions of the Job: each leaves a pod in etcd, and its rate does not rise with their number."""
WORKERS = (100, 1000)


@dataclass(frozen=True)
class Plan:
    """The parts of a run.

    Attributes:
        systems: the systems to measure.
        workers: numbers of workers.
        tasks: number of tasks; fewer for the Job (``job_tasks``).
        many: number of tasks of a further Study with the most workers; 0 for none.
    """

    systems: Sequence[System] = tuple(System)
    workers: Sequence[int] = WORKERS
    tasks: int = TASKS
    job_tasks: int = JOB_TASKS
    many: int = MANY_TASKS


def measure(directory: Path, plan: Plan) -> Generator[Row, None, None]:
    """Measure all parts, and yield the row of each as soon as it is known.

    Raises:
        SetupError: a server did not start, or tasks failed.
    """
    for figures, versions in _run(directory, plan):
        now = datetime.now(UTC).replace(microsecond=0)
        yield Row(**dict(figures), machine=machine.describe(), versions=versions, date=now, revision=revision())


def _run(directory: Path, plan: Plan) -> Iterator[tuple[Figures, dict[str, str]]]:
    kubernetes = {"kubernetes": tools.KUBERNETES.version, "etcd": tools.ETCD.version}
    for workers in plan.workers:
        if System.DASK in plan.systems:
            yield peers.measure(System.DASK, workers, plan.tasks)
        if System.RAY in plan.systems and workers == plan.workers[0]:
            try:
                yield peers.measure(System.RAY, workers, plan.tasks)
            except SetupError as error:
                say(f"Ray is left out: {error}")
        if System.STUDY in plan.systems:
            numbers = [plan.tasks, *([plan.many] if plan.many and workers == max(plan.workers) else [])]
            versions = {**kubernetes, "versitygw": tools.VERSITYGW.version}
            for figures in study.measure(directory, workers, numbers):
                yield figures, versions
        if System.JOB in plan.systems:
            yield job.measure(directory, workers, plan.job_tasks), {**kubernetes, "kwok": tools.KWOK.version}
