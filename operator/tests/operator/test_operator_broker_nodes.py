# SPDX-License-Identifier: Apache-2.0
"""A broker of three nodes loses each of them in turn, killed or silent: results keep arriving while it is away."""

from __future__ import annotations

import asyncio
import itertools
import logging
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from balanced_broker import balanced
from fleet_world import World, is_complete, living
from memory_cloud import MemoryCloud

from simyard.api.worker_pool import WorkerPool
from simyard_dev.controlplane import ControlPlane
from simyard_dev.local_broker import LocalCluster

pytestmark = [pytest.mark.xdist_group("broker-nodes"), pytest.mark.soak]
log = logging.getLogger(__name__)

WORKERS = 6
RESULTS = 12
"""So many actions are begun and finished while a node is away."""
PATIENCE_SECONDS = 240.0


@pytest.fixture(scope="module")
def cluster(simyard_directory: Path) -> Iterator[LocalCluster]:
    cluster = LocalCluster(simyard_directory / "broker-cluster")
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture
async def world(cluster: LocalCluster, installed: ControlPlane, tmp_path: Path) -> AsyncIterator[World]:
    cloud = MemoryCloud(tmp_path / "cloud")
    cloud.channels_per_connection = 2  # each worker has a connection of its own, to some node
    async with balanced(cluster) as access, World(installed.kubeconfig, access, cloud) as world:
        yield world


class Calls:
    """Calls Async actions, a few at a time, and notes when results come."""

    def __init__(self, world: World, pool: WorkerPool, ledger: Path) -> None:
        self._world, self._pool, self._ledger = world, pool, ledger
        self.finished: list[float] = []

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(self._call())

    async def _call(self) -> None:
        while True:
            name = await self._world.act(self._pool, "rerun", ledger=str(self._ledger))
            await self._world.until(lambda name=name: is_complete(self._world, name), name, seconds=PATIENCE_SECONDS)
            self.finished.append(time.monotonic())

    async def until_more(self, count: int) -> None:
        wanted = len(self.finished) + count
        await self._world.until(lambda: len(self.finished) >= wanted, "results arrive", seconds=PATIENCE_SECONDS)

    def longest_pause(self, since: float) -> float:
        times = [since, *(moment for moment in self.finished if moment > since)]
        return max(after - before for before, after in itertools.pairwise(times))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "silent"])
async def test_results_keep_arriving_while_any_node_of_the_broker_is_away(
    world: World, cluster: LocalCluster, tmp_path: Path, number: signal.Signals
) -> None:
    async with living(world) as operator:
        await world.ready(operator)
        pool = await world.make_pool(WORKERS)
        await world.right(pool, WORKERS)
        calls = Calls(world, pool, tmp_path / "ledger")
        calling = asyncio.create_task(calls.run())
        try:
            for node in cluster.nodes:
                await calls.until_more(RESULTS)
                lost_at = time.monotonic()
                node.send_signal(number)
                try:
                    await calls.until_more(RESULTS)
                    await world.right(pool, WORKERS)  # those that were connected to it are back, on other nodes
                    log.warning(
                        "longest pause %.1f s, all back after %.1f s",
                        calls.longest_pause(lost_at),
                        time.monotonic() - lost_at,
                    )
                finally:
                    await asyncio.to_thread(node.stop, 0)  # a silent one too, as its host does when it starts again
                    await asyncio.to_thread(cluster.start)
                assert not calling.done(), calling
        finally:
            calling.cancel()
