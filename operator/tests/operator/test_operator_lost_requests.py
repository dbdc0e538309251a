# SPDX-License-Identifier: Apache-2.0
"""Requests for actions that get lost on their way: each action ends or runs, and none blocks the next."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from fleet_world import World, is_complete, living

from simyard.api import names


def runs(ledger: Path) -> int:
    return len(ledger.read_text().splitlines()) if ledger.exists() else 0


async def test_an_action_whose_request_was_swallowed_is_sent_again_and_runs_once(
    make_world: Callable[[], Awaitable[World]], tmp_path: Path
) -> None:
    world, ledger = await make_world(), tmp_path / "ledger"
    async with living(world) as operator:
        await world.ready(operator)
        pool = await world.make_pool(1)
        await world.right(pool, 1)
        async with world.swallowing(world.workers(pool)[0]) as swallowed:
            name = await world.act(pool, "run", ledger=str(ledger))
            await world.until(lambda: bool(swallowed), "the request was swallowed")
        await world.until(lambda: is_complete(world, name), "the action is complete")
        following = await world.act(pool, "run", ledger=str(ledger))
        await world.until(lambda: is_complete(world, following), "the next one too")
    assert runs(ledger) == 2


async def test_what_a_lost_worker_never_began_is_run_by_another_one(
    make_world: Callable[[], Awaitable[World]], tmp_path: Path
) -> None:
    world, ledger = await make_world(), tmp_path / "ledger"
    async with living(world) as operator:
        await world.ready(operator)
        pool = await world.make_pool(1)
        await world.right(pool, 1)
        worker = world.workers(pool)[0]
        async with world.swallowing(worker) as swallowed:
            name = await world.act(pool, "run", ledger=str(ledger))
            await world.until(lambda: bool(swallowed), "the request was swallowed")
            await world.client.delete(names.WORKERS, worker.metadata.name, world.name)
            await world.until(lambda: is_complete(world, name), "another worker has run it")
    found = world.seen.actions.get(world.name, name)
    assert found is not None
    assert found.status.attempts == 2
    assert found.status.worker_uid != worker.metadata.uid
    assert runs(ledger) == 1
