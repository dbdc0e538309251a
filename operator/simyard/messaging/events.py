"""Events from workers, and requests that no worker could finish, in batches."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NoReturn, TypeVar

import orjson
from aiormq.abc import AbstractChannel, DeliveredMessage

from simyard.messaging.access import BrokerAccess
from simyard.messaging.connection import Link, stay_connected
from simyard.messaging.metrics import CONNECTED, EVENTS, EVENTS_REFUSED
from simyard.messaging.topology import ATTRIBUTE_QUEUES_PREFIX, DEAD_QUEUE, OPERATOR_QUEUE, UPDATES_QUEUE
from simyard_adapter.declarations import Json
from simyard_adapter.wire import EVENTS_EXCHANGE, Event, parse_event_key

PREFETCH = 500
BEHIND_SECONDS = 5.0
"""Events that wait so long for those before them are late."""
ATTRIBUTES_BACKLOG = 100_000
LATEST_TIME = 2.0**33
"""Seconds since the epoch: the year 2242."""
LONGEST_SECONDS = 1e9
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    """An event whose sender the broker vouches for; ``received_at`` in seconds since the epoch."""

    kind: Event
    user: str
    worker_uid: str
    body: Mapping[str, Json]
    received_at: float


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A request that no worker finished: ``reason`` is ``delivery_limit``, ``expired``, ``maxlen`` or ``rejected``."""

    queue: str
    kind: str
    message_id: str
    reason: str


BatchHandler = Callable[[Sequence[T]], Awaitable[None]]
"""Called with one batch at a time, in the order of arrival; the batch is acknowledged when it returns. When it raises a
:class:`~simyard.messaging.errors.MessagingError`, the batch is delivered again; any other error ends ``run``."""


EventHandler = BatchHandler[ReceivedEvent]


class _Consumer(Generic[T]):
    """Reads queues in batches as large as what has arrived, at most ``PREFETCH`` of each queue."""

    def __init__(self, access: BrokerAccess, name: str, handler: BatchHandler[T]) -> None:
        self._access = access
        self._name = name
        self._handler = handler
        self._since: float | None = None
        self._handling: float | None = None

    def heard_seconds(self) -> float:
        """For how long it has consumed without a gap, and without falling behind; 0 when it does not."""
        now = asyncio.get_running_loop().time()
        behind = self._handling is not None and now - self._handling > BEHIND_SECONDS
        return 0.0 if self._since is None or behind else now - self._since

    async def run(self) -> NoReturn:
        """Consume until cancelled; reconnects by itself."""
        await stay_connected(self._access, self._name, self._serve)

    async def _queues(self, channel: AbstractChannel) -> Sequence[str]:
        """The queues to consume; made here if they are this connection's own."""
        raise NotImplementedError

    def _parse(self, message: DeliveredMessage) -> T | None:
        """What the handler gets, made on arrival; None drops the message."""
        raise NotImplementedError

    async def _serve(self, link: Link) -> None:
        arrived: asyncio.Queue[tuple[int, T | None] | None] = asyncio.Queue()

        async def receive(message: DeliveredMessage) -> None:
            assert message.delivery_tag is not None, "a delivery has a tag"
            arrived.put_nowait((message.delivery_tag, self._parse(message)))

        await link.channel.basic_qos(prefetch_count=PREFETCH)
        for queue in await self._queues(link.channel):
            await link.channel.basic_consume(queue, receive)
        link.lost.add_done_callback(lambda _: arrived.put_nowait(None))
        CONNECTED.labels(self._name).set(1)
        time = asyncio.get_running_loop().time
        self._since = time()
        try:
            while batch := await _next_batch(arrived):
                self._handling = time()
                if parsed := [item for _, item in batch if item is not None]:
                    await self._handler(parsed)
                last, _ = batch[-1]
                await link.channel.basic_ack(last, multiple=True)
                if len(batch) >= PREFETCH or time() - self._handling > BEHIND_SECONDS:
                    self._since = time()  # more may wait at the broker
                self._handling = None
        finally:
            self._since = self._handling = None
        await link.until_lost()


class OperatorEvents(_Consumer[ReceivedEvent]):
    """All events, through the operator's durable queues.

    A ``progress`` or ``attributes`` event may overtake a lasting one of the same worker, or be overtaken.
    """

    def __init__(self, access: BrokerAccess, handler: EventHandler) -> None:
        super().__init__(access, "simyard operator events", handler)

    async def _queues(self, channel: AbstractChannel) -> Sequence[str]:
        return OPERATOR_QUEUE, UPDATES_QUEUE

    def _parse(self, message: DeliveredMessage) -> ReceivedEvent | None:
        return parse_event(message, time.time())


class AttributeEvents(_Consumer[ReceivedEvent]):
    """Registrations and changes of attributes from now on, for a process that keeps the newest values.

    What happens while it is not connected is missed.
    """

    def __init__(self, access: BrokerAccess, handler: EventHandler) -> None:
        super().__init__(access, "simyard attributes", handler)

    async def _queues(self, channel: AbstractChannel) -> Sequence[str]:
        name = ATTRIBUTE_QUEUES_PREFIX + secrets.token_hex(8)
        await channel.queue_declare(name, exclusive=True, arguments={"x-max-length": ATTRIBUTES_BACKLOG})
        for kind in (Event.REGISTER, Event.ATTRIBUTES):
            await channel.queue_bind(name, EVENTS_EXCHANGE, f"{kind.value}.#")
        return (name,)

    def _parse(self, message: DeliveredMessage) -> ReceivedEvent | None:
        return parse_event(message, time.time())


class DeadLetters(_Consumer[DeadLetter]):
    """Requests that were dead-lettered (:func:`~simyard.messaging.topology.pool_queue_spec`), for the operator."""

    def __init__(self, access: BrokerAccess, handler: BatchHandler[DeadLetter]) -> None:
        super().__init__(access, "simyard dead letters", handler)

    async def _queues(self, channel: AbstractChannel) -> Sequence[str]:
        return (DEAD_QUEUE,)

    def _parse(self, message: DeliveredMessage) -> DeadLetter | None:
        properties = message.header.properties
        headers = properties.headers or {}
        return DeadLetter(
            queue=str(headers.get("x-first-death-queue") or ""),
            kind=properties.message_type or "",
            message_id=properties.message_id or "",
            reason=str(headers.get("x-first-death-reason") or ""),
        )


def parse_event(message: DeliveredMessage, received_at: float) -> ReceivedEvent | None:
    """The event, or None (and counted) if it is malformed or its sender is not the user in its routing key.

    What guests say is not trusted: a time or a duration that cannot be one makes the event malformed.
    """
    key = parse_event_key(message.routing_key or "")
    try:
        body = orjson.loads(message.body)
    except orjson.JSONDecodeError:
        body = None
    sent_by = message.header.properties.user_id
    if key is None or sent_by != key.user or not isinstance(body, dict) or not _has_plausible_times(body):
        EVENTS_REFUSED.inc()
        return None
    EVENTS.labels(key.kind.value).inc()
    return ReceivedEvent(key.kind, key.user, key.worker_uid, body, received_at)


def _has_plausible_times(body: Mapping[str, Json]) -> bool:
    for name, largest in (("observedAt", LATEST_TIME), ("startedAt", LATEST_TIME), ("seconds", LONGEST_SECONDS)):
        value = body.get(name)
        if value is None:  # as in the result of what was never begun
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= largest:
            return False
    return True


async def _next_batch(arrived: asyncio.Queue[T | None]) -> list[T]:
    """All that has arrived, at least one; nothing when the link is lost."""
    batch: list[T] = []
    item = await arrived.get()
    while item is not None:
        batch.append(item)
        if arrived.empty():
            return batch
        item = arrived.get_nowait()
    return []
