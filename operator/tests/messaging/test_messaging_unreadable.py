"""A message whose properties nobody can read costs neither the connection nor the messages after it."""

import asyncio
import struct

import pytest
from aiormq import spec
from messaging_workers import WORKER_UID, MakeWorker, running

from simyard.guest.messages import Drained
from simyard.messaging.access import BrokerAccess
from simyard.messaging.events import OperatorEvents, ReceivedEvent
from simyard_adapter.wire import EVENTS_EXCHANGE, Event, event_key

MESSAGE_ID, TIMESTAMP = 0x0080, 0x0040  # AMQP 0-9-1, 4.2.6.1
UNREADABLE = {
    "a time beyond all calendars": (TIMESTAMP, struct.pack(">Q", 2**63 - 1)),
    "text that is not UTF-8": (MESSAGE_ID, b"\x03\xff\xfe\xfd"),
}


class Raw(spec.Basic.Properties):
    """Properties as no client of ours would encode them."""

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
    async with worker.connect() as link, running(OperatorEvents(access, heard.put_nowait)), asyncio.timeout(30):
        key = event_key(Event.DRAINED, worker.user, WORKER_UID)
        await link.channel.basic_publish(b"{}", exchange=EVENTS_EXCHANGE, routing_key=key, properties=properties)
        await worker.say(link, Event.DRAINED, b"{}")
        assert isinstance((await heard.get()).message, Drained)
