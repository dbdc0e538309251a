# SPDX-License-Identifier: Apache-2.0
"""An operator dies at each of its side effects, one after the other, or does not hear the answer: nothing comes of it.

Each point is met in its turn: the operator works undisturbed up to it, and after it another one (or, when only the
answer was lost, the same) must reach what was asked for: the right workers with one machine each, no Worker and no
machine made in vain, no action run twice, and in the end nothing left, neither machines nor users and queues.

Each point costs the start of an operator. Therefore `make test` meets a few points of each scenario, and
`make test-soak` meets all of them.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from fleet_life import Fate
from fleet_world import World, is_complete
from living_operator import Operator
from world_logins import logins, rotate, until_rotated

from simyard.api.worker_pool import WorkerPool

WORLDS = 4
"""Worlds in which all points of a scenario are met beside each other."""
FEW_STEP = 5
"""Distance of two points where few of them are met."""


class Scenario:
    """What happens to a pool, again and again. ``makes``: how many Workers that takes."""

    makes = 0

    def __init__(self, world: World, directory: Path) -> None:
        self.world = world
        self.directory = directory
        self.pool: WorkerPool | None = None

    async def prepare(self) -> None:
        """Before the operator's side effects count."""

    async def begin(self) -> None:
        """What a user or fate does."""
        raise NotImplementedError

    async def ends(self, unless: asyncio.Event) -> bool:
        """Wait until the operator has done what is to be done; False when ``unless`` was set before."""
        raise NotImplementedError

    async def meanwhile(self) -> None:
        """What a user does at a point that the operator survives."""

    async def clear(self) -> None:
        """After each point."""


class Start(Scenario):
    makes = 2

    async def begin(self) -> None:
        self.pool = await self.world.make_pool(2)

    async def ends(self, unless: asyncio.Event) -> bool:
        return await self.world.right(self.pool, 2, unless=unless)

    async def clear(self) -> None:
        await self.world.delete_pool(self.pool)
        await self.world.gone(self.pool)
        self.pool = None


class ScaleIn(Scenario):
    async def prepare(self) -> None:
        self.pool = self.pool or await self.world.make_pool(3)
        await self.world.change_pool(self.pool, replicas=3)
        await self.world.right(self.pool, 3)

    async def begin(self) -> None:
        await self.world.change_pool(self.pool, replicas=1)

    async def ends(self, unless: asyncio.Event) -> bool:
        return await self.world.right(self.pool, 1, unless=unless)


class Deletion(Scenario):
    async def prepare(self) -> None:
        self.pool = await self.world.make_pool(2)
        await self.world.right(self.pool, 2)

    async def begin(self) -> None:
        await self.world.delete_pool(self.pool)

    async def ends(self, unless: asyncio.Event) -> bool:
        return await self.world.gone(self.pool, unless=unless)

    async def clear(self) -> None:
        self.pool = None


class ChangeOfMind(Start):
    """The pool is deleted again while it starts."""

    deleted = False

    async def prepare(self) -> None:
        self.deleted = False

    async def meanwhile(self) -> None:
        if self.pool is not None:  # the operator may have been at something else
            await self.world.delete_pool(self.pool)
            self.deleted = True

    async def ends(self, unless: asyncio.Event) -> bool:
        is_over = lambda: self.deleted or self.world.is_right(self.pool, 2)  # noqa: E731
        return await self.world.until(is_over, "it is deleted, or has started", unless=unless)

    async def clear(self) -> None:
        if not self.deleted:
            await self.world.delete_pool(self.pool)
        await self.world.gone(self.pool)
        self.pool = None


class Replacement(Scenario):
    makes = 1

    async def prepare(self) -> None:
        self.pool = self.pool or await self.world.make_pool(2)
        await self.world.right(self.pool, 2)

    async def begin(self) -> None:
        self.failed = self.world.cloud.machines()[0]
        self.world.cloud.fail(self.failed.id)

    async def ends(self, unless: asyncio.Event) -> bool:
        uid = self.failed.owner.worker_uid

        def is_replaced() -> bool:
            return self.world.seen.find_worker(uid) is None and self.world.is_right(self.pool, 2)

        return await self.world.until(is_replaced, f"{uid} is replaced", unless=unless)


class Rollout(Scenario):
    makes = 2

    async def prepare(self) -> None:
        self.pool = self.pool or await self.world.make_pool(2)
        await self.world.right(self.pool, 2)

    async def begin(self) -> None:
        self.outdated = {worker.metadata.uid for worker in self.world.workers(self.pool)}
        await self.world.change_service()

    async def ends(self, unless: asyncio.Event) -> bool:
        def is_replaced() -> bool:
            uids = {worker.metadata.uid for worker in self.world.workers(self.pool)}
            return not uids & self.outdated and self.world.is_right(self.pool, 2)

        return await self.world.until(is_replaced, "all are replaced", unless=unless)


class AsyncAction(Scenario):
    async def prepare(self) -> None:
        self.pool = self.pool or await self.world.make_pool(2)
        await self.world.right(self.pool, 2)

    async def begin(self) -> None:
        self.ledger = self.directory / f"{self.world.name}-ledger"
        self.ledger.unlink(missing_ok=True)
        self.name = await self.world.act(self.pool, "run", ledger=str(self.ledger))

    async def ends(self, unless: asyncio.Event) -> bool:
        return await self.world.until(lambda: is_complete(self.world, self.name), "complete", unless=unless)

    async def clear(self) -> None:
        assert len(self.ledger.read_text().splitlines()) == 1, "it ran once"


class Rotation(Scenario):
    """The master key is replaced: no worker is, and nothing of the former password is left."""

    async def prepare(self) -> None:
        self.pool = self.pool or await self.world.make_pool(2)
        await self.world.right(self.pool, 2)

    async def begin(self) -> None:
        self.uids = {worker.metadata.uid for worker in self.world.workers(self.pool)}
        await rotate(self.world)

    async def ends(self, unless: asyncio.Event) -> bool:
        return await until_rotated(self.world, unless=unless)

    async def clear(self) -> None:
        assert {worker.metadata.uid for worker in self.world.workers(self.pool)} == self.uids
        assert len(await logins(self.world, self.pool.metadata.uid)) == 1


SCENARIOS = (Start, ScaleIn, Deletion, Replacement, Rollout, AsyncAction)
CASES = [(scenario, fate) for scenario in SCENARIOS for fate in (Fate.DIES, Fate.ANSWER_LOST)]
CASES += [(ChangeOfMind, Fate.MEANWHILE), (Rotation, Fate.DIES)]


each_case = pytest.mark.parametrize(
    ("scenario", "fate"), CASES, ids=[f"{case.__name__}-{fate.name}" for case, fate in CASES]
)


@pytest.mark.soak
@each_case
async def test_no_point_is_a_bad_one(
    make_world: Callable[[], Awaitable[World]], tmp_path: Path, scenario: type[Scenario], fate: Fate
) -> None:
    points = itertools.count(1)
    worlds = [await make_world() for _ in range(WORLDS)]
    async with asyncio.TaskGroup() as group:
        for world in worlds:
            group.create_task(_meet(scenario(world, tmp_path), fate, points))
    assert next(points) > WORLDS + 1, "there are points to meet"


@pytest.mark.long
@each_case
async def test_none_of_a_few_points_is_a_bad_one(
    make_world: Callable[[], Awaitable[World]], tmp_path: Path, scenario: type[Scenario], fate: Fate
) -> None:
    points = itertools.count(1, FEW_STEP)
    await _meet(scenario(await make_world(), tmp_path), fate, points)
    assert next(points) > 1 + FEW_STEP, "there are points to meet"


async def _meet(scenario: Scenario, fate: Fate, points: Iterator[int]) -> None:
    """Meet points until there are none left."""
    world = scenario.world
    operator = await world.operator()
    try:
        await world.ready(operator)
        before = await world.at_broker()
        met = True
        while met:
            await scenario.prepare()
            made = len(world.cloud.made)
            operator.life.arm(fate, next(points))
            operator.life.meanwhile = scenario.meanwhile
            await scenario.begin()
            ended = await scenario.ends(operator.life.dead)
            met, what = bool(operator.life.met), f"point {operator.life.count}: {operator.life.met}"
            operator.life.arm(None)
            operator = await _successor(world, operator)
            assert ended or await scenario.ends(asyncio.Event()), what
            assert world.made_once(), what
            made_now = len(world.cloud.made) - made
            assert made_now == scenario.makes or (fate is Fate.MEANWHILE and made_now < scenario.makes), what
            await scenario.clear()
        if scenario.pool is not None:
            await world.delete_pool(scenario.pool)
            await world.gone(scenario.pool)
        assert not world.cloud.machines()
        assert await world.at_broker() == before
    finally:
        await operator.end()


async def _successor(world: World, operator: Operator) -> Operator:
    """The operator that works now."""
    if not operator.life.dead.is_set():
        return operator
    await operator.end()
    operator = await world.operator()
    await world.ready(operator)
    return operator
