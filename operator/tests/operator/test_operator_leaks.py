# SPDX-License-Identifier: Apache-2.0
"""Pools come and go, operators come and go: nothing of them is left, at the broker or in memory."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from fleet_world import World, is_complete, living
from living_operator import Operator

from simyard.api import names

_BOUNDED = {
    *("_tombstones", "_gone", "_users_of_gone", "_owners", "_ended", "_series"),  # the newest so many
    *("_boot_seconds", "_stages", "seconds"),  # the newest measurements
    *("_heap", "_begun", "_due", "_recent"),  # until their time has come
    *("_idle", "_channels"),  # connections that are used again
    "_states",  # one for each state of machines
    *("stored", "written"),  # what a Usage object says
}
"""What may grow for a while on purpose."""


async def test_pools_that_come_and_go_leave_nothing_at_the_broker_and_in_memory(
    make_world: Callable[[], Awaitable[World]], tmp_path: Path
) -> None:
    world = await make_world()
    async with living(world) as operator:
        await world.ready(operator)
        await _come_and_go(world, operator, tmp_path)
        queues = await world.at_broker()
        before = await _settled_sizes(world, operator)
        for _ in range(4):
            await _come_and_go(world, operator, tmp_path)
        assert await world.at_broker() == queues
        grown: Mapping[str, int] = {}

        def is_small() -> bool:
            nonlocal grown
            after = sizes(operator.fleet)
            grown = {path: after[path] - before[path] for path in after if after[path] > before[path]}
            return not grown

        try:
            await world.until(is_small, "nothing has grown", seconds=240)
        except AssertionError:
            raise AssertionError(f"grown after four more pools: {grown}") from None


async def test_an_operator_that_ends_leaves_no_task(make_world: Callable[[], Awaitable[World]]) -> None:
    world = await make_world()
    before = asyncio.all_tasks()
    async with living(world) as operator:
        await world.ready(operator)
        pool = await world.make_pool(2)
        await world.right(pool, 2)
        await world.delete_pool(pool)
        await world.gone(pool)
    await world.until(lambda: not asyncio.all_tasks() - before, "its tasks have ended", seconds=240)


async def _come_and_go(world: World, operator: Operator, directory: Path) -> None:
    """A pool with a failure, a change of size and an action."""
    pool = await world.make_pool(3)
    await world.right(pool, 3)
    name = await world.act(pool, "run", ledger=str(directory / "ledger"))
    await world.until(lambda: is_complete(world, name), "the action is complete")
    await world.client.delete(names.SERVICE_ACTIONS, name, world.name)
    lost = world.cloud.machines()[0]
    world.cloud.fail(lost.id)
    await world.until(
        lambda: world.seen.find_worker(lost.owner.worker_uid) is None and world.is_right(pool, 3), "it is replaced"
    )
    await world.change_pool(pool, replicas=1)
    await world.right(pool, 1)
    await world.delete_pool(pool)
    await world.gone(pool)


async def _settled_sizes(world: World, operator: Operator) -> Counter[str]:
    """The sizes once work that was put off is done."""
    await world.quiet(operator)
    return sizes(operator.fleet)


def sizes(root: object) -> Counter[str]:
    """How much is in each container below an object of ours, by the path of attributes that leads to it."""
    found: Counter[str] = Counter()
    seen: set[int] = set()
    left: deque[tuple[str, object]] = deque([("", root)])
    while left:
        path, item = left.popleft()
        if id(item) in seen or path.rpartition(".")[2].removesuffix("[]") in _BOUNDED:
            continue
        seen.add(id(item))
        if isinstance(item, Mapping | list | set | deque):
            found[path] += len(item)
            values = item.values() if isinstance(item, Mapping) else item
            left.extend((f"{path}[]", value) for value in list(values))
        elif type(item).__module__.startswith(("simyard.fleet", "simyard.messaging", "simyard.kube")):
            left.extend((f"{path}.{name}", value) for name, value in _attributes(item))
    return found


def _attributes(item: object) -> list[tuple[str, object]]:
    attributes = [*getattr(item, "__dict__", ()), *getattr(type(item), "__slots__", ())]
    return [(name, getattr(item, name)) for name in attributes if hasattr(item, name)]
