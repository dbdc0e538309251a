# SPDX-License-Identifier: Apache-2.0
"""Consumers of the workers' events and of dead-lettered requests.

Workers are untrusted, and the workers of all tenants share the operator's queues. So an event must not block or lose
the events of other senders, not even if it ends the operator's process.

**Isolation.** A consumer reads, handles, and acknowledges or rejects each event separately. The handler applies the
event at once, and may return an awaitable such as a write; during the write, the consumer handles other events. After
an exception, the consumer rejects only the event that caused it. (Batches of events would be faster, but one bad event
would cause the rejection of its whole batch.)

**Lanes.** The broker moves rejected events of the operator's queue to the overflow lane, which has its own consumer
(:func:`~simyard.messaging.topology.build_platform_specs`). Events above their sender's share of the window wait there,
and refused events get a second attempt. Events that the overflow lane rejects go to a bounded queue without a consumer,
where people can inspect them. (If a consumer put an event back into its queue, the broker would deliver it again at
once, in a loop.)

**Suspects.** An event can end the process without an exception, for example if it uses too much memory or crashes a C
extension. For each event, the broker counts the consumers that ended while they held it, and rejects the event at a
limit. But a restart for another reason raises the count of every event in the window. So with the count alone, the
broker would also reject innocent events. Therefore, while events arrive whose count is at least
:data:`SUSPECT_DELIVERIES`, a new consumer has a prefetch of 1. Invariant: a suspect is alone in the window. So from
then on, only the count of the guilty event grows. The limit can be small, and restarts do not use it up.

**Floods.** The operator cuts off a sender above its allowance (:mod:`simyard.fleet.broker.quarantine`). Its events that
are already in the queue go to the overflow lane if they must not be lost; the broker discards the others.

**Memory.** A consumer holds at most its window. It rejects a body above the limit of its kind before it parses it.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NoReturn, TypeVar

from aiormq.abc import AbstractChannel, DeliveredMessage

from simyard.guest.messages import EventMessage, read_event
from simyard.guest.reading import Refusal, RefusedError
from simyard.messaging.access import AccessSource
from simyard.messaging.allowance import REFUSED_EVENT_BYTES
from simyard.messaging.connection import BrokerChannel, stay_connected
from simyard.messaging.metrics import CONNECTED, EVENTS, EVENTS_DEFERRED, EVENTS_REFUSED
from simyard.messaging.refusals import Refusals
from simyard.messaging.topology import (
    ATTRIBUTE_QUEUES_PREFIX,
    DEAD_QUEUE,
    OPERATOR_QUEUE,
    OVERFLOW_QUEUE,
    UPDATES_QUEUE,
)
from simyard.messaging.window import Window, WindowSettings
from simyard_adapter.limits import MIB
from simyard_adapter.wire import EVENTS_EXCHANGE, Event, parse_event_key, parse_identity

SUSPECT_DELIVERIES = 2
MAX_NOTED_SENDERS = 10_000
ATTRIBUTES_BACKLOG = 100_000
ATTRIBUTES_BACKLOG_BYTES = 64 * MIB
T = TypeVar("T")
Receive = Callable[[DeliveredMessage], Coroutine[Any, Any, None]]
Handler = Callable[[T], Awaitable[object] | None]
"""Function that applies one item at once. The consumer awaits its result before it acknowledges the item."""

Permits = Callable[[str, int], bool]
"""Function that counts an event of a user with its size in bytes; it returns whether the user is in its allowance."""


def _permit_all(_sender: str, _size: int) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    """An event of a worker whose sender the broker has verified; ``received_at`` is in seconds since the epoch."""

    user: str
    worker_uid: str
    message: EventMessage
    received_at: float


EventHandler = Handler[ReceivedEvent]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A request in the dead-letter queue; ``reason``: ``delivery_limit``, ``expired``, ``maxlen`` or ``rejected``."""

    queue: str
    kind: str
    message_id: str
    reason: str


class _Consumer(Generic[T]):
    """A consumer of one queue, which acknowledges or rejects each delivery after its handler has finished."""

    def __init__(
        self,
        access: AccessSource,
        name: str,
        handler: Handler[T],
        settings: WindowSettings | None = None,
        *,
        permits: Permits = _permit_all,
        overflows: bool = False,
        quiet_counts: bool = False,
    ) -> None:
        """Create a consumer without a connection.

        Args:
            access: address and credentials of the broker.
            name: name of the connection.
            handler: function that applies each item.
            settings: the bounds of the window.
            permits: function that counts an event of a sender; the consumer rejects events that are not permitted.
            overflows: True if another lane receives the rejected events, and counts and logs them if necessary.
            quiet_counts: True if each delivery resets :meth:`measure_heard_seconds` of its sender, as a gap does.
        """
        self._access = access
        self._name = name
        self._handler = handler
        self._settings = settings or WindowSettings()
        self._permits = permits
        self._overflows = overflows
        self._quiet_counts = quiet_counts
        self._clock = asyncio.get_running_loop().time
        self._refusals = Refusals("event", EVENTS_REFUSED, self._clock)
        self._window: Window | None = None
        self._width = 0
        self._since: float | None = None
        self._moved: dict[str, float] = {}

    def measure_heard_seconds(self, sender: str) -> float:
        """Return the seconds for which the consumer has received all events of a sender without a gap; 0 in a gap.

        The time starts again when the window is full, and when an event of this sender moves to another lane. Moved
        events of other senders do not matter, because a sender must not delay decisions about other senders.
        """
        if self._since is None or self._is_full():
            return 0.0
        return self._clock() - max(self._since, self._moved.get(sender, self._since))

    def _note_moved(self, sender: str) -> None:
        """Record that an event of a sender moved to another lane; further events of this sender may follow."""
        if len(self._moved) >= MAX_NOTED_SENDERS:
            self._moved.clear()
            self._since = self._clock()
        self._moved[sender] = self._clock()

    def measure_oldest_seconds(self) -> float:
        """Return the age of the oldest delivery that is neither acknowledged nor rejected; 0 if there is none."""
        oldest = self._window.oldest if self._window is not None else None
        return 0.0 if oldest is None else self._clock() - oldest

    async def run(self) -> NoReturn:
        """Consume until cancelled; reconnect when the connection is lost."""
        async with asyncio.TaskGroup() as handling:
            await stay_connected(self._access, self._name, partial(self._serve, handling))
        raise AssertionError("stay_connected ends by cancellation only")

    async def _queue(self, channel: AbstractChannel) -> str:
        """Return the name of the queue to consume; declare the queue first if it is exclusive to this connection."""
        raise NotImplementedError

    def _read(self, message: DeliveredMessage) -> T:
        """Return the item for the handler.

        Raises:
            RefusedError: the message cannot be read.
        """
        raise NotImplementedError

    def _is_full(self) -> bool:
        return self._window is not None and len(self._window) >= self._width

    async def _serve(self, handling: asyncio.TaskGroup, link: BrokerChannel) -> None:
        session = _Session(handling)
        link.lost.add_done_callback(lambda _: session.wake.set())

        async def receive(message: DeliveredMessage) -> None:
            self._receive(message, window, session)

        queue = await self._queue(link.channel)
        window = self._window = Window(self._settings)
        try:
            tag = await self._consume(link.channel, queue, receive, width=1)
            CONNECTED.labels(self._name).set(1)
            self._since = self._clock()
            while not link.lost.done():
                await session.wake.wait()
                session.wake.clear()
                if self._is_full():
                    self._since = self._clock()  # further events may wait at the broker
                if session.unsuspicious and self._width == 1:
                    await link.channel.basic_cancel(tag)
                    tag = await self._consume(link.channel, queue, receive, width=self._settings.deliveries)
                for answer in window.collect_acknowledgements():
                    if answer.accepted:
                        await link.channel.basic_ack(answer.tag, multiple=answer.multiple)
                    else:
                        await link.channel.basic_reject(answer.tag, requeue=False)
        finally:
            self._window = self._since = None
            session.cancel()
        await link.wait_until_lost()

    async def _consume(self, channel: AbstractChannel, queue: str, receive: Receive, width: int) -> str:
        await channel.basic_qos(prefetch_count=width)
        self._width = width
        consuming = await channel.basic_consume(queue, receive)
        assert consuming.consumer_tag is not None, "a consumer has a tag"
        return consuming.consumer_tag

    def _receive(self, message: DeliveredMessage, window: Window, session: _Session) -> None:
        tag, sender = message.delivery_tag, find_sender(message)
        assert tag is not None, "a delivery has a tag"
        if self._width == 1 and not _is_suspect(message):
            session.unsuspicious = True
            session.wake.set()
        fits = window.add(tag, sender, len(message.body), self._clock())

        def settle(*, accepted: bool) -> None:
            window.finish(tag, accepted=accepted)
            session.wake.set()

        permitted = self._permits(sender, len(message.body))
        if not permitted or (self._overflows and not fits):
            EVENTS_DEFERRED.inc()
            self._note_moved(sender)
            settle(accepted=False)
            return
        try:
            done = self._handler(self._read(message))
        except Exception as error:  # noqa: BLE001 - an event must not hold up other events
            if isinstance(error, RefusedError):
                self._permits(sender, REFUSED_EVENT_BYTES)
            self._refuse(sender, error)
            settle(accepted=False)
            return
        if self._quiet_counts:
            self._note_moved(sender)
        if done is None:
            settle(accepted=True)
        else:
            session.start(self._finish(done, sender, settle))

    async def _finish(self, done: Awaitable[object], sender: str, settle: Callable[..., None]) -> None:
        try:
            await done
        except Exception as error:  # noqa: BLE001 - as above
            self._refuse(sender, error)
            settle(accepted=False)
        else:
            settle(accepted=True)

    def _refuse(self, sender: str, error: Exception) -> None:
        if not self._overflows:
            self._refusals.note(sender, error)


class _Session:
    """The state of a consumer on one connection: its wake-up event, and the tasks that await its handlers."""

    def __init__(self, handling: asyncio.TaskGroup) -> None:
        self.wake = asyncio.Event()
        self.unsuspicious = False
        self._handling = handling
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[None, None, None]) -> None:
        task = self._handling.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()


class _EventConsumer(_Consumer[ReceivedEvent]):
    def _read(self, message: DeliveredMessage) -> ReceivedEvent:
        return read_received_event(message, time.time())


class OperatorEvents(_EventConsumer):
    """The consumer of events that must not be lost, such as registrations and results."""

    def __init__(
        self,
        access: AccessSource,
        handler: EventHandler,
        settings: WindowSettings | None = None,
        *,
        permits: Permits = _permit_all,
    ) -> None:
        super().__init__(access, "simyard operator events", handler, settings, permits=permits, overflows=True)

    async def _queue(self, channel: AbstractChannel) -> str:
        return OPERATOR_QUEUE


class OverflowEvents(_EventConsumer):
    """The consumer of the overflow lane: events above their sender's share, and events after their first rejection."""

    def __init__(self, access: AccessSource, handler: EventHandler) -> None:
        super().__init__(access, "simyard operator overflow", handler, WindowSettings(deliveries=8), quiet_counts=True)

    async def _queue(self, channel: AbstractChannel) -> str:
        return OVERFLOW_QUEUE


class OperatorUpdates(_EventConsumer):
    """The consumer of attributes and progress, which newer events replace, and of questions, which workers repeat.

    Their order relative to the events of :class:`OperatorEvents` is undefined.
    """

    def __init__(self, access: AccessSource, handler: EventHandler, *, permits: Permits = _permit_all) -> None:
        super().__init__(access, "simyard operator updates", handler, permits=permits)

    async def _queue(self, channel: AbstractChannel) -> str:
        return UPDATES_QUEUE


class AttributeEvents(_EventConsumer):
    """The consumer of registrations and attribute changes, for a process that keeps the newest values.

    The queue exists only while the process is connected, so the process misses events between two connections.
    """

    def __init__(self, access: AccessSource, handler: EventHandler) -> None:
        super().__init__(access, "simyard attributes", handler)

    async def _queue(self, channel: AbstractChannel) -> str:
        name = ATTRIBUTE_QUEUES_PREFIX + secrets.token_hex(8)
        limits: dict[str, int] = {"x-max-length": ATTRIBUTES_BACKLOG, "x-max-length-bytes": ATTRIBUTES_BACKLOG_BYTES}
        await channel.queue_declare(name, exclusive=True, arguments={**limits})
        for kind in (Event.REGISTER, Event.ATTRIBUTES):
            await channel.queue_bind(name, EVENTS_EXCHANGE, f"{kind.value}.#")
        return name


class DeadLetters(_Consumer[DeadLetter]):
    """The operator's consumer of the dead-letter queue (:func:`~simyard.messaging.topology.build_pool_queue_spec`)."""

    def __init__(self, access: AccessSource, handler: Handler[DeadLetter]) -> None:
        super().__init__(access, "simyard dead letters", handler)

    async def _queue(self, channel: AbstractChannel) -> str:
        return DEAD_QUEUE

    def _read(self, message: DeliveredMessage) -> DeadLetter:
        properties = message.header.properties
        headers = properties.headers or {}
        return DeadLetter(
            queue=str(headers.get("x-first-death-queue") or ""),
            kind=properties.message_type or "",
            message_id=properties.message_id or "",
            reason=str(headers.get("x-first-death-reason") or ""),
        )


def find_sender(message: DeliveredMessage) -> str:
    """Return the broker user whose allowance and share a message uses.

    The routing key of an event contains the user, and the broker's topic permissions let a user write only its own
    keys. The property ``user_id`` cannot replace the key: it may be absent or unreadable, and then a flood of messages
    would count for no user. Only messages that are not events have no such key.
    """
    key = parse_event_key(message.routing_key or "")
    return key.user if key is not None else parse_identity(message.header.properties.user_id or "")


def read_received_event(message: DeliveredMessage, received_at: float) -> ReceivedEvent:
    """Return the event in a delivery.

    Raises:
        RefusedError: the sender is not the user in the routing key, or the event cannot be read.
    """
    key = parse_event_key(message.routing_key or "")
    if key is None or parse_identity(message.header.properties.user_id or "") != key.user:
        raise RefusedError(Refusal.NOT_VOUCHED, "the routing key does not name the verified sender")
    read = read_event(key.kind, message.body)
    EVENTS.labels(key.kind.value).inc()
    return ReceivedEvent(key.user, key.worker_uid, read, received_at)


def _is_suspect(message: DeliveredMessage) -> bool:
    """Return whether several consumers ended while they held the message; the broker sets its header on redelivery."""
    count = (message.header.properties.headers or {}).get("x-delivery-count")
    return bool(message.redelivered) and isinstance(count, int) and count >= SUSPECT_DELIVERIES
