# SPDX-License-Identifier: Apache-2.0
"""Simulated workers for tests: broker users, queues, replies and events, without an adapter."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import NoReturn, Protocol

import pytest
from aiormq import spec
from aiormq.abc import DeliveredMessage

from simyard.messaging.access import BrokerAccess
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.connection import BrokerChannel, open_channel
from simyard.messaging.topology import build_pool_queue_spec, build_pool_user_spec, build_worker_queue_spec
from simyard_adapter.wire import (
    EVENTS_EXCHANGE,
    REPLIES_EXCHANGE,
    REPLY,
    Event,
    make_event_key,
    make_reply_key,
    name_pool_user,
    name_worker_queue,
)
from simyard_dev.broker import Broker

PASSWORD = "a password of the test's"
WORKER_UID = "w1"


@dataclass(frozen=True)
class Worker:
    """A worker that is alone in its pool."""

    access: BrokerAccess
    user: str
    queue: str

    def connect(self, *, confirms: bool = True) -> contextlib.AbstractAsyncContextManager[BrokerChannel]:
        return open_channel(self.access, "test worker", confirms=confirms)

    @contextlib.asynccontextmanager
    async def answering(self, *replies: bytes) -> AsyncIterator[asyncio.Queue[DeliveredMessage]]:
        """Answer each request with these replies, and put the request into the queue."""
        requests: asyncio.Queue[DeliveredMessage] = asyncio.Queue()
        async with self.connect() as link:

            async def answer(request: DeliveredMessage) -> None:
                requests.put_nowait(request)
                for body in replies:
                    await self.reply(link, request, body)

            await link.channel.basic_consume(self.queue, answer, no_ack=True)
            yield requests

    async def reply(self, link: BrokerChannel, request: DeliveredMessage, body: bytes, kind: str = REPLY) -> None:
        asked = request.header.properties
        await link.channel.basic_publish(
            body,
            exchange=REPLIES_EXCHANGE,
            routing_key=make_reply_key(asked.reply_to or "", self.user),
            properties=spec.Basic.Properties(user_id=self.user, correlation_id=asked.correlation_id, message_type=kind),
            mandatory=True,
        )

    async def say(self, link: BrokerChannel, kind: Event, body: bytes, *, vouched: bool = True) -> None:
        await link.channel.basic_publish(
            body,
            exchange=EVENTS_EXCHANGE,
            routing_key=make_event_key(kind, self.user, WORKER_UID),
            properties=spec.Basic.Properties(user_id=self.user if vouched else None, delivery_mode=2),
        )


MakeWorker = Callable[[str], Awaitable[Worker]]


def access_to(broker: Broker) -> BrokerAccess:
    if broker.management_url is None:
        pytest.skip("RABBITMQ_MANAGEMENT_URL is not set")
    return BrokerAccess.from_url(broker.url, broker.management_url, broker.ca_file if "amqps:" in broker.url else None)


class Runs(Protocol):
    """An object that runs until it is cancelled."""

    async def run(self) -> NoReturn: ...


@contextlib.asynccontextmanager
async def running(service: Runs) -> AsyncIterator[None]:
    """Run the object while the block runs."""
    task = asyncio.create_task(service.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.asynccontextmanager
async def worker_maker(access: BrokerAccess, admin: BrokerAdmin) -> AsyncIterator[MakeWorker]:
    users: list[str] = []

    async def make(name: str) -> Worker:
        uid = f"{name}-{secrets.token_hex(4)}"
        user = name_pool_user(uid)
        users.append(user)
        await admin.ensure_user(build_pool_user_spec(uid), PASSWORD)
        await admin.ensure_queues([build_worker_queue_spec(user, WORKER_UID), build_pool_queue_spec(user)])
        return Worker(access.as_user(user, PASSWORD), user, name_worker_queue(user, WORKER_UID))

    try:
        yield make
    finally:
        for user in users:
            await admin.delete_user(user)
