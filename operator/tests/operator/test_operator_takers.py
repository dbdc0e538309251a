# SPDX-License-Identifier: Apache-2.0
"""Calls on a pool with more workers than take at first, with real adapters at a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from fleet_world import World, living
from living_operator import Operator

from simyard.api.worker_pool import WorkerPool
from simyard.messaging.connection import open_channel
from simyard.plan.takers import STANDING_TAKERS
from simyard_adapter.wire import Request, name_pool_queue, name_pool_user

REPLICAS = STANDING_TAKERS + 4
CALL_SECONDS = 30.0
LOOK_SECONDS = 0.05


@pytest.fixture
async def world(make_world: Callable[[], Awaitable[World]]) -> World:
    return await make_world()


@pytest.fixture
async def operator(world: World) -> AsyncIterator[Operator]:
    async with living(world) as operator:
        await world.ready(operator)
        yield operator


@pytest.fixture
async def pool(world: World, operator: Operator) -> WorkerPool:
    """All its workers are ready, and nobody has used it."""
    pool = await world.make_pool(REPLICAS, scaleIn={"drainSeconds": 0})
    await world.right(pool, REPLICAS)
    return pool


async def call(operator: Operator, pool: WorkerPool, ledger: Path, until: Path | None = None) -> None:
    """Call an action on the pool, and wait for its result."""
    user = name_pool_user(pool.metadata.uid)
    body = {"action": "run", "mode": "Sync", "parameters": {"ledger": str(ledger), "until": str(until or "")}}
    queue = name_pool_queue(user)
    reply = await operator.fleet.requester.request(queue, user, Request.ACTION, body, timeout_seconds=CALL_SECONDS)
    assert reply.error is None


async def take(world: World, pool: WorkerPool, count: int) -> None:
    """Wait until exactly so many workers take from the pool's queue."""
    async with open_channel(world.access, "test") as link, asyncio.timeout(CALL_SECONDS):
        while True:
            declared = await link.channel.queue_declare(
                name_pool_queue(name_pool_user(pool.metadata.uid)), passive=True
            )
            if declared.consumer_count == count:
                return
            await asyncio.sleep(LOOK_SECONDS)


async def test_some_serve_the_first_calls_and_afterwards_all_take(
    world: World, operator: Operator, pool: WorkerPool, tmp_path: Path
) -> None:
    await take(world, pool, STANDING_TAKERS)
    gate = tmp_path / "gate"
    first = [asyncio.create_task(call(operator, pool, tmp_path / "ledger", gate)) for _ in range(REPLICAS)]
    await world.until(lambda: runs(tmp_path / "ledger") == REPLICAS, "all run, each on a worker of its own")
    gate.touch()
    await asyncio.gather(*first)
    await take(world, pool, REPLICAS)
    await world.change_pool(pool, replicas=REPLICAS + 2)
    await world.right(pool, REPLICAS + 2)
    await take(world, pool, REPLICAS + 2)


async def test_takers_that_go_are_replaced(world: World, operator: Operator, pool: WorkerPool, tmp_path: Path) -> None:
    await take(world, pool, STANDING_TAKERS)
    for machine in world.cloud.machines()[: REPLICAS // 2]:
        world.cloud.fail(machine.id)
    await world.until(lambda: len(world.cloud.made) == REPLICAS + REPLICAS // 2, "they are replaced")
    await world.right(pool, REPLICAS)
    await take(world, pool, STANDING_TAKERS)
    await call(operator, pool, tmp_path / "ledger")


async def test_a_new_operator_leaves_what_workers_were_told_and_learns_anew_that_the_pool_is_used(
    world: World, operator: Operator, pool: WorkerPool, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    await call(operator, pool, ledger)
    await take(world, pool, REPLICAS)
    await operator.end()
    async with living(world) as other:
        await world.ready(other)
        await call(other, pool, ledger)
        await take(world, pool, REPLICAS)
        await world.change_pool(pool, replicas=REPLICAS + 2)
        await world.right(pool, REPLICAS + 2)
        calls = asyncio.create_task(keep_calling(other, pool, ledger))
        await take(world, pool, REPLICAS + 2)
        calls.cancel()
        await asyncio.wait([calls])


async def keep_calling(operator: Operator, pool: WorkerPool, ledger: Path) -> None:
    """Sooner or later a worker serves that has not said for a while that it is used."""
    while True:
        await call(operator, pool, ledger)


def runs(ledger: Path) -> int:
    return len(ledger.read_text().splitlines()) if ledger.exists() else 0
