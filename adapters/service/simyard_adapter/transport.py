"""The broker, as the adapter sees it: connections that may be shared, and one channel that lives until it breaks.

The client is aiormq. Reconnecting is the adapter's own affair: it must register anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import ssl
import time
from dataclasses import dataclass, replace
from typing import Any, AsyncIterator, Coroutine, Mapping, Optional, TypeVar
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

from simyard_adapter.backoff import backoff_seconds
from simyard_adapter.bootstrap import BrokerAddress
from simyard_adapter.deadline import abandon, within
from simyard_adapter.login import Login
from simyard_adapter.wire import CONTENT_TYPE

T = TypeVar("T")

HEARTBEAT_SECONDS = 6
"""A node of the broker that vanished is noticed after three times as long, and a second more each (21 s)."""
HANGING_SECONDS = 3.0
"""A connection that takes longer may lead to a node that is away: another one is tried beside it."""
CONNECT_ATTEMPTS = 3
TIMEOUT_SECONDS = 20.0
CLOSE_SECONDS = 3.0
SETTLE_SECONDS = 45.0
"""A session whose login was replaced closes after so long, whatever runs: a Sync request takes at most 30 s."""
CONNECT_BACKOFF_LAST_SECONDS = 1.0
"""Of connections that are shared: less than those who share them wait by themselves, who would all try otherwise."""
LARGEST_CHANNEL_NUMBER = 65535
TRANSIENT, PERSISTENT = 1, 2  # AMQP 0-9-1, delivery-mode

# aiormq raises RuntimeError on what is closed already, and lets StopAsyncIteration out when the broker hangs up.
_REFUSALS = (AuthenticationError, ConnectionNotAllowed, ProbableAuthenticationError)
_BREAKS = (AMQPError, OSError, RuntimeError, StopAsyncIteration, asyncio.TimeoutError)


class BrokerError(Exception):
    """The broker cannot be reached, or the connection or the channel broke; try again on a new one."""


class LoginRefusedError(BrokerError):
    """The broker does not let this user in; another login of the same user may be the right one by now."""


class UnroutableError(Exception):
    """No queue takes the message."""


async def guarded(operation: Coroutine[Any, Any, T], what: str, seconds: float = TIMEOUT_SECONDS) -> T:
    """Await operations of aiormq with a deadline; everything that means "the connection broke" is one error.

    ``what`` says in the error what was tried.

    They run in a task, one for all of them, for two reasons. aiormq ends its futures with CancelledError when a
    connection closes: awaited directly, that could not be told from a cancellation of the caller (before Python 3.11).
    And what is cancelled on a connection that is stuck waits for room to say so: nobody may wait for it.

    Raises:
        BrokerError: the connection or channel broke, or there was no answer in time.
        LoginRefusedError: the broker refuses the user.
        UnroutableError: a mandatory message came back.
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
        raise UnroutableError("no queue takes the message")
    if isinstance(error, _BREAKS) or type(error) is Exception:  # which aiormq raises for an end without a reason
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
    """Return the first connection that comes about, trying again beside those that hang."""
    hanging: set[asyncio.Future[AbstractConnection]] = set()
    try:
        for left in reversed(range(CONNECT_ATTEMPTS)):
            hanging.add(asyncio.ensure_future(_connect(broker, name)))
            while hanging:
                done, hanging = await asyncio.wait(
                    hanging, timeout=HANGING_SECONDS if left else None, return_when=asyncio.FIRST_COMPLETED
                )
                for attempt in done:
                    if attempt.exception() is None or not hanging:
                        return attempt.result()
                if not done:
                    break
        raise BrokerError("no attempt is left")  # not reached: the last one ends
    finally:
        for attempt in hanging:
            abandon(attempt)


@dataclass
class _Line:
    connection: AbstractConnection
    username: str
    channels: int = 0
    last_number: int = 0

    @property
    def limit(self) -> int:
        """How many channels the broker allows."""
        return self.connection.connection_tune.channel_max or LARGEST_CHANNEL_NUMBER

    async def open(self, publishes: bool) -> AbstractChannel:
        return await self.connection.channel(
            self._next_number(), publisher_confirms=publishes, on_return_raises=publishes
        )

    def _next_number(self) -> int:
        """The next one in turn that is free: aiormq's own go up for ever, beyond what the broker allows."""
        for _ in range(self.limit):
            self.last_number = self.last_number % self.limit + 1
            if self.last_number not in self.connection.channels:
                return self.last_number
        raise RuntimeError("the connection has no room for a channel")


class Connections:
    """Connections of one broker user: each is opened when a channel is wanted, and closed when its last one goes.

    The user may have several logins (:mod:`simyard_adapter.wire`). New channels are opened under the newest one; a
    login that the broker refuses comes last from then on.

    An adapter takes two channels. It has connections of its own, unless many adapters of one user in one process
    share them (RabbitMQ allows 2,047 channels on each).
    """

    def __init__(self, broker: BrokerAddress, name: str, *, channels_per_connection: int = 2) -> None:
        """``name`` is what the broker's operator sees."""
        self._logins = [broker]
        self._name = name
        self._channels_per_connection = channels_per_connection
        self._lines: list[_Line] = []
        self._opening = asyncio.Lock()
        self._failures = 0
        self._failed_at = self._again_at = 0.0
        self._failure = ""  # not the error: its traceback holds this frame and what was tried, and so the one before

    @property
    def username(self) -> str:
        """The login under which the next connection is opened."""
        return self._logins[0].username

    def use(self, login: Login) -> None:
        """Open new channels under this login; those that are open go on under theirs."""
        others = [known for known in self._logins if known.username != login.username]
        broker = replace(self._logins[0], username=login.username, password=login.password)
        self._logins = [broker, *others]

    @contextlib.asynccontextmanager
    async def channel(self, *, publishes: bool = True) -> AsyncIterator[AbstractChannel]:
        """A channel; on one that ``publishes``, the broker confirms what it has, and unroutable messages raise.

        Raises:
            BrokerError: the broker cannot be reached, or refuses the user.
        """
        asked = time.monotonic()
        async with self._opening:
            line = await self._line(asked)
            line.channels += 1
        try:
            channel = await guarded(line.open(publishes), "opening a channel")
            try:
                yield channel
            finally:
                with contextlib.suppress(BrokerError):
                    await guarded(channel.close(), "closing the channel", CLOSE_SECONDS)
        finally:
            line.channels -= 1
            if line.channels == 0:
                self._lines.remove(line)
                with contextlib.suppress(BrokerError):
                    await guarded(line.connection.close(), "closing the connection", CLOSE_SECONDS)

    async def _line(self, asked: float) -> _Line:
        for line in self._lines:
            if line.username != self.username:
                continue
            if line.connection.is_opened and line.channels < min(self._channels_per_connection, line.limit):
                return line
        if self._failed_at > asked or self._again_at > time.monotonic():
            raise BrokerError(self._failure)  # of the attempt that this one waited for, or that was just now
        try:
            line = await self._connect()
        except BrokerError as error:
            self._failure, self._failed_at = str(error), time.monotonic()
            self._again_at = self._failed_at + backoff_seconds(self._failures, CONNECT_BACKOFF_LAST_SECONDS)
            self._failures += 1
            raise
        self._failures = 0
        self._lines.append(line)
        return line

    async def _connect(self) -> _Line:
        """Connect under the first login that the broker takes."""
        for left in reversed(range(len(self._logins))):
            broker = self._logins[0]
            try:
                return _Line(
                    await guarded(_dial(broker, self._name), f"connecting as {broker.username}"), broker.username
                )
            except LoginRefusedError:
                if self._logins[0] is broker:
                    self._logins.append(self._logins.pop(0))
                if not left:
                    raise
        raise AssertionError("there is a login")


class Session:
    """An open channel, until it closes.

    Attributes:
        channel: the channel.
        username: the login of its connection.
        closed: set when it is closed, whoever closed it, or the broker has cancelled a consumer.
        hears_cancels: whether the client tells that the broker has cancelled a consumer; aiormq 6 does not.
        unsettled: how many messages it was given that are not acknowledged yet; see :meth:`until_settled`.
    """

    def __init__(self, channel: AbstractChannel) -> None:
        self.channel = channel
        self.closed = asyncio.Event()
        self.unsettled = 0
        self._settled = asyncio.Event()
        self.username = channel.connection.url.user or ""
        channel.closing.add_done_callback(self._on_close)
        cancels = getattr(channel, "on_consumer_cancel_callbacks", None)
        self.hears_cancels = cancels is not None
        if cancels is not None:
            cancels.add(self._on_close)

    def _on_close(self, _: object) -> None:
        self.closed.set()
        self._settled.set()

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
            BrokerError: not confirmed; it may have arrived all the same.
            UnroutableError: it was mandatory, and no queue takes it.
        """
        properties = spec.Basic.Properties(
            content_type=CONTENT_TYPE,
            message_type=kind,
            user_id=self.username,  # the broker takes no other
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
        await guarded(publishing, f"publishing to {exchange}")

    async def check_queue(self, name: str) -> None:
        """Check that a queue exists.

        Raises:
            BrokerError: it does not, or the session broke; the session is closed in any case.
        """
        await guarded(self.channel.queue_declare(name, passive=True), "looking for the queue")

    async def until_settled(self) -> None:
        """Return when every message that this session was given is acknowledged, or it has closed, or time is up."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while self.unsettled and not self.closed.is_set() and (left := deadline - time.monotonic()) > 0:
            self._settled.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await within(left, self._settled.wait())

    def settle(self) -> None:
        """Count one message less that is not acknowledged."""
        self.unsettled -= 1
        self._settled.set()

    async def acknowledge(self, message: DeliveredMessage) -> None:
        """Acknowledge a message that this session was given; it may come again all the same.

        Raises:
            BrokerError: the session broke.
        """
        assert message.delivery_tag is not None, "a delivery has a tag"
        await guarded(self._acknowledge(message.delivery_tag), "acknowledging")

    async def _acknowledge(self, delivery_tag: int) -> None:
        await self.channel.basic_ack(delivery_tag)


def encode(body: Mapping[str, Any]) -> bytes:
    """A message body."""
    return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
