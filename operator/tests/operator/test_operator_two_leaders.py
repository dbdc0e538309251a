# SPDX-License-Identifier: Apache-2.0
"""Two operators lead at once, as after a pause of a process or of a clock: they do no harm to each other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from fleet_world import World, is_complete, living


async def test_two_leaders_make_what_one_makes_and_fall_silent(
    make_world: Callable[[], Awaitable[World]], tmp_path: Path
) -> None:
    world = await make_world()
    async with living(world) as first, living(world) as second:
        await world.ready(first)
        await world.ready(second)
        pool = await world.make_pool(6)
        await world.right(pool, 6)
        assert len(world.cloud.made) == 6
        ledgers = [tmp_path / f"ledger-{index}" for index in range(4)]
        actions = [await world.act(pool, "run", ledger=str(ledger)) for ledger in ledgers]
        await world.until(lambda: all(is_complete(world, name) for name in actions), "the actions are complete")
        assert [len(ledger.read_text().splitlines()) for ledger in ledgers] == [1] * 4
        await world.quiet(first, second)

        await world.change_pool(pool, replicas=2)
        await world.right(pool, 2)
        kept = {worker.metadata.uid for worker in world.workers(pool)}
        await world.change_pool(pool, replicas=5)
        await world.right(pool, 5)
        assert kept <= {worker.metadata.uid for worker in world.workers(pool)}
        assert len(world.cloud.made) == 6 + 3
        assert world.made_once()
        await world.quiet(first, second)

        await world.delete_pool(pool)
        await world.gone(pool)


async def test_a_failed_machine_is_replaced_once_by_two_leaders(make_world: Callable[[], Awaitable[World]]) -> None:
    world = await make_world()
    async with living(world) as first, living(world) as second:
        await world.ready(first)
        await world.ready(second)
        pool = await world.make_pool(4)
        await world.right(pool, 4)
        lost = world.cloud.machines()[1]
        world.cloud.fail(lost.id)
        uid = lost.owner.worker_uid
        await world.until(lambda: world.seen.find_worker(uid) is None and world.is_right(pool, 4), "it is replaced")
        await world.quiet(first, second)
        assert world.is_right(pool, 4), world.report()
        assert len(world.cloud.made) == 5
        assert world.made_once()
