"""The operator's wall clock jumps by an hour: nobody is replaced and nothing is ended because of it."""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from fleet_world import World, is_complete, living

from simyard.fleet import registry
from simyard.messaging import events

JUMPS = [timedelta(hours=1), timedelta(hours=-1)]


class Clock:
    """The operator's wall clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead = timedelta()
        original = registry.now
        for name, module in list(sys.modules.items()):
            if name.startswith("simyard.") and getattr(module, "now", None) is original:
                monkeypatch.setattr(module, "now", self.now)
        monkeypatch.setattr(events, "time", SimpleNamespace(time=lambda: time.time() + self.ahead.total_seconds()))

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.mark.parametrize("jump", JUMPS, ids=str)
async def test_a_jump_during_a_start_replaces_nobody(
    make_world: Callable[[], Awaitable[World]], clock: Clock, jump: timedelta
) -> None:
    world = await make_world()
    world.cloud.model.settings = replace(world.cloud.model.settings, boot_milliseconds=1500)
    async with living(world) as operator:
        await world.ready(operator)
        pool = await world.make_pool(3)
        await world.until(lambda: len(world.cloud.machines()) == 3, "the machines are made")
        clock.ahead = jump
        await world.right(pool, 3)
        assert len(world.cloud.made) == 3
        await world.change_pool(pool, replicas=4)
        await world.right(pool, 4)
        assert len(world.cloud.made) == 4


@pytest.mark.parametrize("jump", JUMPS, ids=str)
async def test_a_jump_while_all_is_well_ends_nothing(
    make_world: Callable[[], Awaitable[World]], tmp_path: Path, clock: Clock, jump: timedelta
) -> None:
    world = await make_world()
    async with living(world) as operator:
        await world.ready(operator)
        pool = await world.make_pool(3)
        await world.right(pool, 3)
        uids = {worker.metadata.uid for worker in world.workers(pool)}
        go = tmp_path / "go"
        under_way = await world.act(pool, "run", ledger=str(tmp_path / "ledger"), until=str(go))
        await world.until((tmp_path / "ledger").exists, "the action runs")
        clock.ahead = jump
        operator.fleet.pools.wake_all()
        operator.fleet.liveness._on_change(None)
        later = await world.act(pool, "run", ledger=str(tmp_path / "later"))
        await world.until(lambda: is_complete(world, later), "another action is complete")
        go.touch()
        await world.until(lambda: is_complete(world, under_way), "the action is complete")
        assert {worker.metadata.uid for worker in world.workers(pool)} == uids
        assert world.is_right(pool, 3)
        assert len(world.cloud.made) == 3
        assert len((tmp_path / "ledger").read_text().splitlines()) == 1
