"""Events from workers, and requests that no worker could finish: a consumer for each queue.

**One event, one fate.** An event is read, handed to its handler and settled by itself. The handler applies it at once
and may return something to await, such as a write; meanwhile other events go on. An exception is the fault of that one
event: the event is rejected, and everything else goes on.

**Lanes.** The broker moves a rejected event of the operator's queue to the overflow lane
(:func:`~simyard.messaging.topology.platform_specs`), which has a consumer of its own: there events wait that were more
than their sender's share of the window, and what was refused is tried once more. What the overflow lane rejects ends in
a bounded queue that nobody consumes, for people to look at.

**Events that end the process** (memory, a fault in a C extension) raise nothing. The broker counts for each event how
often a consumer ended while it held it, and rejects the event at a limit. That count alone would be unjust: all that
the window held is counted, also after a restart that no event caused. So an event that was held by
:data:`SUSPECT_DELIVERIES` ended consumers is taken alone: from then on only the culprit is counted, and its neighbours
are settled before it or not delivered at all. That is why the limit can be small, and restarts do not use it up.

**Floods.** Who sends more events than its allowance is cut off (:mod:`simyard.fleet.quarantine`). What it has sent
already goes to the overflow lane, if it must not be lost, and else is dropped.

**Memory.** A consumer holds at most its window; a body beyond its kind's limit is let go before it is parsed.
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
from simyard.messaging.connection import Link, stay_connected
from simyard.messaging.metrics import CONNECTED, DEFERRED, EVENTS, EVENTS_REFUSED
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
from simyard_adapter.wire import EVENTS_EXCHANGE, Event, identity_of, parse_event_key

SUSPECT_DELIVERIES = 2
MAX_NOTED_SENDERS = 10_000
ATTRIBUTES_BACKLOG = 100_000
ATTRIBUTES_BACKLOG_BYTES = 64 * MIB
T = TypeVar("T")
Receive = Callable[[DeliveredMessage], Coroutine[Any, Any, None]]
Handler = Callable[[T], Awaitable[object] | None]
"""Applies one item at once, in the order of arrival; what it returns is awaited before the item is settled."""

Permits = Callable[[str, int], bool]
"""Counts an event of a broker user, of so many bytes; returns whether the user is within its allowance."""


def _permit_all(_sender: str, _size: int) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    """An event whose sender the broker vouches for; ``received_at`` in seconds since the epoch."""

    user: str
    worker_uid: str
    message: EventMessage
    received_at: float


EventHandler = Handler[ReceivedEvent]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A request that no worker finished: ``reason`` is ``delivery_limit``, ``expired``, ``maxlen`` or ``rejected``."""

    queue: str
    kind: str
    message_id: str
    reason: str


class _Consumer(Generic[T]):
    """Reads one queue and settles each delivery when it is handled."""

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
        """Set up a consumer.

        Args:
            access: where and as whom.
            name: of the connection.
            handler: applies each item.
            settings: the bounds of what is held.
            permits: counts an event of a sender; what it does not permit is rejected unread.
            overflows: another lane handles what this one rejects, and counts and logs it if need be.
            quiet_counts: :meth:`heard_seconds` of a sender begins anew with each of its items.
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

    def heard_seconds(self, sender: str) -> float:
        """Return for how long all events of a sender have been heard without a gap; 0 when they are not.

        The time begins anew when the consumer falls behind, and with each event of this sender that another lane
        handles. The events of other senders do not count: one sender must not hold up what is decided for others.
        """
        if self._since is None or self._is_full():
            return 0.0
        return self._clock() - max(self._since, self._moved.get(sender, self._since))

    def _note_moved(self, sender: str) -> None:
        """Note that an event of a sender passed between the lanes: more of the same sender may be on its way."""
        if len(self._moved) >= MAX_NOTED_SENDERS:
            self._moved.clear()
            self._since = self._clock()
        self._moved[sender] = self._clock()

    def oldest_seconds(self) -> float:
        """How long the oldest event waits that was delivered and is not settled; 0 without any."""
        oldest = self._window.oldest if self._window is not None else None
        return 0.0 if oldest is None else self._clock() - oldest

    async def run(self) -> NoReturn:
        """Consume until cancelled; reconnects by itself."""
        async with asyncio.TaskGroup() as handling:
            await stay_connected(self._access, self._name, partial(self._serve, handling))
        raise AssertionError("stay_connected ends by cancellation only")

    async def _queue(self, channel: AbstractChannel) -> str:
        """The queue to consume; made here if it is this connection's own."""
        raise NotImplementedError

    def _read(self, message: DeliveredMessage) -> T:
        """What the handler gets.

        Raises:
            RefusedError: the message cannot be read.
        """
        raise NotImplementedError

    def _is_full(self) -> bool:
        return self._window is not None and len(self._window) >= self._width

    async def _serve(self, handling: asyncio.TaskGroup, link: Link) -> None:
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
                    self._since = self._clock()  # more may wait at the broker
                if session.unsuspicious and self._width == 1:
                    await link.channel.basic_cancel(tag)
                    tag = await self._consume(link.channel, queue, receive, width=self._settings.deliveries)
                for settlement in window.take():
                    if settlement.accepted:
                        await link.channel.basic_ack(settlement.tag, multiple=settlement.multiple)
                    else:
                        await link.channel.basic_reject(settlement.tag, requeue=False)
        finally:
            self._window = self._since = None
            session.cancel()
        await link.until_lost()

    async def _consume(self, channel: AbstractChannel, queue: str, receive: Receive, width: int) -> str:
        await channel.basic_qos(prefetch_count=width)
        self._width = width
        consuming = await channel.basic_consume(queue, receive)
        assert consuming.consumer_tag is not None, "a consumer has a tag"
        return consuming.consumer_tag

    def _receive(self, message: DeliveredMessage, window: Window, session: _Session) -> None:
        tag, sender = message.delivery_tag, identity_of(message.header.properties.user_id or "")
        assert tag is not None, "a delivery has a tag"
        if self._width == 1 and not _is_suspect(message):
            session.unsuspicious = True
            session.wake.set()
        fits = window.add(tag, sender, len(message.body), self._clock())

        def settle(*, accepted: bool) -> None:
            window.settle(tag, accepted=accepted)
            session.wake.set()

        permitted = self._permits(sender, len(message.body))
        if not permitted or (self._overflows and not fits):
            DEFERRED.inc()
            self._note_moved(sender)
            settle(accepted=False)
            return
        try:
            done = self._handler(self._read(message))
        except Exception as error:  # noqa: BLE001 - whatever one event causes, it must not hold up the others
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
    """One connection's wake-up call and the tasks that await its handlers."""

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
        return received_event(message, time.time())


class OperatorEvents(_EventConsumer):
    """Events that must not be lost: registrations, results, drained and active workers."""

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
    """Events that :class:`OperatorEvents` has rejected: too many of one sender at once, or refused once."""

    def __init__(self, access: AccessSource, handler: EventHandler) -> None:
        super().__init__(access, "simyard operator overflow", handler, WindowSettings(deliveries=8), quiet_counts=True)

    async def _queue(self, channel: AbstractChannel) -> str:
        return OVERFLOW_QUEUE


class OperatorUpdates(_EventConsumer):
    """Attributes and progress, of which a newer one follows. They may overtake a lasting event, or be overtaken."""

    def __init__(self, access: AccessSource, handler: EventHandler, *, permits: Permits = _permit_all) -> None:
        super().__init__(access, "simyard operator updates", handler, permits=permits)

    async def _queue(self, channel: AbstractChannel) -> str:
        return UPDATES_QUEUE


class AttributeEvents(_EventConsumer):
    """Registrations and changes of attributes from now on, for a process that keeps the newest values.

    What happens while it is not connected is missed.
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
    """Requests that were dead-lettered (:func:`~simyard.messaging.topology.pool_queue_spec`), for the operator."""

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


def received_event(message: DeliveredMessage, received_at: float) -> ReceivedEvent:
    """Return the event.

    Raises:
        RefusedError: its sender is not the user in its routing key, or it cannot be read.
    """
    key = parse_event_key(message.routing_key or "")
    if key is None or identity_of(message.header.properties.user_id or "") != key.user:
        raise RefusedError(Refusal.NOT_VOUCHED, "the routing key names another sender than the broker vouches for")
    read = read_event(key.kind, message.body)
    EVENTS.labels(key.kind.value).inc()
    return ReceivedEvent(key.user, key.worker_uid, read, received_at)


def _is_suspect(message: DeliveredMessage) -> bool:
    """Whether consumers ended while they held it; the broker sets the header of a redelivered message itself."""
    count = (message.header.properties.headers or {}).get("x-delivery-count")
    return bool(message.redelivered) and isinstance(count, int) and count >= SUSPECT_DELIVERIES
