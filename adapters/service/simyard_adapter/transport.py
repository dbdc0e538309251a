# SPDX-License-Identifier: Apache-2.0
"""The adapter's access to the broker: connections, which adapters may share, and sessions on one channel each.

The client library is aiormq. Reconnecting is left to the adapter, because it must register again.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import ssl
import time
from dataclasses import dataclass, replace
from typing import Any, AsyncIterator, Callable, Coroutine, Mapping, Optional, TypeVar
from urllib.parse import quote

import aiormq
from aiormq import spec
from aiormq.abc import AbstractChannel, AbstractConnection, DeliveredMessage
from aiormq.exceptions import (
    AMQPError,
    AuthenticationError,
    ConnectionNotAllowed,
    ProbableAuthenticationError,
    PublishError,
)

from simyard_adapter.backoff import draw_delay
from simyard_adapter.bootstrap import BrokerAddress
from simyard_adapter.deadline import abandon, within
from simyard_adapter.login import Login
from simyard_adapter.wire import CONTENT_TYPE

T = TypeVar("T")

HEARTBEAT_SECONDS = 6
"""The AMQP heartbeat: a failed node is noticed after three intervals plus a second for each (21 s)."""
SECOND_ATTEMPT_SECONDS = 3.0
"""The time after which a second connection is tried: the first may lead to a failed node."""
CONNECT_ATTEMPTS = 3
TIMEOUT_SECONDS = 20.0
CLOSE_SECONDS = 3.0
MAX_ACKNOWLEDGE_SECONDS = 45.0
"""Limit of the time that a session with a replaced login stays open; a Sync request takes at most 30 s."""
MAX_CONNECT_BACKOFF_SECONDS = 1.0
"""The delay limit between attempts on shared connections.

It is shorter than the delay of each adapter; otherwise all adapters that share the connections would retry at once.
"""
MAX_CHANNEL_NUMBER = 65535
TRANSIENT, PERSISTENT = 1, 2  # AMQP 0-9-1, delivery-mode

# aiormq raises RuntimeError on closed connections, and StopAsyncIteration when the broker closes the socket.
_REFUSALS = (AuthenticationError, ConnectionNotAllowed, ProbableAuthenticationError)
_BREAKS = (AMQPError, OSError, RuntimeError, StopAsyncIteration, asyncio.TimeoutError)


class BrokerError(Exception):
    """A failure to reach the broker, or a broken connection or channel; retry on a new one."""


class LoginRefusedError(BrokerError):
    """A login that the broker refuses; another login of the same user may be valid."""


class UnroutableError(Exception):
    """A message that no queue accepts."""


async def await_guarded(operation: Coroutine[Any, Any, T], what: str, seconds: float = TIMEOUT_SECONDS) -> T:
    """Await operations of aiormq with a deadline, and turn every failure of the connection into one error.

    ``what`` names the operation in the error. The operations run in one task, for two reasons. aiormq ends its futures
    with CancelledError when a connection closes; before Python 3.11 the caller could not distinguish this from its own
    cancellation. And the cancellation of an operation on a blocked connection can take forever, so nothing may wait for
    it.

    Raises:
        BrokerError: The connection or channel broke, or no answer arrived in time.
        LoginRefusedError: The broker refuses the login.
        UnroutableError: The broker returned a mandatory message.
    """
    task = asyncio.ensure_future(operation)
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        abandon(task)
    if not task.done():
        raise BrokerError(f"{what}: no answer within {seconds:g} s")
    if task.cancelled():
        raise BrokerError(f"{what}: the connection closed")
    error = task.exception()
    if error is None:
        return task.result()
    if isinstance(error, PublishError):
        raise UnroutableError("no queue accepts the message")
    # aiormq raises a plain Exception for an end without a reason.
    if isinstance(error, _BREAKS) or type(error) is Exception:
        kind = LoginRefusedError if isinstance(error, _REFUSALS) else BrokerError
        raise kind(f"{what}: {type(error).__name__}: {error}") from error
    raise error


@functools.lru_cache(maxsize=16)
def _tls(ca_certificate: str) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=ca_certificate)


async def _connect(broker: BrokerAddress, name: str) -> AbstractConnection:
    tls = broker.ca_certificate is not None
    host = f"[{broker.host}]" if ":" in broker.host else broker.host
    user, password, vhost = (quote(part, safe="") for part in (broker.username, broker.password, broker.vhost))
    connection = aiormq.Connection(
        f"{'amqps' if tls else 'amqp'}://{user}:{password}@{host}:{broker.port}/{vhost}?heartbeat={HEARTBEAT_SECONDS}",
        context=_tls(broker.ca_certificate) if broker.ca_certificate is not None else None,
    )
    await connection.connect({"connection_name": name})
    return connection


async def _dial(broker: BrokerAddress, name: str) -> AbstractConnection:
    """Return the first connection that opens; start further attempts beside those that hang."""
    hanging: set[asyncio.Future[AbstractConnection]] = set()
    try:
        for left in reversed(range(CONNECT_ATTEMPTS)):
            hanging.add(asyncio.ensure_future(_connect(broker, name)))
            while hanging:
                done, hanging = await asyncio.wait(
                    hanging, timeout=SECOND_ATTEMPT_SECONDS if left else None, return_when=asyncio.FIRST_COMPLETED
                )
                for attempt in done:
                    if attempt.exception() is None or not hanging:
                        return attempt.result()
                if not done:
                    break
        raise BrokerError("no attempt is left")  # Not reached: the last attempt returns or raises.
    finally:
        for attempt in hanging:
            abandon(attempt)


@dataclass
class _SharedConnection:
    connection: AbstractConnection
    username: str
    channels: int = 0
    last_number: int = 0

    @property
    def limit(self) -> int:
        """The number of channels that the broker allows."""
        return self.connection.connection_tune.channel_max or MAX_CHANNEL_NUMBER

    async def open(self, publishes: bool) -> AbstractChannel:
        return await self.connection.channel(
            self._next_number(), publisher_confirms=publishes, on_return_raises=publishes
        )

    def _next_number(self) -> int:
        """Return the next free channel number. aiormq's own numbers grow without end, beyond the broker's limit."""
        for _ in range(self.limit):
            self.last_number = self.last_number % self.limit + 1
            if self.last_number not in self.connection.channels:
                return self.last_number
        raise RuntimeError("the connection has no free channel number")


class Connections:
    """The connections of one broker user. A connection opens with its first channel and closes with its last one.

    The user may have several logins (:mod:`simyard_adapter.wire`). New channels use the newest login; a login that the
    broker refuses moves to the end of the list.

    An adapter needs two channels. It has connections of its own, unless many adapters of one user share them in one
    process (RabbitMQ allows 2,047 channels on each).
    """

    def __init__(
        self,
        broker: BrokerAddress,
        name: str,
        *,
        channels_per_connection: int = 2,
        close_seconds: float = CLOSE_SECONDS,
        pause: Callable[[int, float], float] = draw_delay,
    ) -> None:
        """Create the connections; ``name`` is shown to the broker's administrators.

        ``pause`` returns the delay after a number of earlier failures, up to a maximum.
        """
        self._close_seconds = close_seconds
        self._pause = pause
        self._logins = [broker]
        self._name = name
        self._channels_per_connection = channels_per_connection
        self._connections: list[_SharedConnection] = []
        self._opening = asyncio.Lock()
        self._failures = 0
        self._failed_at = self._again_at = 0.0
        # The error itself is not kept: its traceback would hold this frame, and so every earlier error.
        self._failure = ""

    @property
    def username(self) -> str:
        """The login of the next connection."""
        return self._logins[0].username

    def use(self, login: Login) -> None:
        """Open new channels with this login; open channels keep their own."""
        others = [known for known in self._logins if known.username != login.username]
        broker = replace(self._logins[0], username=login.username, password=login.password)
        self._logins = [broker, *others]

    @contextlib.asynccontextmanager
    async def open_channel(self, *, publishes: bool = True) -> AsyncIterator[AbstractChannel]:
        """Open a channel for the block.

        With ``publishes``, the broker confirms each message, and an unroutable message raises an error.

        Raises:
            BrokerError: The broker cannot be reached, or refuses the user.
        """
        asked = time.monotonic()
        async with self._opening:
            line = await self._line(asked)
            line.channels += 1
        try:
            channel = await await_guarded(line.open(publishes), "opening a channel")
            try:
                yield channel
            finally:
                with contextlib.suppress(BrokerError):
                    await await_guarded(channel.close(), "closing the channel", self._close_seconds)
        finally:
            line.channels -= 1
            if line.channels == 0:
                self._connections.remove(line)
                with contextlib.suppress(BrokerError):
                    await await_guarded(line.connection.close(), "closing the connection", self._close_seconds)

    async def _line(self, asked: float) -> _SharedConnection:
        for line in self._connections:
            if line.username != self.username:
                continue
            if line.connection.is_opened and line.channels < min(self._channels_per_connection, line.limit):
                return line
        if self._failed_at > asked or self._again_at > time.monotonic():
            # The attempt that this caller waited for failed, or another one did just now.
            raise BrokerError(self._failure)
        try:
            line = await self._connect()
        except BrokerError as error:
            self._failure, self._failed_at = str(error), time.monotonic()
            self._again_at = self._failed_at + self._pause(self._failures, MAX_CONNECT_BACKOFF_SECONDS)
            self._failures += 1
            raise
        self._failures = 0
        self._connections.append(line)
        return line

    async def _connect(self) -> _SharedConnection:
        """Connect with the first login that the broker accepts."""
        for left in reversed(range(len(self._logins))):
            broker = self._logins[0]
            try:
                return _SharedConnection(
                    await await_guarded(_dial(broker, self._name), f"connecting as {broker.username}"), broker.username
                )
            except LoginRefusedError:
                if self._logins[0] is broker:
                    self._logins.append(self._logins.pop(0))
                if not left:
                    raise
        raise AssertionError("there is a login")


class Session:
    """An open channel until it closes.

    Attributes:
        channel: The channel.
        username: The login of its connection.
        closed: Set when the channel is closed, or when the broker has cancelled a consumer.
        hears_cancels: True if the client library reports that the broker has cancelled a consumer; aiormq 6 does not.
        unacknowledged: The number of received messages that are not acknowledged yet.
    """

    def __init__(self, channel: AbstractChannel) -> None:
        self.channel = channel
        self.closed = asyncio.Event()
        self.unacknowledged = 0
        self._acknowledged = asyncio.Event()
        self.username = channel.connection.url.user or ""
        channel.closing.add_done_callback(self._on_close)
        cancels = getattr(channel, "on_consumer_cancel_callbacks", None)
        self.hears_cancels = cancels is not None
        if cancels is not None:
            cancels.add(self._on_close)

    def _on_close(self, _: object) -> None:
        self.closed.set()
        self._acknowledged.set()

    async def publish(
        self,
        exchange: str,
        routing_key: str,
        kind: str,
        body: bytes,
        *,
        mandatory: bool = True,
        persistent: bool = False,
        correlation_id: Optional[str] = None,
    ) -> None:
        """Publish a message and wait for the broker's confirmation.

        Raises:
            BrokerError: The broker did not confirm the message; it may have arrived nevertheless.
            UnroutableError: The message was mandatory, and no queue accepts it.
        """
        properties = spec.Basic.Properties(
            content_type=CONTENT_TYPE,
            message_type=kind,
            user_id=self.username,  # The broker refuses any other user id.
            correlation_id=correlation_id,
            delivery_mode=PERSISTENT if persistent else TRANSIENT,
        )
        publishing = self.channel.basic_publish(
            body,
            exchange=exchange,
            routing_key=routing_key,
            properties=properties,
            mandatory=mandatory,
        )
        await await_guarded(publishing, f"publishing to {exchange}")

    async def check_queue(self, name: str) -> None:
        """Check that a queue exists.

        Raises:
            BrokerError: The queue does not exist, or the session broke; in both cases the session is closed.
        """
        await await_guarded(self.channel.queue_declare(name, passive=True), "checking that the queue exists")

    async def wait_until_acknowledged(self) -> None:
        """Return when all received messages are acknowledged, the session has closed, or the time limit has passed."""
        deadline = time.monotonic() + MAX_ACKNOWLEDGE_SECONDS
        while self.unacknowledged and not self.closed.is_set() and (left := deadline - time.monotonic()) > 0:
            self._acknowledged.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await within(left, self._acknowledged.wait())

    def count_acknowledged(self) -> None:
        """Count one received message as acknowledged."""
        self.unacknowledged -= 1
        self._acknowledged.set()

    async def acknowledge(self, message: DeliveredMessage) -> None:
        """Acknowledge a received message; the broker may deliver it again nevertheless.

        Raises:
            BrokerError: The session broke.
        """
        assert message.delivery_tag is not None, "a delivery has a tag"
        await await_guarded(self._acknowledge(message.delivery_tag), "acknowledging a message")

    async def _acknowledge(self, delivery_tag: int) -> None:
        await self.channel.basic_ack(delivery_tag)


def encode(body: Mapping[str, Any]) -> bytes:
    """Return a message body as JSON."""
    return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
