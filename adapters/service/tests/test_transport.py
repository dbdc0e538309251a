# SPDX-License-Identifier: Apache-2.0
"""Connections and sessions on a real broker, through a line that the tests cut and stall."""

import asyncio
import contextlib
import gc
import logging
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlsplit

import aiormq
import pytest
from aiormq import spec
from aiormq.abc import DeliveredMessage

from simyard_adapter.bootstrap import BrokerAddress
from simyard_adapter.consumers import Consumer
from simyard_adapter.transport import BrokerError, Connections, Session, UnroutableError, await_guarded
from simyard_adapter.wire import EVENTS_EXCHANGE, Event, make_event_key, name_worker_queue

Service = Any
DEADLINE = 240.0
FOR_EVER = 3600.0


class Line:
    """A way to the broker, which may stall or be cut; ``address`` is its near end."""

    def __init__(self, address: BrokerAddress, host: str, port: int) -> None:
        self.address = address
        self._broker = host, port
        self._writers: list[asyncio.StreamWriter] = []
        self._flows = asyncio.Event()
        self._flows.set()

    def stall(self) -> None:
        self._flows.clear()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._broker)
        self._writers += writer, far_writer
        with contextlib.suppress(OSError):
            await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._flows.wait()
            writer.write(data)
        writer.close()


@pytest.fixture
async def line(service: Service) -> AsyncIterator[Line]:
    """A line without TLS."""
    url = urlsplit(service.broker.url)
    address = replace(service.bootstrap().broker, host="127.0.0.1", port=0, ca_certificate=None)
    made = Line(address, url.hostname or "", url.port or 0)
    server = await asyncio.start_server(made.serve, address.host, 0)
    made.address = replace(address, port=server.sockets[0].getsockname()[1])
    yield made
    made.cut()
    server.close()


@pytest.fixture
def key(service: Service) -> str:
    return make_event_key(Event.ACTIVE, service.user, "w1")


@pytest.fixture
def forgetful_logs(caplog: pytest.LogCaptureFixture) -> None:
    """Keeps pytest from collecting the client's errors with all that their tracebacks hold."""
    caplog.set_level(logging.CRITICAL, "aiormq")


@contextlib.asynccontextmanager
async def refusing() -> AsyncIterator[tuple[BrokerAddress, list[None]]]:
    """The address of what hangs up on everybody, and a list that grows with each."""
    refused: list[None] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        refused.append(None)
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield BrokerAddress("127.0.0.1", port, "vhost", "user", "password"), refused


def left_behind() -> Counter[str]:
    """How many objects there are of the kinds that a connection is made of."""
    gc.collect()
    kinds = (Session, Consumer, aiormq.Connection, aiormq.Channel, BrokerError)
    return Counter(kind.__name__ for it in gc.get_objects() for kind in kinds if issubclass(type(it), kind))


async def test_what_the_client_cancels_is_an_error_and_no_cancellation() -> None:
    async def ended_by_the_client() -> None:
        raise asyncio.CancelledError

    async def ended_without_a_reason() -> None:
        raise Exception  # noqa: TRY002 - as aiormq does

    for operation in (ended_by_the_client(), ended_without_a_reason()):
        with pytest.raises(BrokerError):
            await await_guarded(operation, "trying")


async def test_the_cancellation_of_the_caller_stays_one() -> None:
    waiting = asyncio.ensure_future(await_guarded(asyncio.sleep(FOR_EVER), "trying"))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_nobody_waits_for_an_operation_that_does_not_end_when_it_is_cancelled() -> None:
    async def stuck() -> None:
        try:
            await asyncio.sleep(FOR_EVER)
        finally:
            await asyncio.sleep(FOR_EVER)

    with pytest.raises(BrokerError, match="no answer within"):
        await await_guarded(stuck(), "trying", 0.01)


async def test_a_mandatory_message_that_no_queue_takes_raises_and_the_session_lives_on(
    service: Service, key: str
) -> None:
    nowhere = f"reply.nobody.{service.user}"
    async with Connections(service.bootstrap().broker, "tests").open_channel() as channel:
        session = Session(channel)
        with pytest.raises(UnroutableError):
            await session.publish("simyard.replies", nowhere, "reply", b"{}")
        await session.publish("simyard.replies", nowhere, "reply", b"{}", mandatory=False)
        await session.publish(EVENTS_EXCHANGE, key, Event.ACTIVE.value, b'{"worker":"w1"}')
        assert not session.closed.is_set()
    assert await service.event(Event.ACTIVE) == {"worker": "w1"}


async def test_a_cut_connection_ends_the_session_and_everything_that_waits_on_it(
    service: Service, line: Line, key: str
) -> None:
    connections = Connections(line.address, "tests")
    async with connections.open_channel() as channel:
        session = Session(channel)
        line.stall()
        publishing = [
            asyncio.ensure_future(session.publish(EVENTS_EXCHANGE, key, Event.ACTIVE.value, b"{}")) for _ in range(20)
        ]
        await asyncio.wait(publishing, timeout=0.01)
        line.cut()
        outcomes = await asyncio.wait_for(asyncio.gather(*publishing, return_exceptions=True), DEADLINE)
        assert [type(it) for it in outcomes] == [BrokerError] * 20
        await asyncio.wait_for(session.closed.wait(), DEADLINE)
        with pytest.raises(BrokerError):
            await session.publish(EVENTS_EXCHANGE, key, Event.ACTIVE.value, b"{}")
    with pytest.raises(BrokerError):
        async with Connections(replace(line.address, port=1), "tests").open_channel():
            pass


async def test_a_connection_that_is_stuck_is_left_behind_in_time(line: Line) -> None:
    connections = Connections(line.address, "tests", close_seconds=0.05)
    async with asyncio.timeout(DEADLINE), connections.open_channel() as channel:
        assert isinstance(await channel.basic_qos(prefetch_count=1), spec.Basic.QosOk)
        line.stall()


@pytest.mark.usefixtures("forgetful_logs")
async def test_attempts_that_fail_leave_nothing_behind() -> None:
    async with refusing() as (address, refused):
        connections = Connections(address, "tests", pause=lambda failures, last: 0.0)
        before = left_behind()
        for _ in range(5):
            with pytest.raises(BrokerError):
                async with connections.open_channel():
                    pass
        assert len(refused) == 5
        assert left_behind() <= before


@pytest.mark.usefixtures("forgetful_logs")
async def test_sessions_that_break_leave_nothing_behind(service: Service, line: Line) -> None:
    await service.add_worker("w1")
    connections = Connections(line.address, "tests")
    before = left_behind()

    async def connect_and_break() -> None:
        async with connections.open_channel() as channel:
            session = Session(channel)
            consumer = Consumer(session, name_worker_queue(service.user, "w1"), 1, lambda session, message: None)
            await consumer.adjust(lambda: True)
            line.cut()
            await asyncio.wait_for(consumer.watch(), DEADLINE)

    for _ in range(5):
        await connect_and_break()
    async with asyncio.timeout(DEADLINE):
        while not left_behind() <= before:  # noqa: ASYNC110 - the library's own tasks end a moment later
            await asyncio.sleep(0.01)


async def test_those_who_share_connections_pause_together_and_longer_each_time() -> None:
    failures: list[int] = []

    def pause(failed: int, last: float) -> float:
        failures.append(failed)
        return FOR_EVER if len(failures) == 3 else 0.0

    async with refusing() as (address, refused):
        connections = Connections(address, "tests", pause=pause)
        for _ in range(10):
            with pytest.raises(BrokerError, match="connecting"):
                async with connections.open_channel():
                    pass
        assert len(refused) == 3
    assert failures == [0, 1, 2]


async def test_a_new_channel_does_not_go_on_a_broken_connection(line: Line) -> None:
    connections = Connections(line.address, "tests")
    async with connections.open_channel() as broken:
        line.cut()
        await asyncio.wait({broken.closing}, timeout=DEADLINE)
        async with connections.open_channel() as channel:
            assert isinstance(await channel.basic_qos(prefetch_count=1), spec.Basic.QosOk)


async def test_channels_that_come_and_go_beside_one_that_stays_keep_to_the_brokers_limit(service: Service) -> None:
    connections = Connections(service.bootstrap().broker, "tests", channels_per_connection=100)
    async with connections.open_channel() as first:
        first.connection.connection_tune.channel_max = 3
        numbers = []
        last = contextlib.AsyncExitStack()
        for _ in range(6):
            following = contextlib.AsyncExitStack()
            channel = await following.enter_async_context(connections.open_channel())
            assert channel.connection is first.connection
            numbers.append(channel.number)
            await last.aclose()
            last = following
        assert set(numbers) == {2, 3}
        async with connections.open_channel(), connections.open_channel() as fourth:
            assert fourth.connection is not first.connection, "the first has no room"
        await last.aclose()


@pytest.mark.parametrize("hears", [True, False], ids=["told", "looking"])
async def test_a_consumer_that_the_broker_cancels_ends_its_watch(service: Service, hears: bool) -> None:
    watch_seconds = 0.05 if not hears else FOR_EVER
    await service.add_worker("w1")
    queue = name_worker_queue(service.user, "w1")
    async with Connections(service.bootstrap().broker, "tests").open_channel() as channel:
        session = Session(channel)
        assert session.hears_cancels, "this aiormq tells"
        if not hears:
            channel.on_consumer_cancel_callbacks.clear()
            session.hears_cancels = False
        consumer = Consumer(session, queue, 1, lambda session, message: None, watch_seconds)
        await consumer.adjust(lambda: True)
        watching = asyncio.ensure_future(consumer.watch())
        await service.manage("DELETE", f"queues/{service.vhost}/{queue}")
        await asyncio.wait_for(watching, DEADLINE)


async def test_a_consumer_that_was_stopped_takes_nothing_until_it_starts_again(service: Service) -> None:
    await service.add_worker("w1")
    taken: asyncio.Queue[str | None] = asyncio.Queue()

    def take(session: Session, message: DeliveredMessage) -> None:
        taken.put_nowait(message.header.properties.message_id)

    async with Connections(service.bootstrap().broker, "tests").open_channel() as channel:
        consumer = Consumer(Session(channel), name_worker_queue(service.user, "w1"), 5, take)
        for invocation in ("1", "2", "3"):
            await consumer.adjust(lambda: False)
            await service.send("anything", {}, invocation=invocation, reply=False)
            assert not consumer.active
            assert taken.empty()
            await consumer.adjust(lambda: True)
            assert await asyncio.wait_for(taken.get(), DEADLINE) == invocation


async def test_names_with_signs_of_their_own_meaning_reach_the_broker_as_they_are(service: Service) -> None:
    vhost, password = f"{service.vhost}/a b?ü#@:&", "p/a:s@s?w%41ö#rd"
    await service.manage("PUT", f"vhosts/{quote(vhost, safe='')}", {})
    user = f"other-{uuid.uuid4().hex}"
    try:
        await service.manage("PUT", f"users/{user}", {"password": password, "tags": ""})
        right = {"configure": "^$", "write": "^$", "read": "^$"}
        await service.manage("PUT", f"permissions/{quote(vhost, safe='')}/{user}", right)
        broker = replace(service.bootstrap().broker, vhost=vhost, username=user, password=password)
        async with Connections(broker, "tests").open_channel() as channel:
            assert isinstance(await channel.basic_qos(prefetch_count=1), spec.Basic.QosOk)
    finally:
        await service.manage("DELETE", f"vhosts/{quote(vhost, safe='')}")
        await service.manage("DELETE", f"users/{user}")
