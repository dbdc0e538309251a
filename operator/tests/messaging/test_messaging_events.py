import asyncio
import contextlib
from collections.abc import Sequence
from typing import Generic, TypeVar

import orjson
import pytest
from aiormq import spec
from messaging_workers import PASSWORD, WORKER_UID, MakeWorker, running

from simyard.messaging import events as events_module
from simyard.messaging.access import BrokerAccess
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.connection import open_link
from simyard.messaging.errors import BrokerRefusedError, BrokerUnavailableError
from simyard.messaging.events import AttributeEvents, DeadLetter, DeadLetters, OperatorEvents, ReceivedEvent
from simyard.messaging.topology import APISERVER_USER, POOL_DELIVERY_LIMIT, UPDATES_QUEUE, apiserver_user_spec
from simyard_adapter.wire import EVENTS_EXCHANGE, Event, event_key, pool_queue

T = TypeVar("T")


class Received(Generic[T]):
    """A handler that keeps what it gets; it may be told to fail."""

    def __init__(self) -> None:
        self.items: asyncio.Queue[T] = asyncio.Queue()
        self.failures = 0

    async def __call__(self, batch: Sequence[T]) -> None:
        for item in batch:
            self.items.put_nowait(item)
        if self.failures:
            self.failures -= 1
            raise BrokerUnavailableError("as the test wants it")

    async def take(self, count: int) -> list[T]:
        async with asyncio.timeout(20):
            return [await self.items.get() for _ in range(count)]


async def test_events_arrive_with_who_the_broker_says_sent_them(access: BrokerAccess, make_worker: MakeWorker) -> None:
    worker = await make_worker("pool")
    received = Received[ReceivedEvent]()
    async with worker.connect() as link:
        for kind in Event:
            await worker.say(link, kind, orjson.dumps({"worker": kind.value}))
    async with running(OperatorEvents(access, received)):
        events = await received.take(len(Event))
    assert {(event.kind, event.user, event.worker_uid) for event in events} == {
        (kind, worker.user, WORKER_UID) for kind in Event
    }
    assert all(event.body == {"worker": event.kind.value} for event in events)


async def test_who_has_fallen_behind_has_not_heard_everything(
    access: BrokerAccess, make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_module, "BEHIND_SECONDS", 0.05)
    worker = await make_worker("pool")
    begun, done = asyncio.Event(), asyncio.Event()

    async def handle(_: Sequence[ReceivedEvent]) -> None:
        begun.set()
        await done.wait()

    events = OperatorEvents(access, handle)
    assert events.heard_seconds() == 0, "it is not connected"
    async with running(events), worker.connect() as link, asyncio.timeout(20):
        while events.heard_seconds() < 0.3:  # noqa: ASYNC110 - time has no event
            await asyncio.sleep(0.05)
        await worker.say(link, Event.ACTIVE, b"{}")
        await begun.wait()
        while events.heard_seconds() > 0:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        done.set()
        while events.heard_seconds() == 0:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        assert events.heard_seconds() < 0.3, "it counts anew"


async def test_events_that_nobody_vouches_for_are_dropped(access: BrokerAccess, make_worker: MakeWorker) -> None:
    worker = await make_worker("pool")
    received = Received[ReceivedEvent]()
    async with running(OperatorEvents(access, received)), worker.connect() as link:
        await worker.say(link, Event.RESULT, b'{"number": 1}', vouched=False)
        await worker.say(link, Event.RESULT, b"no JSON")
        await worker.say(link, Event.RESULT, b'{"number": 3}')
        assert [event.body["number"] for event in await received.take(1)] == [3]


async def test_an_event_sent_under_anothers_key_as_well_is_refused_or_its_senders_own(
    access: BrokerAccess, make_worker: MakeWorker
) -> None:
    worker, other = await make_worker("pool"), await make_worker("other")
    received = Received[ReceivedEvent]()
    with contextlib.suppress(BrokerRefusedError):  # RabbitMQ 3.x does not check the topic permissions for CC
        async with worker.connect() as link:
            await link.channel.basic_publish(
                b'{"number": 1}',
                exchange=EVENTS_EXCHANGE,
                routing_key=event_key(Event.ATTRIBUTES, worker.user, WORKER_UID),
                properties=spec.Basic.Properties(
                    user_id=worker.user, headers={"CC": [event_key(Event.RESULT, other.user, WORKER_UID)]}
                ),
            )
    async with running(OperatorEvents(access, received)), worker.connect() as link:
        await worker.say(link, Event.RESULT, b'{"number": 2}')
        async with asyncio.timeout(20):
            while (event := await received.items.get()).body["number"] != 2:
                assert (event.kind, event.user) == (Event.ATTRIBUTES, worker.user)


async def test_consuming_resumes_when_a_deleted_queue_is_made_again(
    access: BrokerAccess, admin: BrokerAdmin, make_worker: MakeWorker
) -> None:
    worker = await make_worker("pool")
    received = Received[ReceivedEvent]()
    async with running(OperatorEvents(access, received)), worker.connect() as link:
        await worker.say(link, Event.PROGRESS, b'{"number": 1}')
        assert [event.body["number"] for event in await received.take(1)] == [1]
        await admin.delete_queues([UPDATES_QUEUE])
        await admin.ensure_platform()
        await worker.say(link, Event.PROGRESS, b'{"number": 2}')
        assert [event.body["number"] for event in await received.take(1)] == [2]


async def test_a_batch_is_acknowledged_only_after_its_handler(access: BrokerAccess, make_worker: MakeWorker) -> None:
    worker = await make_worker("pool")
    received = Received[ReceivedEvent]()
    received.failures = 2
    async with worker.connect() as link:
        for number in range(600):
            await worker.say(link, Event.RESULT, orjson.dumps({"number": number}))
    async with running(OperatorEvents(access, received)):
        seen: list[object] = []
        async with asyncio.timeout(30):
            while not seen or seen[-1] != 599:
                seen.append((await received.items.get()).body["number"])
    assert seen.count(0) == 3
    assert set(seen) == set(range(600))
    again = Received[ReceivedEvent]()
    async with running(OperatorEvents(access, again)), worker.connect() as link:
        await worker.say(link, Event.RESULT, b'{"number": 600}')
        assert [event.body["number"] for event in await again.take(1)] == [600]


async def test_a_handlers_own_error_ends_the_consumer(access: BrokerAccess, make_worker: MakeWorker) -> None:
    async def fail(_: Sequence[ReceivedEvent]) -> None:
        raise KeyError("a defect")

    worker = await make_worker("pool")
    async with worker.connect() as link:
        await worker.say(link, Event.RESULT, b"{}")
    with pytest.raises(KeyError):
        async with asyncio.timeout(20):
            await OperatorEvents(access, fail).run()


async def test_attributes_reach_all_who_follow_them(
    access: BrokerAccess, admin: BrokerAdmin, make_worker: MakeWorker
) -> None:
    await admin.ensure_user(apiserver_user_spec(), PASSWORD)
    worker = await make_worker("pool")
    first, second = Received[ReceivedEvent](), Received[ReceivedEvent]()
    as_apiserver = access.as_user(APISERVER_USER, PASSWORD)
    async with (
        running(AttributeEvents(as_apiserver, first)),
        running(AttributeEvents(as_apiserver, second)),
        worker.connect() as link,
        asyncio.timeout(20),
    ):
        while first.items.empty() or second.items.empty():
            await worker.say(link, Event.REGISTER, b"{}")


async def test_a_request_that_no_worker_finishes_is_a_dead_letter(
    access: BrokerAccess, make_worker: MakeWorker
) -> None:
    worker = await make_worker("pool")
    queue = pool_queue(worker.user)
    received = Received[DeadLetter]()
    async with open_link(access, "test", confirms=True) as link:
        await link.channel.basic_publish(
            b"{}", routing_key=queue, properties=spec.Basic.Properties(message_id="id-1", message_type="action")
        )
    async with running(DeadLetters(access, received)), worker.connect() as link:
        for _ in range(POOL_DELIVERY_LIMIT + 1):
            message = await link.channel.basic_get(queue)
            assert message.delivery_tag is not None
            await link.channel.basic_nack(message.delivery_tag, requeue=True)
        assert await received.take(1) == [DeadLetter(queue, "action", "id-1", "delivery_limit")]
