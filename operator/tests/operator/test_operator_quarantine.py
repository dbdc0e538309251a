# SPDX-License-Identifier: Apache-2.0
"""A guest that publishes as fast as it can is cut off: other tenants go on, and its own pool comes back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiormq
import pytest
from aiormq.exceptions import AMQPError
from fleet_world import World, is_complete, living
from prometheus_client import REGISTRY

from simyard_adapter import wire
from simyard_adapter.bootstrap import BrokerAddress


async def flood(address: BrokerAddress, worker_uid: str, *, vouched: bool) -> None:
    """Publish events without waiting for anything, until the broker closes the connection.

    An event that is not vouched for lacks the property ``user_id``, which the broker would verify.
    """
    url = f"amqp://{address.username}:{address.password}@{address.host}:{address.port}/{address.vhost}"
    properties = aiormq.spec.Basic.Properties(
        user_id=address.username if vouched else None, message_type=wire.Event.ACTIVE.value
    )
    key = wire.make_event_key(wire.Event.ACTIVE, address.username, worker_uid)
    connection = await aiormq.connect(url)
    with contextlib.suppress(AMQPError, ConnectionError):
        channel = await connection.channel(publisher_confirms=False)
        while not connection.is_closed:
            await channel.basic_publish(b"{}", exchange=wire.EVENTS_EXCHANGE, routing_key=key, properties=properties)
    await connection.close()


def cut_off_users() -> float:
    return REGISTRY.get_sample_value("simyard_broker_quarantined_users") or 0.0


@pytest.mark.parametrize("vouched", [True, False], ids=["with user_id", "without user_id"])
async def test_a_guest_that_floods_is_cut_off_and_its_pool_comes_back(
    make_world: Callable[[], Awaitable[World]], tmp_path: Path, vouched: bool
) -> None:
    world = await make_world()
    async with living(world) as operator:
        await world.ready(operator)
        hostile, honest = await world.make_pool(1), await world.make_pool(1)
        await world.right(hostile, 1)
        await world.right(honest, 1)
        [worker] = world.workers(hostile)
        told = world.cloud.bootstrap(worker.status.machine_id)
        async with asyncio.timeout(240):
            await flood(told.broker, told.worker_uid, vouched=vouched)
        await world.until(lambda: cut_off_users() > 0, "the pool is cut off")
        name = await world.act(honest, "run", ledger=str(tmp_path / "ledger"))
        await world.until(lambda: is_complete(world, name), "the action of the other pool is complete")
        name = await world.act(hostile, "run", ledger=str(tmp_path / "ledger"))
        await world.until(lambda: is_complete(world, name), "the pool works again after the pause")
    assert (tmp_path / "ledger").read_text().count("\n") == 2
