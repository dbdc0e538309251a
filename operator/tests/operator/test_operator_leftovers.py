# SPDX-License-Identifier: Apache-2.0
"""What a pool had at the broker goes, also when nobody could clean up after it in time."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable

from fleet_world import World, living

from simyard.api import names
from simyard_adapter.wire import name_pool_user, name_standalone_user


async def test_a_pool_that_goes_without_its_finalizer_leaves_nothing_at_the_broker(
    make_world: Callable[[], Awaitable[World]],
) -> None:
    world = await make_world()
    async with living(world) as operator:
        await world.ready(operator)
        pool = await world.make_pool(2)
        await world.right(pool, 2)
        without = {"metadata": {"finalizers": None}}
        await world.client.patch(names.WORKER_POOLS, pool.metadata.name, without, world.name)
        await world.delete_pool(pool)
        await world.gone(pool)


async def test_users_without_queues_are_found_and_those_of_other_virtual_hosts_are_kept(
    make_world: Callable[[], Awaitable[World]],
) -> None:
    world, other = await make_world(), await make_world()
    nobody, alone, foreign = str(uuid.uuid4()), str(uuid.uuid4()), str(uuid.uuid4())
    await world.make_user(name_pool_user(nobody))
    await world.make_user(name_standalone_user(alone))
    await other.make_user(name_pool_user(foreign))
    try:
        async with living(world) as operator:
            await world.ready(operator)
            await world.until_nothing_is_left(nobody, alone)
        assert await world.left_at_broker(foreign) == [name_pool_user(foreign)]
    finally:
        await other.delete_user(name_pool_user(foreign))
