"""Requests to workers, and their replies."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NoReturn

import orjson
from aiormq import spec
from aiormq.abc import DeliveredMessage
from aiormq.exceptions import DeliveryError, PublishError

from simyard.guest.messages import Reply, read_reply
from simyard.guest.reading import RefusedError
from simyard.messaging.access import AccessSource, present
from simyard.messaging.connection import Link, stay_connected, translated
from simyard.messaging.errors import (
    BrokerBlockedError,
    BrokerUnavailableError,
    InvalidReplyError,
    MessagingError,
    NoConsumerError,
    QueueFullError,
    RemoteError,
    ReplyTimeoutError,
)
from simyard.messaging.metrics import AGAIN, CONNECTED, REPLIES_REFUSED, REQUEST_SECONDS, REQUESTS
from simyard.messaging.topology import REPLY_QUEUES_PREFIX
from simyard_adapter.declarations import Json
from simyard_adapter.limits import MIB
from simyard_adapter.wire import BEGUN, CONTENT_TYPE, REPLIES_EXCHANGE, Request, identity_of, reply_key

Properties = spec.Basic.Properties
CONFIRM_SECONDS = 10.0
MOST_ATTEMPTS = 5
"""So often a request is sent that workers give back."""
MAX_WAITING_REPLY_BYTES = 256 * MIB
TRANSIENT, PERSISTENT = 1, 2  # AMQP 0-9-1, delivery-mode


@dataclass(slots=True)
class _Pending:
    """A request that was sent: who must answer, and the body of the answer, None when the connection was lost.

    ``begun``: a worker has said that it begins.
    """

    user: str
    reply: asyncio.Future[bytes | None]
    begun: bool = False


class Requester:
    """Sends requests to workers' and pools' queues and awaits the replies; ``run`` must run meanwhile.

    Publishing and consuming have a connection each, so that a broker which slows down publishers holds up no reply.
    """

    def __init__(self, access: AccessSource, name_prefix: str, on_connected: Callable[[], None] | None = None) -> None:
        """``name_prefix`` starts the name under which it is answered: no dots.

        ``on_connected`` is called each time when requests can be sent again.
        """
        self._access = access
        self._on_connected = on_connected
        self._prefix = name_prefix
        self._publisher: Link | None = None
        self._unconfirmed: set[asyncio.Timeout] = set()
        self._name = ""
        self._connected = asyncio.Event()
        self._correlation_ids = itertools.count(1)
        self._pending: dict[str, _Pending] = {}

    @property
    def connected(self) -> bool:
        """Whether requests can be sent and replies received."""
        return self._connected.is_set()

    @property
    def blocked(self) -> str:
        """Why the broker takes no messages, such as "low on memory"; empty while it takes them."""
        return self._publisher.connection.blocked if self._publisher is not None else ""

    async def until_connected(self) -> None:
        """Wait until requests can be sent and replies received."""
        await self._connected.wait()

    async def run(self) -> NoReturn:
        """Keep the connections; runs until cancelled, and closes them then."""
        async with asyncio.TaskGroup() as group:
            group.create_task(
                stay_connected(self._access, f"{self._prefix} requests", self._serve_requests, confirms=True)
            )
            group.create_task(stay_connected(self._access, f"{self._prefix} replies", self._serve_replies))
        raise AssertionError("the tasks end by cancellation only")

    async def request(
        self,
        queue: str,
        user: str,
        kind: Request,
        body: Mapping[str, Json],
        *,
        timeout_seconds: float,
        message_id: str | None = None,
    ) -> Reply:
        """Send a request and return the reply.

        Args:
            queue: the worker's or the pool's queue.
            user: the broker user that must answer: a reply of any other is dropped.
            kind: what is asked.
            body: as :class:`simyard_adapter.wire.Request` says for the kind.
            timeout_seconds: how long to wait; the request expires in the queue after the same time.
            message_id: the invocation id; a fresh one when it is None.

        Raises:
            BrokerBlockedError: the broker takes no messages, for lack of memory or disk (at once).
            BrokerUnavailableError: not connected (at once), the connection was lost meanwhile, or the broker did not
                take the request in time.
            NoConsumerError: there is no such queue (at once).
            QueueFullError: the queue takes nothing more.
            ReplyTimeoutError: no reply in time.
            RemoteError: the worker answered with an error.
            InvalidReplyError: the worker's answer cannot be read.
        """
        outcome = "cancelled"
        with REQUEST_SECONDS.labels(kind.value).time():
            try:
                reply = await self._ask(queue, user, kind, body, timeout_seconds, message_id or uuid.uuid4().hex)
                outcome = "ok"
                return reply
            except MessagingError as error:
                outcome = type(error).__name__.removesuffix("Error")
                raise
            finally:
                REQUESTS.labels(kind.value, outcome).inc()

    async def publish_durable(self, queue: str, kind: Request, body: Mapping[str, Json], message_id: str) -> None:
        """Put a request that nobody waits for into a queue; it survives the broker's restart when this returns.

        Raises:
            BrokerUnavailableError: not connected, or not confirmed in time: it may have been taken, send it again.
            NoConsumerError: there is no such queue.
            QueueFullError: the queue takes nothing more.
        """
        await self._publish_confirmed(queue, kind, body, Properties(delivery_mode=PERSISTENT, message_id=message_id))

    async def publish_passing(self, queue: str, kind: Request, body: Mapping[str, Json], message_id: str) -> None:
        """As :meth:`publish_durable`, of a request that the broker may forget when it restarts, and need not store."""
        await self._publish_confirmed(queue, kind, body, Properties(delivery_mode=TRANSIENT, message_id=message_id))

    async def _publish_confirmed(
        self, queue: str, kind: Request, body: Mapping[str, Json], properties: Properties
    ) -> None:
        try:
            async with asyncio.timeout(CONFIRM_SECONDS):
                await self._publish(queue, kind, body, properties)
        except TimeoutError:
            raise BrokerUnavailableError(f"the broker did not confirm within {CONFIRM_SECONDS:g} s") from None

    async def _ask(
        self, queue: str, user: str, kind: Request, body: Mapping[str, Json], timeout_seconds: float, message_id: str
    ) -> Reply:
        if kind is Request.ACTION:
            body = {**body, "tellBegun": True}
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout_seconds
        for _ in range(MOST_ATTEMPTS):
            left = max(0.001, deadline - clock())
            pending = _Pending(user, asyncio.get_running_loop().create_future())
            reply = _read(await self._attempt(pending, queue, kind, body, left, message_id))
            if pending.begun or not reply.again or clock() >= deadline:
                break
            AGAIN.inc()
        if reply.error is not None:
            raise RemoteError(reply.error)
        return reply

    async def _attempt(
        self,
        pending: _Pending,
        queue: str,
        kind: Request,
        body: Mapping[str, Json],
        timeout_seconds: float,
        message_id: str,
    ) -> bytes:
        """Send it under a correlation id of its own: what is said of an earlier attempt does not count for this one."""
        if not self.connected:
            raise BrokerUnavailableError("there is no connection to the broker")
        correlation_id = str(next(self._correlation_ids))
        properties = Properties(
            delivery_mode=TRANSIENT,
            message_id=message_id,
            correlation_id=correlation_id,
            reply_to=self._name,
            expiration=str(max(1, round(timeout_seconds * 1000))),
        )
        self._pending[correlation_id] = pending
        taken = False
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._publish(queue, kind, body, properties)
                taken = True
                reply = await pending.reply
        except TimeoutError:
            if taken:
                raise ReplyTimeoutError(f"no reply from {queue} within {timeout_seconds:g} s") from None
            raise BrokerUnavailableError(f"the broker did not take it within {timeout_seconds:g} s") from None
        finally:
            del self._pending[correlation_id]
        if reply is None:
            raise BrokerUnavailableError("the connection to the broker was lost")
        return reply

    async def _publish(self, queue: str, kind: Request, body: Mapping[str, Json], properties: Properties) -> None:
        if self._publisher is None:
            raise BrokerUnavailableError("there is no connection to the broker")
        properties.message_type = kind.value
        properties.content_type = CONTENT_TYPE
        properties.user_id = present(self._access).username
        channel = self._publisher.channel
        with translated():
            try:
                async with self._unless_blocked():
                    await channel.basic_publish(
                        orjson.dumps(body), routing_key=queue, properties=properties, mandatory=True
                    )
            except PublishError:
                raise NoConsumerError(f"there is no queue {queue}") from None
            except DeliveryError:
                raise QueueFullError(f"the queue {queue} is full") from None

    @asynccontextmanager
    async def _unless_blocked(self) -> AsyncIterator[None]:
        """Raise BrokerBlockedError instead of waiting for a broker that takes no messages."""
        try:
            if self.blocked:
                raise TimeoutError
            async with asyncio.timeout(None) as scope:
                self._unconfirmed.add(scope)
                try:
                    yield
                finally:
                    self._unconfirmed.discard(scope)
        except TimeoutError:
            raise BrokerBlockedError(f"the message broker takes no messages: {self.blocked}") from None

    def _on_blocked(self) -> None:
        for scope in self._unconfirmed:
            scope.reschedule(asyncio.get_running_loop().time())

    async def _serve_requests(self, link: Link) -> None:
        self._publisher = link
        link.connection.on_blocked = self._on_blocked
        try:
            CONNECTED.labels(f"{self._prefix} requests").set(1)
            self._update()
            await link.until_lost()
        finally:
            self._publisher = None
            self._update()

    async def _serve_replies(self, link: Link) -> None:
        name = f"{self._prefix}-{secrets.token_hex(8)}"
        queue = REPLY_QUEUES_PREFIX + name
        limits: dict[str, int] = {"x-max-length-bytes": MAX_WAITING_REPLY_BYTES}
        await link.channel.queue_declare(queue, exclusive=True, arguments={**limits})
        await link.channel.queue_bind(queue, REPLIES_EXCHANGE, reply_key(name, "*"))
        await link.channel.basic_consume(queue, self._on_reply, no_ack=True)
        self._name = name
        try:
            CONNECTED.labels(f"{self._prefix} replies").set(1)
            self._update()
            await link.until_lost()
        finally:
            self._name = ""
            self._update()

    def _update(self) -> None:
        if self._publisher is not None and self._name:
            self._connected.set()
            if self._on_connected is not None:
                self._on_connected()
            return
        self._connected.clear()
        for pending in self._pending.values():
            if not pending.reply.done():
                pending.reply.set_result(None)

    async def _on_reply(self, message: DeliveredMessage) -> None:
        properties = message.header.properties
        pending = self._pending.get(properties.correlation_id or "")
        if pending is None or pending.reply.done() or identity_of(properties.user_id or "") != pending.user:
            REPLIES_REFUSED.inc()
            return
        if properties.message_type == BEGUN:
            pending.begun = True
            return
        pending.reply.set_result(message.body)


def _read(body: bytes) -> Reply:
    try:
        return read_reply(body)
    except RefusedError as refused:
        REPLIES_REFUSED.inc()
        raise InvalidReplyError(refused.problem) from None
