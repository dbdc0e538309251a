# SPDX-License-Identifier: Apache-2.0
"""Start a platform with workers, run all cases on it, and return their rows."""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from simyard.api.names import WORKER_POOLS
from simyard_bench import machine
from simyard_bench.files.rows import Figures, Row
from simyard_bench.files.scenario import LARGE, SHARED_ACTIONS, SHARED_SIZE, SHARED_WORKERS, SIZES, Scenario
from simyard_bench.start import BASE_SECONDS, revision
from simyard_bench.workload import Load
from simyard_bench.world import World
from simyard_dev import tools
from simyard_dev.progress import step

PROGRAM = Path(__file__).with_name("program.py")


@dataclass(frozen=True)
class Plan:
    """The sizes and numbers of the cases. A size or number of 0 omits the case."""

    sizes: Sequence[int] = SIZES
    large: int = LARGE
    shared: int = SHARED_SIZE
    actions: int = SHARED_ACTIONS
    workers: int = SHARED_WORKERS
    rounds: int = 3


def measure(directory: Path, plan: Plan) -> Generator[Row, None, None]:
    """Measure all cases, and yield the rows of each as soon as they are known.

    Raises:
        SetupError: a server did not start, or a transfer failed.
    """
    world = World(directory / "files")
    try:
        world.up()
        world.prepare(Load(plan.workers, "instant", 1, "process"), PROGRAM)
        _grow(world, 1)
        where, versions = machine.describe(), _list_versions(world)
        with contextlib.closing(Scenario(world, directory, plan.rounds)) as scenario:
            for figures in _run(world, scenario, plan):
                now = datetime.now(UTC).replace(microsecond=0)
                yield Row(**dict(figures), machine=where, versions=versions, date=now, revision=revision())
    finally:
        world.down()


def _run(world: World, scenario: Scenario, plan: Plan) -> Iterator[Figures]:
    for size in plan.sizes:
        with step(f"transfers of {size} bytes"):
            yield from scenario.transfer(size)
    if plan.actions:
        _grow(world, plan.workers)
        with step(f"{plan.actions} actions with the same input"):
            yield scenario.share(plan.shared, plan.actions, plan.workers)
    if plan.large:
        with step(f"a file of {plan.large} bytes"):
            yield from scenario.transfer_large(plan.large)


def _grow(world: World, workers: int) -> None:
    with world.waiting(WORKER_POOLS, f"jsonpath={{.status.readyReplicas}}={workers}", BASE_SECONDS) as waiting:
        world.scale(workers)
        waiting.until(world.check)


def _list_versions(world: World) -> dict[str, str]:
    known = world.versions()
    del known["kwok"]
    client = importlib.metadata.version("obstore")
    return {**known, "versitygw": tools.VERSITYGW.version, "obstore": client}
