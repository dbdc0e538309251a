# SPDX-License-Identifier: Apache-2.0
"""Requests to workers and pools, and their replies."""

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
from simyard.messaging.access import AccessSource, resolve_access
from simyard.messaging.connection import BrokerChannel, stay_connected, translate_errors
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
from simyard.messaging.metrics import CONNECTED, REPLIES_REFUSED, REQUEST_SECONDS, REQUESTS, REQUESTS_RESENT
from simyard.messaging.topology import REPLY_QUEUES_PREFIX
from simyard_adapter.declarations import Json
from simyard_adapter.limits import MIB
from simyard_adapter.wire import BEGUN, CONTENT_TYPE, REPLIES_EXCHANGE, Request, make_reply_key, parse_identity

Properties = spec.Basic.Properties
CONFIRM_SECONDS = 10.0
MAX_ATTEMPTS = 5
"""Maximum number of attempts to send a request; another attempt follows if a worker returns it before it begins."""
MAX_WAITING_REPLY_BYTES = 256 * MIB
TRANSIENT, PERSISTENT = 1, 2  # AMQP 0-9-1, delivery-mode


@dataclass(slots=True)
class _Pending:
    """A request that waits for its reply.

    ``user`` is the broker user that must answer. The result of ``reply`` is the body of the reply, or None if the
    connection was lost. ``begun`` is True after a worker has reported that it begins.
    """

    user: str
    reply: asyncio.Future[bytes | None]
    begun: bool = False


class Requester:
    """Sender of requests to the queues of workers and pools. It receives replies while :meth:`run` runs.

    It publishes and consumes over separate connections. So if the broker slows publishers down, replies still arrive in
    time.
    """

    def __init__(self, access: AccessSource, name_prefix: str, on_connected: Callable[[], None] | None = None) -> None:
        """Create a requester without connections.

        The name of the reply queue begins with ``name_prefix``, which must not contain dots. The requester calls
        ``on_connected`` each time it becomes able to send requests.
        """
        self._access = access
        self._on_connected = on_connected
        self._prefix = name_prefix
        self._publisher: BrokerChannel | None = None
        self._unconfirmed: set[asyncio.Timeout] = set()
        self._name = ""
        self._connected = asyncio.Event()
        self._correlation_ids = itertools.count(1)
        self._pending: dict[str, _Pending] = {}

    @property
    def connected(self) -> bool:
        """True while the requester can send requests and receive replies."""
        return self._connected.is_set()

    @property
    def blocked(self) -> str:
        """The broker's reason for accepting no messages, such as "low on memory"; empty while it accepts them."""
        return self._publisher.connection.blocked if self._publisher is not None else ""

    async def wait_until_connected(self) -> None:
        """Wait until the requester can send requests and receive replies."""
        await self._connected.wait()

    async def run(self) -> NoReturn:
        """Keep the two connections until cancelled, then close them."""
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
            user: the broker user that must answer; the requester ignores replies of other users.
            kind: the kind of request.
            body: the content that :class:`simyard_adapter.wire.Request` defines for the kind.
            timeout_seconds: time to wait for the reply; the request expires in the queue after the same time.
            message_id: the invocation id; a new one if it is None.

        Raises:
            BrokerBlockedError: the broker accepts no messages for lack of memory or disk (raised at once).
            BrokerUnavailableError: there is no connection (raised at once), the connection was lost, or the broker did
                not confirm the request in time.
            NoConsumerError: the queue does not exist (raised at once).
            QueueFullError: the queue is full.
            ReplyTimeoutError: no reply arrived in time.
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

    async def publish_persistent(self, queue: str, kind: Request, body: Mapping[str, Json], message_id: str) -> None:
        """Publish a request that survives a restart of the broker, without a wait for a reply.

        Raises:
            BrokerUnavailableError: there is no connection, or the broker did not confirm the request in time. The
                request may have arrived; the caller may send it again.
            NoConsumerError: the queue does not exist.
            QueueFullError: the queue is full.
        """
        await self._publish_confirmed(queue, kind, body, Properties(delivery_mode=PERSISTENT, message_id=message_id))

    async def publish_transient(self, queue: str, kind: Request, body: Mapping[str, Json], message_id: str) -> None:
        """Publish a request that a restart of the broker may lose; raise the errors of :meth:`publish_persistent`."""
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
        for _ in range(MAX_ATTEMPTS):
            left = max(0.001, deadline - clock())
            pending = _Pending(user, asyncio.get_running_loop().create_future())
            reply = _read(await self._attempt(pending, queue, kind, body, left, message_id))
            if pending.begun or not reply.again or clock() >= deadline:
                break
            REQUESTS_RESENT.inc()
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
        """Send the request with a new correlation id, so that replies to an earlier attempt do not count."""
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
            raise BrokerUnavailableError(
                f"the broker did not accept the request within {timeout_seconds:g} s"
            ) from None
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
        properties.user_id = resolve_access(self._access).username
        channel = self._publisher.channel
        with translate_errors():
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
        """Run the block, but raise BrokerBlockedError as soon as the broker accepts no messages."""
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
            raise BrokerBlockedError(f"the message broker accepts no messages: {self.blocked}") from None

    def _on_blocked(self) -> None:
        for scope in self._unconfirmed:
            scope.reschedule(asyncio.get_running_loop().time())

    async def _serve_requests(self, link: BrokerChannel) -> None:
        self._publisher = link
        link.connection.on_blocked = self._on_blocked
        try:
            CONNECTED.labels(f"{self._prefix} requests").set(1)
            self._update()
            await link.wait_until_lost()
        finally:
            self._publisher = None
            self._update()

    async def _serve_replies(self, link: BrokerChannel) -> None:
        name = f"{self._prefix}-{secrets.token_hex(8)}"
        queue = REPLY_QUEUES_PREFIX + name
        limits: dict[str, int] = {"x-max-length-bytes": MAX_WAITING_REPLY_BYTES}
        await link.channel.queue_declare(queue, exclusive=True, arguments={**limits})
        await link.channel.queue_bind(queue, REPLIES_EXCHANGE, make_reply_key(name, "*"))
        await link.channel.basic_consume(queue, self._on_reply, no_ack=True)
        self._name = name
        try:
            CONNECTED.labels(f"{self._prefix} replies").set(1)
            self._update()
            await link.wait_until_lost()
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
        if pending is None or pending.reply.done() or parse_identity(properties.user_id or "") != pending.user:
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
