# SPDX-License-Identifier: Apache-2.0
"""The rights of a pool's user, tried on a real broker."""

from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from aiormq import spec
from aiormq.abc import AbstractChannel, DeliveredMessage
from hypothesis import given
from hypothesis import strategies as st
from messaging_workers import WORKER_UID, MakeWorker, Worker

from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.connection import open_connection
from simyard.messaging.errors import BrokerRefusedError, BrokerUnavailableError, MessagingError
from simyard.messaging.topology import DEAD_EXCHANGE, OPERATOR_QUEUE, UserLimits
from simyard_adapter.wire import (
    EVENTS_EXCHANGE,
    REPLIES_EXCHANGE,
    Event,
    make_event_key,
    make_reply_key,
    name_pool_queue,
)

Attempt = Callable[[AbstractChannel, Worker, Worker], Awaitable[object]]


async def ignore(_: DeliveredMessage) -> None:
    """Consume nothing."""


def publish(exchange: str, key: Callable[[Worker, Worker], str], user_id: Callable[[Worker, Worker], str]) -> Attempt:
    async def attempt(channel: AbstractChannel, own: Worker, other: Worker) -> None:
        properties = spec.Basic.Properties(user_id=user_id(own, other))
        await channel.basic_publish(b"{}", exchange=exchange, routing_key=key(own, other), properties=properties)

    return attempt


def as_self(own: Worker, other: Worker) -> str:
    return own.user


def as_other(own: Worker, other: Worker) -> str:
    return other.user


FORBIDDEN: dict[str, Attempt] = {
    "declare a queue": lambda channel, own, other: channel.queue_declare("simyard.worker.mine", durable=True),
    "declare an exclusive queue": lambda channel, own, other: channel.queue_declare("", exclusive=True),
    "declare its own queue anew": lambda channel, own, other: channel.queue_declare(own.queue, durable=True),
    "declare an exchange": lambda channel, own, other: channel.exchange_declare("mine"),
    "delete its own queue": lambda channel, own, other: channel.queue_delete(own.queue),
    "delete another's queue": lambda channel, own, other: channel.queue_delete(other.queue),
    "delete an exchange": lambda channel, own, other: channel.exchange_delete(EVENTS_EXCHANGE),
    "bind its queue to all events": lambda channel, own, other: channel.queue_bind(own.queue, EVENTS_EXCHANGE, "#"),
    "bind its queue to all replies": lambda channel, own, other: channel.queue_bind(own.queue, REPLIES_EXCHANGE, "#"),
    "unbind the operator's queue": lambda channel, own, other: channel.queue_unbind(
        OPERATOR_QUEUE, EVENTS_EXCHANGE, "register.#"
    ),
    "bind one exchange to another": lambda channel, own, other: channel.exchange_bind(
        "amq.topic", EVENTS_EXCHANGE, "#"
    ),
    "purge another's queue": lambda channel, own, other: channel.queue_purge(other.queue),
    "get from another's queue": lambda channel, own, other: channel.basic_get(other.queue),
    "consume another's queue": lambda channel, own, other: channel.basic_consume(other.queue, ignore),
    "consume another pool's queue": lambda channel, own, other: channel.basic_consume(
        name_pool_queue(other.user), ignore
    ),
    "consume the operator's queue": lambda channel, own, other: channel.basic_consume(OPERATOR_QUEUE, ignore),
    "publish to the default exchange, another's queue": publish("", lambda own, other: other.queue, as_self),
    "publish to the default exchange, its own queue": publish("", lambda own, other: own.queue, as_self),
    "publish to amq.topic": publish("amq.topic", lambda own, other: "any", as_self),
    "publish dead letters": publish(DEAD_EXCHANGE, lambda own, other: "", as_self),
    "publish an event of another": publish(
        EVENTS_EXCHANGE, lambda own, other: make_event_key(Event.RESULT, other.user, WORKER_UID), as_self
    ),
    "publish an event with words to spare": publish(
        EVENTS_EXCHANGE, lambda own, other: make_event_key(Event.RESULT, own.user, f"{WORKER_UID}.x"), as_self
    ),
    "publish a reply of another": publish(
        REPLIES_EXCHANGE, lambda own, other: make_reply_key("requester", other.user), as_self
    ),
    "publish as another": publish(
        EVENTS_EXCHANGE, lambda own, other: make_event_key(Event.RESULT, own.user, WORKER_UID), as_other
    ),
}

PERMITTED: dict[str, Attempt] = {
    "consume its own queue": lambda channel, own, other: channel.basic_consume(own.queue, ignore),
    "consume its pool's queue": lambda channel, own, other: channel.basic_consume(name_pool_queue(own.user), ignore),
    "publish its own event": publish(
        EVENTS_EXCHANGE, lambda own, other: make_event_key(Event.RESULT, own.user, WORKER_UID), as_self
    ),
    "publish its own reply": publish(
        REPLIES_EXCHANGE, lambda own, other: make_reply_key("requester", own.user), as_self
    ),
}


@pytest.mark.parametrize("attempt", FORBIDDEN.values(), ids=FORBIDDEN)
async def test_the_user_of_a_pool_cannot(attempt: Attempt, make_worker: MakeWorker) -> None:
    own, other = await make_worker("own"), await make_worker("other")
    with pytest.raises(BrokerRefusedError):
        async with own.connect() as link:
            await attempt(link.channel, own, other)


async def test_the_user_of_a_pool_can_do_its_work(make_worker: MakeWorker) -> None:
    own, other = await make_worker("own"), await make_worker("other")
    async with own.connect() as link:
        for attempt in PERMITTED.values():
            await attempt(link.channel, own, other)


async def test_the_user_of_a_pool_has_no_access_to_the_management_api(make_worker: MakeWorker) -> None:
    own = await make_worker("own")
    credentials = {"Authorization": aiohttp.encode_basic_auth(own.access.username, own.access.password)}
    url = f"{own.access.management_url}/api/whoami"
    async with aiohttp.ClientSession(headers=credentials) as session, session.get(url) as response:
        assert response.status == 401


async def test_a_pools_user_opens_no_more_connections_and_channels_than_its_workers_need(
    admin: BrokerAdmin, make_worker: MakeWorker
) -> None:
    worker = await make_worker("pool")
    await admin.limit_user(worker.user, UserLimits(connections=2, channels=4))
    async with open_connection(worker.access, "first"), open_connection(worker.access, "second"):
        with pytest.raises((BrokerRefusedError, BrokerUnavailableError), match="connection"):
            async with open_connection(worker.access, "third"):
                pass
    with pytest.raises(MessagingError):
        async with open_connection(worker.access, "first") as first:
            for _ in range(4):  # the connection already has a channel, for its pings
                await first.channel(publisher_confirms=False)


@given(workers=st.integers(0, 100_000), more=st.integers(0, 100_000))
def test_limits_have_room_for_all_workers_twice_and_grow_with_them(workers: int, more: int) -> None:
    limits, larger = UserLimits.of_pool(workers), UserLimits.of_pool(workers + more)
    assert 2 * workers < limits.connections <= 4 * workers + 32
    assert limits.connections <= larger.connections
    assert limits.channels == 4 * limits.connections
