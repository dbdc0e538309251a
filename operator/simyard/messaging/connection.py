# SPDX-License-Identifier: Apache-2.0
"""Connections to the broker that reconnect, and the translation of the AMQP client's errors.

The client is aiormq, the layer below aio-pika. It can declare queues without a wait for each answer, and a request
costs 15 % less CPU than with aio-pika. The loop in :func:`stay_connected` reconnects.

A node of the broker can vanish without closing its connections. Heartbeats detect this only after 33 s. With a shorter
interval, a process whose event loop is late would lose its connections. So each connection sends a request to its node
every :data:`PING_SECONDS`, and closes itself if the node does not answer. The load balancer in front of a cluster may
still route new connections to the lost node. So while one attempt to connect hangs, a further attempt begins.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, NoReturn

import aiormq
from aiormq import spec
from aiormq.abc import AbstractChannel
from aiormq.exceptions import (
    AMQPError,
    ChannelAccessRefused,
    ChannelInvalidStateError,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    ConnectionNotAllowed,
    ProbableAuthenticationError,
)

from simyard.messaging.access import AccessSource, BrokerAccess, resolve_access
from simyard.messaging.errors import BrokerRefusedError, BrokerUnavailableError, MessagingError
from simyard.messaging.metrics import CONNECTED
from simyard.messaging.unreadable import tolerate_unreadable_messages
from simyard_adapter.backoff import draw_delay

log = logging.getLogger(__name__)
logging.getLogger("aiormq").setLevel(logging.CRITICAL)  # aiormq logs tracebacks of errors that it also raises
tolerate_unreadable_messages()

REFUSALS = (
    ChannelAccessRefused,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    ConnectionNotAllowed,
    ProbableAuthenticationError,
)
CONNECT_SECONDS = 10.0
ATTEMPT_SECONDS = 1.5
"""Time after which a further attempt to connect begins if no earlier attempt has succeeded or failed."""
MAX_ATTEMPTS = 4
PING_SECONDS = 2.0
MAX_SILENT_SECONDS = 3
"""Maximum time for the answer of a node; time in which the event loop does not run does not count."""
CLOSE_SECONDS = 3.0
STABLE_SECONDS = 5.0
MIN_PAUSE_SECONDS = 0.1
MAX_PAUSE_SECONDS = 3.0


class Connection(aiormq.Connection):
    """A connection of the AMQP client that records why the broker blocks it, and that detects a node without answers.

    A broker that is short of memory or disk stops reading from connections that publish, and reports this to them
    (``connection.blocked``). The client itself only logs the reason and waits.

    Attributes:
        blocked: the broker's reason, such as "low on memory"; empty while the connection is not blocked.
        on_blocked: function to call when the broker blocks the connection.
    """

    blocked: str = ""
    on_blocked: Callable[[], None] | None = None

    async def _Connection__handle_connection_blocked(self, frame: spec.Connection.Blocked) -> None:  # noqa: N802
        await super()._Connection__handle_connection_blocked(frame)  # type: ignore[misc]
        self.blocked = frame.reason or "no reason given"
        if self.on_blocked is not None:
            self.on_blocked()

    async def _Connection__handle_connection_unblocked(self, frame: spec.Connection.Unblocked) -> None:  # noqa: N802
        await super()._Connection__handle_connection_unblocked(frame)  # type: ignore[misc]
        self.blocked = ""

    async def keep_watch(self) -> None:
        """Send a request to the broker at intervals, and end the connection when no answer comes."""
        channel = await self.channel(publisher_confirms=False)
        while not self.is_closed:
            await asyncio.sleep(PING_SECONDS)
            if self.blocked:  # the broker does not answer on a blocked connection
                continue
            answer = asyncio.ensure_future(channel.basic_qos(prefetch_count=1))
            answer.add_done_callback(_ignore)
            for _ in range(MAX_SILENT_SECONDS):  # short waits, so that a late loop is no silent broker
                await asyncio.wait({answer}, timeout=1.0)
            if not answer.done():
                self._reader_task.cancel()  # the client does the same when heartbeats are missing
                return


class BrokerChannel:
    """A channel with a connection of its own, and with a future that is done when the channel is lost.

    A channel is lost when it or its connection is closed, and when the broker cancels one of its consumers.
    """

    def __init__(self, channel: AbstractChannel, connection: Connection) -> None:
        self.channel = channel
        self.connection = connection
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Future that is done when the channel is lost; its result is the cause as a text."""
        self._closing = channel.closing
        self._closing.add_done_callback(lambda closing: self._lose(_why(closing)))
        channel.on_consumer_cancel_callbacks.add(lambda _: self._lose("the broker cancelled a consumer"))

    async def wait_until_lost(self) -> NoReturn:
        """Wait until the channel is lost. The method never returns.

        Raises:
            BrokerUnavailableError: the channel was lost.
        """
        raise BrokerUnavailableError(await asyncio.shield(self.lost))

    def _lose(self, why: str) -> None:
        if not self.lost.done():
            self.lost.set_result(why)


@asynccontextmanager
async def open_connection(access: BrokerAccess, name: str) -> AsyncIterator[Connection]:
    """Open a connection for the block of a ``with`` statement, and close it at the end of the block.

    :func:`translate_errors` translates the client's errors in the block into MessagingErrors. If the broker vanishes,
    every wait in the block ends with such an error.

    Args:
        access: address and credentials of the broker.
        name: name of the connection in the broker's list of connections.

    Raises:
        BrokerUnavailableError: the broker cannot be reached, or went away.
        BrokerRefusedError: the broker refuses the credentials or an operation.
    """
    with translate_errors():
        try:
            connection = await _dial(access, name)
        except REFUSALS:
            raise
        except (OSError, TimeoutError) as error:
            raise BrokerUnavailableError(f"cannot connect to {access.host}:{access.port}: {error!r}") from error
    watch = asyncio.create_task(connection.keep_watch())
    watch.add_done_callback(_ignore)
    try:
        with translate_errors():
            yield connection
    finally:
        watch.cancel()
        with suppress(TimeoutError):
            await connection.close(timeout=CLOSE_SECONDS)


async def _dial(access: BrokerAccess, name: str) -> Connection:
    """Try to connect, with further attempts while earlier ones hang, and return the first connection that succeeds."""
    attempts: dict[asyncio.Task[None], Connection] = {}
    begun = 0
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            while True:
                if begun < MAX_ATTEMPTS:
                    begun += 1
                    connection = Connection(access.build_amqp_url(name), context=access.make_ssl_context())
                    attempts[asyncio.create_task(_connect(connection))] = connection
                pause = ATTEMPT_SECONDS if begun < MAX_ATTEMPTS else None
                done, _ = await asyncio.wait(attempts, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    connection = attempts.pop(task)
                    if (error := task.exception()) is None:
                        return connection
                    if not attempts:
                        raise error
    finally:
        for task in attempts:
            task.cancel()
            task.add_done_callback(_ignore)


async def _connect(connection: Connection) -> None:
    """Connect, and close the connection if this fails."""
    try:
        await connection.connect()
    except BaseException:
        with suppress(TimeoutError):
            await connection.close(timeout=CLOSE_SECONDS)
        raise


@asynccontextmanager
async def open_channel(access: BrokerAccess, name: str, *, confirms: bool = False) -> AsyncIterator[BrokerChannel]:
    """Open a connection with a channel for the block; the errors are the same as for :func:`open_connection`.

    With ``confirms``, each publication waits until the broker has confirmed the message.
    """
    async with open_connection(access, name) as connection:
        yield BrokerChannel(await connection.channel(publisher_confirms=confirms), connection)


async def stay_connected(
    access: AccessSource, name: str, serve: Callable[[BrokerChannel], Awaitable[None]], *, confirms: bool = False
) -> NoReturn:
    """Connect and call ``serve``. When it returns or raises a :class:`MessagingError`, repeat this after a backoff.

    The function raises every other error of ``serve``.
    """
    clock = asyncio.get_running_loop().time
    retries = 0
    while True:
        started = clock()
        try:
            async with open_channel(resolve_access(access), name, confirms=confirms) as link:
                await serve(link)
        except BrokerUnavailableError as error:
            log.warning("%s: %s", name, error)
        except MessagingError as error:
            log.error("%s: %s", name, error)
        finally:
            CONNECTED.labels(name).set(0)
        if clock() - started > STABLE_SECONDS:
            retries = 0
        await asyncio.sleep(draw_delay(retries, MAX_PAUSE_SECONDS, MIN_PAUSE_SECONDS))
        retries += 1


@contextmanager
def translate_errors() -> Iterator[None]:
    """Translate errors of the AMQP client in the block into MessagingErrors.

    When a connection breaks, the client raises CancelledError in the tasks that wait for it. Such an error is a real
    cancellation only if a caller has cancelled this task.
    """
    try:
        yield
    except REFUSALS as error:
        raise BrokerRefusedError(f"the broker refuses: {error}") from error
    except (AMQPError, ChannelInvalidStateError) as error:
        raise BrokerUnavailableError(f"the connection to the broker is lost: {error!r}") from error
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise BrokerUnavailableError("the connection to the broker is lost") from None


def _ignore(task: asyncio.Future[Any]) -> None:
    """Retrieve the exception of a task that nobody awaits, so that asyncio does not log the exception."""
    if not task.cancelled():
        task.exception()


def _why(closing: asyncio.Future[object]) -> str:
    error = None if closing.cancelled() else closing.exception()
    return f"the connection to the broker is lost: {error!r}" if error else "the connection to the broker is closed"
