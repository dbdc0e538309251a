# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from typing import Generic, TypeVar, get_args

import orjson
from aiormq import spec
from messaging_workers import PASSWORD, WORKER_UID, MakeWorker, running

from simyard.guest.messages import AttributesChanged, EventMessage, Progressed, Resulted
from simyard.messaging.access import BrokerAccess
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.allowance import REFUSED_EVENT_BYTES
from simyard.messaging.connection import open_channel
from simyard.messaging.errors import BrokerRefusedError
from simyard.messaging.events import (
    AttributeEvents,
    DeadLetter,
    DeadLetters,
    EventHandler,
    OperatorEvents,
    OperatorUpdates,
    OverflowEvents,
    ReceivedEvent,
)
from simyard.messaging.topology import (
    APISERVER_USER,
    EVENT_DELIVERY_LIMIT,
    POOL_DELIVERY_LIMIT,
    REFUSED_QUEUE,
    UPDATES_QUEUE,
    build_apiserver_user_spec,
)
from simyard.messaging.window import WindowSettings
from simyard_adapter.wire import EVENTS_EXCHANGE, Event, make_event_key, name_pool_queue

ADDRESS = f"sha256:{'0' * 64}"
T = TypeVar("T")


class Received(Generic[T]):
    """A handler that keeps all items."""

    def __init__(self) -> None:
        self.items: asyncio.Queue[T] = asyncio.Queue()

    def __call__(self, item: T) -> None:
        self.items.put_nowait(item)

    async def take(self, count: int) -> list[T]:
        async with asyncio.timeout(240):
            return [await self.items.get() for _ in range(count)]


def result(number: int) -> bytes:
    return orjson.dumps({"invocation": f"id-{number}", "result": {}})


def number_of(event: ReceivedEvent) -> int:
    assert isinstance(event.message, Resulted | Progressed)
    return int(event.message.invocation.removeprefix("id-"))


@contextlib.asynccontextmanager
async def hearing_all(access: BrokerAccess, handler: EventHandler) -> AsyncIterator[OperatorEvents]:
    """The three consumers of the operator."""
    events = OperatorEvents(access, handler)
    async with running(events), running(OperatorUpdates(access, handler)), running(OverflowEvents(access, handler)):
        yield events


async def test_events_arrive_with_who_the_broker_says_sent_them(access: BrokerAccess, make_worker: MakeWorker) -> None:
    worker = await make_worker("pool")
    received = Received[ReceivedEvent]()
    async with worker.connect() as link:
        for kind in set(Event) - {Event.FILES}:
            await worker.say(link, kind, orjson.dumps({"invocation": "id", "parts": [{"file": ADDRESS}]}))
        for wanted in ({"get": ADDRESS}, {"put": {"address": ADDRESS, "bytes": 0}}):
            await worker.say(link, Event.FILES, orjson.dumps({"request": "0" * 32, **wanted}))
        part = {"invocation": "id", "address": ADDRESS, "bytes": 10, "summary": {"tasks": 1, "seconds": 1}}
        await worker.say(link, Event.FILES, orjson.dumps({"request": "0" * 32, "part": part}))
        await worker.say(link, Event.RESULT, orjson.dumps({"invocation": "id", "chunk": {"tasks": 1, "seconds": 1}}))
    async with hearing_all(access, received):
        events = await received.take(len(Event) + 3)
    assert {(event.user, event.worker_uid) for event in events} == {(worker.user, WORKER_UID)}
    assert {type(event.message) for event in events} == set(get_args(EventMessage))


async def test_refused_events_of_one_sender_do_not_delay_what_is_known_of_others(
    access: BrokerAccess, make_worker: MakeWorker
) -> None:
    honest, hostile = await make_worker("pool"), await make_worker("other")
    events, overflow = OperatorEvents(access, lambda _: None), OverflowEvents(access, lambda _: None)
    async with running(events), running(overflow), hostile.connect() as link, asyncio.timeout(240):
        while min(lane.measure_heard_seconds(honest.user) for lane in (events, overflow)) == 0:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        await hostile.say(link, Event.RESULT, b'{"invocation": ["x"]}')
        while overflow.measure_heard_seconds(hostile.user) == overflow.measure_heard_seconds(honest.user):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        assert 0 < overflow.measure_heard_seconds(hostile.user) < overflow.measure_heard_seconds(honest.user)


async def test_a_refused_event_costs_its_sender_more_than_another_one(
    access: BrokerAccess, make_worker: MakeWorker
) -> None:
    worker, counted = await make_worker("pool"), asyncio.Queue[tuple[str, int]]()

    def permits(user: str, size: int) -> bool:
        counted.put_nowait((user, size))
        return True

    async with running(OperatorEvents(access, lambda _: None, permits=permits)), worker.connect() as link:
        await worker.say(link, Event.ACTIVE, b"{}")
        await worker.say(link, Event.RESULT, b'{"invocation": ["x"]}')
        async with asyncio.timeout(20):
            sizes = [await counted.get() for _ in range(3)]
    assert sizes == [(worker.user, 2), (worker.user, 21), (worker.user, REFUSED_EVENT_BYTES)]


async def test_a_full_window_has_not_heard_everything(access: BrokerAccess, make_worker: MakeWorker) -> None:
    worker = await make_worker("pool")
    begun, done = asyncio.Semaphore(0), asyncio.Event()

    async def wait() -> None:
        begun.release()
        await done.wait()

    events = OperatorEvents(access, lambda _: wait(), WindowSettings(deliveries=4))
    assert events.measure_heard_seconds("") == 0, "the consumer is not connected"
    async with running(events), worker.connect() as link, asyncio.timeout(240):
        while events.measure_heard_seconds("") < 0.3:  # noqa: ASYNC110 - time has no event
            await asyncio.sleep(0.05)
        for kind in (worker, await make_worker("other")):
            async with kind.connect() as link:
                for number in range(2):
                    await kind.say(link, Event.RESULT, result(number))
        for _ in range(4):
            await begun.acquire()
        assert events.measure_heard_seconds("") == 0
        assert events.measure_oldest_seconds() > 0
        done.set()
        while events.measure_heard_seconds("") == 0:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        assert events.measure_heard_seconds("") < 0.3, "the time starts again"


async def test_events_that_nobody_vouches_for_are_dropped(access: BrokerAccess, make_worker: MakeWorker) -> None:
    worker = await make_worker("pool")
    received = Received[ReceivedEvent]()
    async with hearing_all(access, received), worker.connect() as link:
        await worker.say(link, Event.RESULT, result(1), vouched=False)
        await worker.say(link, Event.RESULT, b"no JSON")
        await worker.say(link, Event.RESULT, result(3))
        assert [number_of(event) for event in await received.take(1)] == [3]


async def waiting_in(access: BrokerAccess, queue: str, count: int) -> list[bytes]:
    """Return the bodies in a queue, once it has that number of messages."""
    bodies: list[bytes] = []
    async with open_channel(access, "test") as link, asyncio.timeout(240):
        while len(bodies) < count:
            message = await link.channel.basic_get(queue, no_ack=True)
            if message.delivery_tag is not None:
                bodies.append(message.body)
    return bodies


async def test_an_event_that_cannot_be_handled_is_set_aside_and_holds_up_nobody(
    access: BrokerAccess, make_worker: MakeWorker
) -> None:
    worker = await make_worker("pool")
    received = Received[ReceivedEvent]()

    def handle(event: ReceivedEvent) -> Awaitable[object] | None:
        async def fail_later() -> None:
            raise KeyError("a defect")

        if number_of(event) == 1:
            raise RecursionError("a defect")
        if number_of(event) == 2:
            return fail_later()
        received(event)
        return None

    bodies = [result(0), result(1), result(2), b"[" * 1000, b'{"a":' * 1015 + b"1" + b"}" * 1015]
    async with hearing_all(access, handle), worker.connect() as link:
        for body in (*bodies, result(3)):
            await worker.say(link, Event.RESULT, body)
        assert [number_of(event) for event in await received.take(2)] == [0, 3]
        assert sorted(await waiting_in(access, REFUSED_QUEUE, 4)) == sorted(bodies[1:])


async def test_an_event_that_waits_for_its_write_holds_up_nobody(access: BrokerAccess, make_worker: MakeWorker) -> None:
    slow, quick = await make_worker("slow"), await make_worker("quick")
    written = asyncio.Event()
    received = Received[ReceivedEvent]()

    async def wait() -> None:
        await written.wait()

    def handle(event: ReceivedEvent) -> Awaitable[object] | None:
        if event.user == slow.user:
            return wait()
        received(event)
        return None

    async with hearing_all(access, handle), slow.connect() as link, quick.connect() as other:
        await slow.say(link, Event.RESULT, result(0))
        for number in range(3):
            await quick.say(other, Event.RESULT, result(number))
        assert [number_of(event) for event in await received.take(3)] == [0, 1, 2]
    again = Received[ReceivedEvent]()
    async with hearing_all(access, again):
        assert [event.user for event in await again.take(1)] == [slow.user], "only this event was not handled"


async def test_a_sender_that_floods_leaves_half_of_the_window_to_the_others(
    access: BrokerAccess, make_worker: MakeWorker
) -> None:
    flooding, other = await make_worker("flooding"), await make_worker("other")
    handled = asyncio.Event()
    received = Received[ReceivedEvent]()

    async def wait() -> None:
        await handled.wait()

    def handle(event: ReceivedEvent) -> Awaitable[object] | None:
        received(event)
        return wait() if event.user == flooding.user else None

    async with flooding.connect() as link, other.connect() as other_link:
        for number in range(50):
            await flooding.say(link, Event.RESULT, result(number))
        await other.say(other_link, Event.RESULT, result(0))
    events = OperatorEvents(access, handle, WindowSettings(deliveries=8))
    async with running(events):
        users = [event.user for event in await received.take(5)]
        assert users == [flooding.user] * 4 + [other.user]
        handled.set()
        async with running(OverflowEvents(access, handle)):
            assert {number_of(event) for event in await received.take(46)} == set(range(4, 50)), "no event is lost"


async def test_only_the_event_that_ends_the_process_is_set_aside(access: BrokerAccess, make_worker: MakeWorker) -> None:
    """One of ten events ends each consumer that receives it: after it, the consumer acknowledges nothing."""
    worker = await make_worker("pool")
    async with worker.connect() as link:
        for number in range(10):
            await worker.say(link, Event.RESULT, result(number))
    culprit, heard = 3, set[int]()
    set_aside = Received[ReceivedEvent]()
    lives = 0
    async with running(OverflowEvents(access, set_aside)), asyncio.timeout(240):
        while set_aside.items.empty():
            ended, lives = asyncio.Event(), lives + 1

            def handle(event: ReceivedEvent, ended: asyncio.Event = ended) -> Awaitable[object] | None:
                if number_of(event) == culprit:
                    ended.set()
                if ended.is_set():
                    return asyncio.get_running_loop().create_future()
                heard.add(number_of(event))
                return None

            async with running(OperatorEvents(access, handle)):
                while not ended.is_set() and set_aside.items.empty():  # noqa: ASYNC110 - whichever comes first
                    await asyncio.sleep(0.01)
    assert [number_of(event) for event in await set_aside.take(1)] == [culprit]
    assert heard == set(range(10)) - {culprit}
    assert lives <= EVENT_DELIVERY_LIMIT + 3
    assert set_aside.items.empty(), "its neighbours are not set aside"


async def test_an_event_sent_under_anothers_key_as_well_is_refused_or_its_senders_own(
    access: BrokerAccess, make_worker: MakeWorker
) -> None:
    worker, other = await make_worker("pool"), await make_worker("other")
    received = Received[ReceivedEvent]()
    with contextlib.suppress(BrokerRefusedError):  # RabbitMQ 3.x does not check the topic permissions for CC
        async with worker.connect() as link:
            await link.channel.basic_publish(
                b'{"values": {}}',
                exchange=EVENTS_EXCHANGE,
                routing_key=make_event_key(Event.ATTRIBUTES, worker.user, WORKER_UID),
                properties=spec.Basic.Properties(
                    user_id=worker.user, headers={"CC": [make_event_key(Event.RESULT, other.user, WORKER_UID)]}
                ),
            )
    async with hearing_all(access, received), worker.connect() as link:
        await worker.say(link, Event.RESULT, result(2))
        async with asyncio.timeout(240):
            while not isinstance((event := await received.items.get()).message, Resulted):
                assert isinstance(event.message, AttributesChanged)
                assert event.user == worker.user


async def test_consuming_resumes_when_a_deleted_queue_is_made_again(
    access: BrokerAccess, admin: BrokerAdmin, make_worker: MakeWorker
) -> None:
    worker = await make_worker("pool")
    received = Received[ReceivedEvent]()
    async with hearing_all(access, received), worker.connect() as link:
        await worker.say(link, Event.PROGRESS, result(1))
        assert [number_of(event) for event in await received.take(1)] == [1]
        await admin.delete_queues([UPDATES_QUEUE])
        await worker.say(link, Event.RESULT, result(2))
        assert [number_of(event) for event in await received.take(1)] == [2], "the other queues go on"
        await admin.ensure_platform()
        await worker.say(link, Event.PROGRESS, result(3))
        assert [number_of(event) for event in await received.take(1)] == [3]


async def test_attributes_reach_all_who_follow_them(
    access: BrokerAccess, admin: BrokerAdmin, make_worker: MakeWorker
) -> None:
    await admin.ensure_user(build_apiserver_user_spec(), PASSWORD)
    worker = await make_worker("pool")
    first, second = Received[ReceivedEvent](), Received[ReceivedEvent]()
    as_apiserver = access.as_user(APISERVER_USER, PASSWORD)
    async with (
        running(AttributeEvents(as_apiserver, first)),
        running(AttributeEvents(as_apiserver, second)),
        worker.connect() as link,
        asyncio.timeout(240),
    ):
        while first.items.empty() or second.items.empty():
            await worker.say(link, Event.REGISTER, b"{}")


async def test_a_request_that_no_worker_finishes_is_a_dead_letter(
    access: BrokerAccess, make_worker: MakeWorker
) -> None:
    worker = await make_worker("pool")
    queue = name_pool_queue(worker.user)
    received = Received[DeadLetter]()
    async with open_channel(access, "test", confirms=True) as link:
        await link.channel.basic_publish(
            b"{}", routing_key=queue, properties=spec.Basic.Properties(message_id="id-1", message_type="action")
        )
    async with running(DeadLetters(access, received)), worker.connect() as link:
        for _ in range(POOL_DELIVERY_LIMIT + 1):
            message = await link.channel.basic_get(queue)
            assert message.delivery_tag is not None
            await link.channel.basic_nack(message.delivery_tag, requeue=True)
        assert await received.take(1) == [DeadLetter(queue, "action", "id-1", "delivery_limit")]
