# SPDX-License-Identifier: Apache-2.0
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

from simyard.api.base import find_condition
from simyard.fleet import registry
from simyard.messaging import events
from simyard_sites.kubernetes import client

JUMPS = [timedelta(hours=1), timedelta(hours=-1)]


class Clock:
    """The operator's wall clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead = timedelta()
        original = registry.get_time
        for name, module in list(sys.modules.items()):
            if name.startswith("simyard.") and getattr(module, "get_time", None) is original:
                monkeypatch.setattr(module, "get_time", self.get_time)
        monkeypatch.setattr(events, "time", SimpleNamespace(time=lambda: time.time() + self.ahead.total_seconds()))

    def get_time(self) -> datetime:
        return datetime.now(UTC) + self.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


async def test_a_site_tells_that_the_clocks_differ_and_that_they_agree_again(
    make_world: Callable[[], Awaitable[World]], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await make_world()

    def told(status: str, reason: str) -> bool:
        site = world.seen.sites.get("", world.name)
        found = find_condition(site.status.conditions, "PlatformHealthy") if site is not None else None
        return found is not None and (found.status, found.reason) == (status, reason)

    async with living(world) as operator:
        await world.ready(operator)
        await world.until(lambda: told("True", "PlatformWorks"), "the platform works")
        with monkeypatch.context() as wrong:
            wrong.setattr(client, "compute_clock_skew", lambda *_: -75.0)
            pool = await world.make_pool(1)
            await world.until(lambda: told("False", "ClockSkew"), "the clocks differ")
            await world.right(pool, 1)
        await world.change_pool(pool, replicas=2)
        await world.until(lambda: told("True", "PlatformWorks"), "the clocks agree")


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
