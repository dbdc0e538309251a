# SPDX-License-Identifier: Apache-2.0
"""Passwords at the broker change while workers work: a real API server, a real broker, real adapters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fleet_world import SERVICE, TIMING, World, is_complete, living
from world_logins import SECRETS, consumed_under, logins, rotate, until_rotated

from simyard.api import names
from simyard.api.base import Json
from simyard.api.worker_pool import WorkerPool
from simyard.messaging.access import BrokerAccess
from simyard.messaging.connection import open_channel
from simyard.messaging.errors import BrokerRefusedError
from simyard.plan.worker import is_ready
from simyard_adapter.bootstrap import BrokerAddress
from simyard_adapter.wire import Request, name_pool_queue, name_pool_user, name_standalone_user
from simyard_sites.kubernetes.errors import NotFoundError

SECONDS = 240.0


@pytest.fixture
async def world(make_world: Callable[[], Awaitable[World]]) -> AsyncIterator[World]:
    yield await make_world()


async def eventually(check: Callable[[], Awaitable[bool]], what: str) -> None:
    try:
        async with asyncio.timeout(SECONDS):
            while not await check():  # noqa: ASYNC110
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"{what}: it did not become so") from None


def uids(world: World, pool: WorkerPool) -> set[str]:
    return {worker.metadata.uid for worker in world.workers(pool)}


async def is_refused(world: World, address: BrokerAddress) -> bool:
    access: BrokerAccess = replace(world.access, username=address.username, password=address.password)
    try:
        async with open_channel(access, "somebody who knows a former password"):
            return False
    except BrokerRefusedError:
        return True


def runs(ledger: Path) -> int:
    return len(ledger.read_text().splitlines()) if ledger.exists() else 0


async def test_a_new_master_key_replaces_no_worker_and_interrupts_no_action(world: World, tmp_path: Path) -> None:
    ledger, gate = tmp_path / "ledger", tmp_path / "gate"
    async with living(world) as operator:
        await world.ready(operator)
        pool = await world.make_pool(3)
        await world.right(pool, 3)
        uid, before = pool.metadata.uid, uids(world, pool)
        user = name_pool_user(uid)
        address = world.cloud.bootstrap(world.cloud.machines()[0].id).broker
        assert not await is_refused(world, address)

        given = {"ledger": str(ledger), "until": str(gate)}
        actions = [await world.act(pool, "run", **given) for _ in range(2)]
        await world.until(lambda: runs(ledger) == 2, "two actions run")
        body = {"action": "run", "mode": "Sync", "parameters": given}
        requester = operator.fleet.requester
        sync = asyncio.create_task(
            requester.request(name_pool_queue(user), user, Request.ACTION, body, timeout_seconds=SECONDS)
        )
        await world.until(lambda: runs(ledger) == 3, "a call of somebody who waits runs, too")

        await rotate(world)
        await eventually(lambda: newest_is_used(world, pool, f"{user}~2.0"), "all consume under the new login")
        gate.touch()
        assert (await sync).error is None
        await world.until(lambda: all(is_complete(world, action) for action in actions), "the actions succeed")
        await until_rotated(world)
        assert runs(ledger) == 3
        assert await logins(world, uid) == [f"{user}~2.0"]
        assert await is_refused(world, address)
        assert uids(world, pool) == before
        assert world.made_once()
        assert len(world.cloud.made) == 3
        await world.change_pool(pool, replicas=4)
        await world.right(pool, 4)
        newest = {world.cloud.bootstrap(machine.id).broker.username for machine in world.cloud.machines()}
        assert newest == {user, f"{user}~2.0"}
        await world.delete_pool(pool)
        await world.gone(pool)


async def newest_is_used(world: World, pool: WorkerPool, login: str) -> bool:
    return await consumed_under(world, pool.metadata.uid) == [login] * len(world.workers(pool))


async def test_a_worker_without_a_pool_gets_a_new_password(world: World) -> None:
    async with living(world) as operator:
        await world.ready(operator)
        spec = {"serviceRef": {"name": SERVICE}, "site": world.name}
        made: Json = await world.make(names.WORKERS, "alone", spec)
        uid = made["metadata"]["uid"]
        await world.until(
            lambda: (found := world.seen.workers.get(world.name, "alone")) is not None and is_ready(found),
            "it is ready",
        )
        await rotate(world)
        await until_rotated(world)
        assert await logins(world, uid) == [f"{name_standalone_user(uid)}~2.0"]
        await world.client.delete(names.WORKERS, "alone", world.name)
        await world.until_nothing_is_left(uid)


async def test_a_worker_that_never_connects_delays_the_end_until_the_deadline(world: World) -> None:
    async with living(world, timing=replace(TIMING, login_deadline_seconds=3.0)) as operator:
        await world.ready(operator)
        made = await world.make(names.WORKERS, "waits", {"serviceRef": {"name": "nothing"}, "site": world.name})
        await rotate(world)
        await until_rotated(world)
        uid = made["metadata"]["uid"]
        assert await logins(world, uid) == [f"{name_standalone_user(uid)}~2.0"]


async def test_a_rotation_that_is_asked_for_while_a_worker_delays_another_begins_when_that_has_ended(
    world: World,
) -> None:
    async with living(world, timing=replace(TIMING, login_deadline_seconds=5.0)) as operator:
        await world.ready(operator)
        pool = await world.make_pool(2)
        await world.right(pool, 2)
        before, user = uids(world, pool), name_pool_user(pool.metadata.uid)
        first = world.cloud.bootstrap(world.cloud.machines()[0].id).broker
        made = await world.make(names.WORKERS, "waits", {"serviceRef": {"name": "nothing"}, "site": world.name})
        uid = made["metadata"]["uid"]
        await rotate(world)
        for _ in range(2):
            await rotate(world)
            data = (await world.client.get(SECRETS, names.MASTER_KEY_SECRET, world.name))["data"]
            assert {"previous", "following"} <= data.keys(), "the first is under way, and one more is remembered"
        await until_rotated(world)
        assert await logins(world, pool.metadata.uid) == [f"{user}~3.0"]
        assert await logins(world, uid) == [f"{name_standalone_user(uid)}~3.0"]
        assert await is_refused(world, first)
        assert uids(world, pool) == before
        data = (await world.client.get(SECRETS, names.MASTER_KEY_SECRET, world.name))["data"]
        assert data.keys() == {"key", "number"}


async def test_another_operator_ends_a_rotation_that_one_has_begun(world: World) -> None:
    first = await world.operator()
    await world.ready(first)
    pool = await world.make_pool(3)
    await world.right(pool, 3)
    before, user = uids(world, pool), name_pool_user(pool.metadata.uid)
    await rotate(world)

    async def has_both() -> bool:
        return await logins(world, pool.metadata.uid) == [user, f"{user}~2.0"]

    await eventually(has_both, "the new login is made")
    await first.end()
    async with living(world) as second:
        await world.ready(second)
        await until_rotated(world)
        assert await logins(world, pool.metadata.uid) == [f"{user}~2.0"]
        assert uids(world, pool) == before
        await world.right(pool, 3)


async def test_a_pool_that_a_worker_has_left_gets_a_new_password(world: World) -> None:
    async with living(world, rotate_after_seconds=1) as operator:
        await world.ready(operator)
        pool = await world.make_pool(3)
        await world.right(pool, 3)
        user = name_pool_user(pool.metadata.uid)
        address = world.cloud.bootstrap(world.cloud.machines()[0].id).broker
        assert await logins(world, pool.metadata.uid) == [user]
        await world.change_pool(pool, replicas=2)

        async def has_changed() -> bool:
            return await logins(world, pool.metadata.uid) == [f"{user}~1.1"]

        await eventually(has_changed, "the pool has the new login alone")
        assert await is_refused(world, address)
        await world.right(pool, 2)
        stored = world.seen.pools.get(world.name, pool.metadata.name)
        assert stored is not None
        assert stored.status.broker_credentials is not None
        assert stored.status.broker_credentials.generation == 1
        assert stored.status.broker_credentials.worker_left_time is None


async def test_the_control_plane_gets_new_passwords_of_its_own(world: World) -> None:
    async def passwords() -> list[str]:
        found = [
            await world.client.get(SECRETS, name, world.name)
            for name in (names.APISERVER_BROKER_SECRET, names.FRONTEND_BROKER_SECRET)
        ]
        return [BrokerAccess.from_secret(secret["data"]).password for secret in found]

    async with living(world) as operator:
        await world.ready(operator)
        await eventually(lambda: has_secret(world), "both Secrets are there")
        before = await passwords()
        await rotate(world)

        async def changed() -> bool:
            return not set(before) & set(await passwords())

        await eventually(changed, "both Secrets have new passwords")


async def has_secret(world: World) -> bool:
    try:
        await world.client.get(SECRETS, names.FRONTEND_BROKER_SECRET, world.name)
    except NotFoundError:
        return False
    return True
