# SPDX-License-Identifier: Apache-2.0
"""A change of the service interrupts nothing that runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from fleet_world import World, is_complete, living

from simyard.api import names
from simyard.plan.worker import is_ready


async def test_a_running_action_ends_on_its_old_worker_while_the_others_are_replaced(
    make_world: Callable[[], Awaitable[World]], tmp_path: Path
) -> None:
    world, ledger, gate = await make_world(), tmp_path / "ledger", tmp_path / "gate"
    async with living(world) as operator:
        await world.ready(operator)
        pool = await world.make_pool(2)
        await world.right(pool, 2)
        name = await world.act(pool, "run", ledger=str(ledger), until=str(gate))
        await world.until(ledger.exists, "the action runs")
        before = {worker.metadata.uid for worker in world.workers(pool)}
        revision = world.workers(pool)[0].metadata.labels[names.LABEL_REVISION]
        await world.change_service()

        def are_side_by_side() -> bool:
            renewed = [item for item in world.workers(pool) if item.metadata.uid not in before and is_ready(item)]
            return len(renewed) == 2 and len(world.workers(pool)) == 3

        await world.until(are_side_by_side, "new workers serve beside the one that runs the action")
        gate.touch()
        await world.until(lambda: is_complete(world, name), "the action is complete")
        done = world.seen.actions.get(world.name, name)
        assert done is not None
        assert (done.status.revision, done.status.attempts) == (revision, 1)
        assert done.status.worker_uid in before
        assert len(ledger.read_text().splitlines()) == 1
        await world.right(pool, 2)
