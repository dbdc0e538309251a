"""The broker, as the adapter sees it: connections that may be shared, and one channel that lives until it breaks.

Reconnecting is the adapter's own affair (it must register anew), so aio-pika's robust connections are not used.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import ssl
import time
from dataclasses import dataclass
from typing import Any, AsyncIterator, Awaitable, Mapping, Optional, TypeVar

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection
from aio_pika.exceptions import CONNECTION_EXCEPTIONS, PublishError

from simyard_adapter.bootstrap import BrokerAddress
from simyard_adapter.deadline import abandon
from simyard_adapter.wire import CONTENT_TYPE

T = TypeVar("T")

HEARTBEAT_SECONDS = 20
TIMEOUT_SECONDS = 20.0
CLOSE_SECONDS = 3.0


class BrokerError(Exception):
    """The broker cannot be reached, or the connection or the channel broke; try again on a new one."""


class UnroutableError(Exception):
    """No queue takes the message."""


async def guarded(operation: Awaitable[T], what: str, seconds: float = TIMEOUT_SECONDS) -> T:
    """Await an operation of aio-pika with a deadline; everything that means "the connection broke" is one error.

    ``what`` says in the error what was tried.

    aio-pika ends its futures with CancelledError when a connection closes: awaited directly, that could not be told
    from a cancellation of the caller.

    Raises:
        BrokerError: the connection or channel broke, or there was no answer in time.
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
    if isinstance(error, (*CONNECTION_EXCEPTIONS, asyncio.TimeoutError)):
        raise BrokerError(f"{what}: {type(error).__name__}: {error}") from error
    raise error


@functools.lru_cache(maxsize=16)
def _tls(ca_certificate: str) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=ca_certificate)


@dataclass
class _Line:
    connection: AbstractConnection
    channels: int = 0
    broken: bool = False

    def on_close(self, *_: object) -> None:
        self.broken = True


class Connections:
    """Connections of one broker user: each is opened when a channel is wanted, and closed when its last one goes.

    An adapter takes two channels. It has connections of its own, unless many adapters of one user in one process
    share them (RabbitMQ allows 2,047 channels on each).
    """

    def __init__(self, broker: BrokerAddress, name: str, *, channels_per_connection: int = 2) -> None:
        """``name`` is what the broker's operator sees."""
        self._broker = broker
        self._name = name
        self._channels_per_connection = channels_per_connection
        self._lines: list[_Line] = []
        self._opening = asyncio.Lock()
        self._failure: tuple[float, BrokerError] = (0.0, BrokerError())

    @contextlib.asynccontextmanager
    async def channel(self, *, publishes: bool = True) -> AsyncIterator[AbstractChannel]:
        """A channel; on one that ``publishes``, the broker confirms what it has, and unroutable messages raise.

        Raises:
            BrokerError: the broker cannot be reached, or refuses the user.
        """
        asked = time.monotonic()
        async with self._opening:
            failed, error = self._failure
            if failed > asked:  # the attempt that this one waited for: it need not fail once more for each
                raise BrokerError(str(error))
            try:
                line = await self._line()
            except BrokerError as failure:
                self._failure = (time.monotonic(), failure)
                raise
            line.channels += 1
        try:
            channel = line.connection.channel(publisher_confirms=publishes, on_return_raises=publishes)
            await guarded(channel.initialize(), "opening a channel")
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

    async def _line(self) -> _Line:
        for line in self._lines:
            if line.channels < self._channels_per_connection and not line.broken:
                return line
        broker = self._broker
        connection = await guarded(
            aio_pika.connect(
                host=broker.host,
                port=broker.port,
                login=broker.username,
                password=broker.password,
                virtualhost=broker.vhost,
                ssl=broker.ca_certificate is not None,
                ssl_context=_tls(broker.ca_certificate) if broker.ca_certificate is not None else None,
                client_properties={"connection_name": self._name},
                heartbeat=HEARTBEAT_SECONDS,
            ),
            "connecting",
        )
        line = _Line(connection)
        connection.close_callbacks.add(line.on_close)
        self._lines.append(line)
        return line


class Session:
    """An open channel, until it closes.

    Attributes:
        channel: the channel.
        closed: set when it is closed, whoever closed it.
    """

    def __init__(self, channel: AbstractChannel, user: str = "") -> None:
        """``user`` is needed to publish."""
        self.channel = channel
        self.closed = asyncio.Event()
        self._user = user
        channel.close_callbacks.add(self._on_close)

    def _on_close(self, *_: object) -> None:
        self.closed.set()

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
        message = aio_pika.Message(
            body,
            content_type=CONTENT_TYPE,
            type=kind,
            user_id=self._user,
            correlation_id=correlation_id,
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT if persistent else aio_pika.DeliveryMode.NOT_PERSISTENT,
        )
        target = await self.channel.get_exchange(exchange, ensure=False)
        await guarded(target.publish(message, routing_key, mandatory=mandatory), f"publishing to {exchange}")


def encode(body: Mapping[str, Any]) -> bytes:
    """A message body."""
    return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
