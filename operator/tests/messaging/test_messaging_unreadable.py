# SPDX-License-Identifier: Apache-2.0
"""A message with unreadable properties or routing key ends neither the connection nor the delivery of later ones."""

import asyncio
import struct

import pytest
from aiormq import spec
from aiormq.abc import DeliveredMessage
from messaging_workers import WORKER_UID, MakeWorker, running

from simyard.guest.messages import Drained
from simyard.messaging.access import BrokerAccess
from simyard.messaging.connection import open_channel
from simyard.messaging.events import OperatorEvents, ReceivedEvent
from simyard.messaging.requests import Requester
from simyard.messaging.topology import OPERATOR_QUEUE
from simyard.messaging.unreadable import MAX_FIELDS
from simyard_adapter.wire import EVENTS_EXCHANGE, REPLIES_EXCHANGE, Event, Request, make_event_key, make_reply_key

HEADERS, MESSAGE_ID, TIMESTAMP = 0x2000, 0x0080, 0x0040  # AMQP 0-9-1, 4.2.6.1
UNREADABLE = {
    "a time beyond all calendars": (TIMESTAMP, struct.pack(">Q", 2**63 - 1)),
    "text that is not UTF-8": (MESSAGE_ID, b"\x03\xff\xfe\xfd"),
}


class Raw(spec.Basic.Properties):
    """Message properties that are encoded as given, valid or not."""

    encoded = b""

    def marshal(self) -> bytes:
        return self.encoded


@pytest.mark.parametrize(("flags", "field"), UNREADABLE.values(), ids=UNREADABLE)
async def test_the_operator_hears_what_comes_after_it(
    access: BrokerAccess, make_worker: MakeWorker, flags: int, field: bytes
) -> None:
    worker = await make_worker("pool")
    heard: asyncio.Queue[ReceivedEvent] = asyncio.Queue()

    properties = Raw()
    Raw.encoded = struct.pack(">H", flags) + field
    async with worker.connect() as link, running(OperatorEvents(access, heard.put_nowait)), asyncio.timeout(240):
        key = make_event_key(Event.DRAINED, worker.user, WORKER_UID)
        await link.channel.basic_publish(b"{}", exchange=EVENTS_EXCHANGE, routing_key=key, properties=properties)
        await worker.say(link, Event.DRAINED, b"{}")
        assert isinstance((await heard.get()).message, Drained)


class RawKey(str):
    """A routing key that is not UTF-8, which the broker's topic permissions accept."""

    raw = b""

    def encode(self, *_: str) -> bytes:
        return self.raw


async def test_the_operator_reads_a_routing_key_that_is_not_utf_8_once(
    access: BrokerAccess, make_worker: MakeWorker
) -> None:
    worker = await make_worker("pool")
    heard: asyncio.Queue[ReceivedEvent] = asyncio.Queue()
    events = OperatorEvents(access, heard.put_nowait)
    key = RawKey()
    key.raw = make_event_key(Event.DRAINED, worker.user, "").encode() + b"\xff\xfe"

    async with worker.connect() as link, running(events), asyncio.timeout(240):
        await worker.say(link, Event.DRAINED, b"{}")
        await heard.get()
        await link.channel.basic_publish(b"{}", exchange=EVENTS_EXCHANGE, routing_key=key)
        await worker.say(link, Event.DRAINED, b"{}")
        assert isinstance((await heard.get()).message, Drained)
        assert events.measure_heard_seconds("") > 0, "the connection was not closed"


async def test_thousands_of_fields_are_not_read(access: BrokerAccess, make_worker: MakeWorker) -> None:
    worker = await make_worker("pool")
    received: asyncio.Queue[DeliveredMessage] = asyncio.Queue()

    async def receive(message: DeliveredMessage) -> None:
        received.put_nowait(message)

    async with open_channel(access, "test") as reader, worker.connect() as link, asyncio.timeout(240):
        await reader.channel.basic_consume(OPERATOR_QUEUE, receive, no_ack=True)
        key = make_event_key(Event.DRAINED, worker.user, WORKER_UID)
        for number in (MAX_FIELDS - 1, MAX_FIELDS, 100_000):
            properties = spec.Basic.Properties(user_id=worker.user, headers={"a": [None] * number})
            await link.channel.basic_publish(b"{}", exchange=EVENTS_EXCHANGE, routing_key=key, properties=properties)
        senders = [(await received.get()).header.properties.user_id for _ in range(3)]
    assert senders == [worker.user, None, None]


async def test_a_reply_with_such_a_key_costs_no_other_reply(access: BrokerAccess, make_worker: MakeWorker) -> None:
    worker = await make_worker("pool")
    requester = Requester(access, "test")
    async with worker.answering() as requests, worker.connect() as link, running(requester), asyncio.timeout(240):
        await requester.wait_until_connected()
        asking = asyncio.create_task(
            requester.request(worker.queue, worker.user, Request.GET_ATTRIBUTES, {}, timeout_seconds=20)
        )
        request = await requests.get()
        good = make_reply_key(request.header.properties.reply_to or "", worker.user)
        key = RawKey()
        key.raw = make_reply_key("\0", worker.user).encode().replace(b"\0", b"\xff")
        escaping = spec.Basic.Properties(user_id=worker.user, headers={"CC": [good]})
        await link.channel.basic_publish(b"{}", exchange=REPLIES_EXCHANGE, routing_key=key, properties=escaping)
        await worker.reply(link, request, b"{}")
        await asking
