# SPDX-License-Identifier: Apache-2.0
"""Messages come twice or too late, sites lose events, answers and machines: no machine too many or too few."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest
from fleet_world import World, living
from living_operator import Operator

from simyard.api.names import Reason
from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool
from simyard.fleet.sites.orphans import ORPHANS
from simyard.plan.worker import is_ready
from simyard_adapter.wire import Event
from simyard_sites.base import SiteEvent, Snapshot
from simyard_sites.kubernetes.resource import Resource

EVENTS = Resource("events.k8s.io", "v1", "events", "Event")


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
    """Two ready workers."""
    pool = await world.make_pool(2)
    await world.right(pool, 2)
    return pool


def load(world: World, uid: str) -> object:
    worker = world.seen.find_worker(uid)
    return worker.status.attributes.get("load") if worker is not None else None


async def test_a_registration_that_comes_twice_changes_nothing_but_values(world: World, pool: WorkerPool) -> None:
    machine = world.cloud.machines()[0]
    uid = machine.owner.worker_uid
    before = world.seen.find_worker(uid)
    for value in (11, 11, 12):
        await world.say(machine.id, Event.REGISTER, adapterVersion="0.1.0", attributes={"load": value})
    await world.until(lambda: load(world, uid) == 12, "the last one was heard")
    after = world.seen.find_worker(uid)
    assert (before.status.stages, before.status.conditions) == (after.status.stages, after.status.conditions)
    assert world.is_right(pool, 2)
    assert len(world.cloud.made) == 2


async def test_the_machine_of_a_replaced_worker_does_not_register_the_new_one(world: World, pool: WorkerPool) -> None:
    old, other = world.cloud.machines()
    world.cloud.model.settings = replace(world.cloud.model.settings, pending_milliseconds=3_600_000)
    world.cloud.forget(old.id)

    known = {old.owner.worker_uid, other.owner.worker_uid}

    def new() -> Worker | None:
        return next((worker for worker in world.workers(pool) if worker.metadata.uid not in known), None)

    await world.until(lambda: new() is not None, "it is replaced")
    await world.say(old.id, Event.REGISTER, adapterVersion="0.1.0", attributes={"load": 13})
    await world.say(other.id, Event.REGISTER, adapterVersion="0.1.0", attributes={"load": 14})
    await world.until(lambda: load(world, other.owner.worker_uid) == 14, "the message after it was heard")
    assert not is_ready(new())
    assert new().status.stages.registered is None
    assert new().status.attributes.get("load") != 13


async def test_a_site_that_loses_events_is_asked(world: World, operator: Operator) -> None:
    chance = random.Random(7)

    def loses(event: SiteEvent) -> bool:
        return not isinstance(event, Snapshot) and chance.random() < 0.5

    world.cloud.loses = loses
    pool = await world.make_pool(8)
    await world.right(pool, 8)
    await world.change_pool(pool, replicas=2)
    await world.right(pool, 2)
    assert len(world.cloud.made) == 8
    await world.delete_pool(pool)
    await world.gone(pool)
    assert world.made_once()


async def test_a_site_whose_first_answers_are_lost_makes_each_machine_once(world: World, operator: Operator) -> None:
    operator.life.loses_first_answers = True
    pool = await world.make_pool(6)
    await world.right(pool, 6)
    await world.change_pool(pool, replicas=1)
    await world.right(pool, 1)
    assert len(world.cloud.made) == 6
    await world.delete_pool(pool)
    await world.gone(pool)
    assert world.made_once()


async def test_a_machine_that_its_site_forgot_is_replaced_once_and_removed_when_it_comes_back(
    world: World, pool: WorkerPool
) -> None:
    lost = world.cloud.machines()[0]
    uid, before = lost.owner.worker_uid, orphans(world)
    world.cloud.forget(lost.id)
    await world.until(lambda: world.seen.find_worker(uid) is None and world.is_right(pool, 2), "it is replaced")
    assert len(world.cloud.made) == 3
    failure = world.seen.pools.get(world.name, pool.metadata.name).status.failures[-1]
    assert failure.reason == Reason.MACHINE_LOST

    world.cloud.remember(lost.id)
    await world.until(lambda: world.cloud.machine(lost.id) is None, "the old machine is removed")
    await world.until(lambda: orphans(world) == before + 1, "it was counted")
    await reported(world, Reason.ORPHAN_REMOVED)
    assert world.is_right(pool, 2)
    assert len(world.cloud.made) == 3


async def test_a_machine_that_nobody_knows_is_removed_and_reported(world: World, pool: WorkerPool) -> None:
    known = world.cloud.machines()[0]
    before = orphans(world)
    owner = replace(known.owner, worker="p0-7", worker_uid="00000000-0000-0000-0000-000000000007")
    stray = world.cloud.model.create("p0-7-00000000", owner, 0.0)
    world.cloud.remember(stray.id)
    await world.until(lambda: world.cloud.machine(stray.id) is None, "it is removed")
    await world.until(lambda: orphans(world) == before + 1, "it was counted")
    await reported(world, Reason.ORPHAN_REMOVED)
    assert world.is_right(pool, 2)


async def test_a_snapshot_that_is_not_complete_makes_nobody_lost(
    world: World, operator: Operator, pool: WorkerPool
) -> None:
    first, second = world.cloud.machines()
    uids = {worker.metadata.uid for worker in world.workers(pool)}
    world.cloud.tell_snapshot([first])
    await world.until(lambda: second.id in world.cloud.asked, "the site was asked for the missing one")
    await follow_anew(world)
    world.cloud.tell_snapshot([])
    await world.until(lambda: first.id in world.cloud.asked, "the site was asked for the other one")
    await world.quiet(operator)
    assert {worker.metadata.uid for worker in world.workers(pool)} == uids
    assert world.is_right(pool, 2)
    assert len(world.cloud.made) == 2


async def test_a_stream_that_breaks_again_and_again_makes_nobody_lost(world: World, pool: WorkerPool) -> None:
    uids = {worker.metadata.uid for worker in world.workers(pool)}
    for _ in range(3):
        await follow_anew(world)
    assert {worker.metadata.uid for worker in world.workers(pool)} == uids
    assert world.is_right(pool, 2)
    assert len(world.cloud.made) == 2


def orphans(world: World) -> float:
    return ORPHANS.labels(world.name)._value.get()


async def follow_anew(world: World) -> None:
    """Break the stream of events, and wait until it is followed again."""
    streams = world.cloud.streams
    world.cloud.break_streams()
    await world.until(lambda: world.cloud.streams > streams, "it is followed again")


async def reported(world: World, reason: str) -> None:
    """Wait for the Event."""
    found: list[str] = []
    while reason not in found:
        items, _ = await world.client.list_all(EVENTS, world.name)
        found = [item["reason"] for item in items]
