# SPDX-License-Identifier: Apache-2.0
"""Permissions at a real broker of the clients, service adapters and frontends of OCCI."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from amqp_frontends import QUEUE, Vhost
from cloud4e_client import Cloud4eClient

from simyard.messaging.connection import open_channel
from simyard.messaging.errors import BrokerRefusedError, BrokerUnavailableError

Attempt = Callable[[Any, Cloud4eClient], Awaitable[object]]


async def ignore(_: Any) -> None:
    """Consume no message."""


FORBIDDEN: dict[str, Attempt] = {
    "read requests": lambda channel, other: channel.basic_get(QUEUE),
    "delete the shared queue": lambda channel, other: channel.queue_delete(QUEUE),
    "read dead letters": lambda channel, other: channel.basic_get("simyard.dead.requests"),
    "make a queue of another's": lambda channel, other: channel.queue_declare("somebody.replies"),
    "make an exchange": lambda channel, other: channel.exchange_declare("mine"),
    "publish to amq.topic": lambda channel, other: channel.basic_publish(b"", exchange="amq.topic", routing_key="a"),
    "pose as a service adapter": lambda channel, other: channel.queue_declare("occi.amqp.service.1"),
}


@pytest.mark.parametrize("attempt", FORBIDDEN.values(), ids=FORBIDDEN)
async def test_a_client_cannot(vhost: Vhost, attempt: Attempt) -> None:
    async with vhost.connect() as other:
        with pytest.raises(BrokerRefusedError):
            async with open_channel(vhost.client, "a test", confirms=True) as link:
                await attempt(link.channel, other)


async def test_a_service_adapter_reads_its_own_queues_and_no_others(vhost: Vhost) -> None:
    user = vhost.service.username
    own = f"occi.amqp.service.{user}"
    async with open_channel(vhost.service, "a test", confirms=True) as link:
        for queue in (own, f"{own}.1"):  # the first is for an adapter of 2014, whose user is named as its uuid
            await link.channel.queue_declare(queue, auto_delete=True)
            await link.channel.basic_consume(queue, ignore, no_ack=True)
    for queue in ("occi.amqp.service.1", f"{own}x", f"{own}x.1", f"occi.amqp.service.other.{user}", f"{own}.1.2"):
        with pytest.raises(BrokerRefusedError, match="ACCESS_REFUSED"):
            async with open_channel(vhost.service, "a test") as link:
                await link.channel.queue_declare(queue, auto_delete=True)


async def test_a_client_cannot_read_the_replies_of_another(vhost: Vhost) -> None:
    async with vhost.connect() as other:
        with pytest.raises(BrokerUnavailableError, match="RESOURCE_LOCKED"):
            async with open_channel(vhost.client, "a test") as link:
                await link.channel.basic_get(other.replies)


@pytest.mark.parametrize("name", ["{user}.replies", "1416552932.12345670.87654321", "1416552932.5.5e-05"])
async def test_a_client_may_name_its_reply_queue(vhost: Vhost, name: str) -> None:
    name = name.format(user=vhost.client.username)
    async with open_channel(vhost.client, "a test", confirms=True) as link:
        await link.channel.queue_declare(name, exclusive=True)
        await link.channel.basic_consume(name, ignore, no_ack=True)


@pytest.mark.parametrize(
    "attempt",
    [
        lambda channel: channel.queue_delete(QUEUE),
        lambda channel: channel.queue_declare("amqp.occi.mine", durable=True),
        lambda channel: channel.basic_get("simyard.dead.requests"),
    ],
    ids=["delete the shared queue", "make a shared queue", "read dead letters"],
)
async def test_a_frontend_cannot(vhost: Vhost, attempt: Callable[[Any], Awaitable[object]]) -> None:
    with pytest.raises(BrokerRefusedError):
        async with open_channel(vhost.frontend, "a test", confirms=True) as link:
            await attempt(link.channel)
