"""Connections to the broker that come back by themselves: the only module that knows how the AMQP client fails.

The client is aiormq, the layer below aio-pika: it can declare queues without waiting for each answer, a request costs
15 % less CPU than through aio-pika, and reconnecting is the loop in :func:`stay_connected`.

A node of the broker can vanish without closing its connections. Heartbeats notice that after 33 s, and shorter ones
would end the connections of a process whose event loop is late. So each connection asks its node for an answer every
:data:`PING_SECONDS`, and leaves a node that gives none. The load balancer in front of a cluster may still know the lost
node: while one attempt to connect hangs, another one begins.
"""

from __future__ import annotations

import asyncio
import logging
import random
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

from simyard.messaging.access import AccessSource, BrokerAccess, present
from simyard.messaging.errors import BrokerRefusedError, BrokerUnavailableError, MessagingError
from simyard.messaging.metrics import CONNECTED
from simyard.messaging.unreadable import tolerate_unreadable_messages

log = logging.getLogger(__name__)
logging.getLogger("aiormq").setLevel(logging.CRITICAL)  # it logs with tracebacks what it raises as well
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
"""After this time without success a second attempt to connect begins, and so on."""
MAX_ATTEMPTS = 4
PING_SECONDS = 2.0
PATIENCE_SECONDS = 3
"""For so many seconds, each of which the event loop has lived through, a node may owe its answer."""
CLOSE_SECONDS = 3.0
SETTLED_SECONDS = 5.0
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 3.0


class Connection(aiormq.Connection):
    """A connection of the client's that keeps why the broker blocks it, and that can be given up at once.

    A broker that is short of memory or disk reads nothing more from a connection that publishes, and says so
    (``connection.blocked``); the client logs the reason and waits.

    Attributes:
        blocked: the broker's reason, such as "low on memory"; empty while the connection is not blocked.
        on_blocked: called when the broker blocks it.
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
        """Ask the broker for an answer again and again, and end the connection when none comes."""
        channel = await self.channel(publisher_confirms=False)
        while not self.is_closed:
            await asyncio.sleep(PING_SECONDS)
            if self.blocked:  # nothing is read then; heartbeats go on
                continue
            answer = asyncio.ensure_future(channel.basic_qos(prefetch_count=1))
            answer.add_done_callback(_ignore)
            for _ in range(PATIENCE_SECONDS):  # not one long wait: a late loop must not be taken for a silent broker
                await asyncio.wait({answer}, timeout=1.0)
            if not answer.done():
                self._reader_task.cancel()  # as the client does when heartbeats are missing
                return


class Link:
    """A channel on a connection of its own, and when it is lost: closed, or one of its consumers cancelled."""

    def __init__(self, channel: AbstractChannel, connection: Connection) -> None:
        self.channel = channel
        self.connection = connection
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Done when the channel is of no use any more; the result says why."""
        self._closing = channel.closing
        self._closing.add_done_callback(lambda closing: self._lose(_why(closing)))
        channel.on_consumer_cancel_callbacks.add(lambda _: self._lose("the broker cancelled a consumer"))

    async def until_lost(self) -> NoReturn:
        """Wait.

        Raises:
            BrokerUnavailableError: the channel was lost; always.
        """
        raise BrokerUnavailableError(await asyncio.shield(self.lost))

    def _lose(self, why: str) -> None:
        if not self.lost.done():
            self.lost.set_result(why)


@asynccontextmanager
async def open_connection(access: BrokerAccess, name: str) -> AsyncIterator[Connection]:
    """A connection, closed at the end; what the client raises in the block is :func:`translated`.

    Nothing in the block waits for a broker that has vanished.

    Args:
        access: where and as whom.
        name: shown in the broker's list of connections.

    Raises:
        BrokerUnavailableError: it cannot be reached, or went away.
        BrokerRefusedError: it refuses the credentials or what was asked for.
    """
    with translated():
        try:
            connection = await _dial(access, name)
        except REFUSALS:
            raise
        except (OSError, TimeoutError) as error:
            raise BrokerUnavailableError(f"cannot connect to {access.host}:{access.port}: {error!r}") from error
    watch = asyncio.create_task(connection.keep_watch())
    watch.add_done_callback(_ignore)
    try:
        with translated():
            yield connection
    finally:
        watch.cancel()
        with suppress(TimeoutError):
            await connection.close(timeout=CLOSE_SECONDS)


async def _dial(access: BrokerAccess, name: str) -> Connection:
    """Return the first connection of several attempts, of which each begins while those before it hang."""
    attempts: dict[asyncio.Task[None], Connection] = {}
    begun = 0
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            while True:
                if begun < MAX_ATTEMPTS:
                    begun += 1
                    connection = Connection(access.amqp_url(name), context=access.ssl_context())
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
    """Connect, or leave nothing behind."""
    try:
        await connection.connect()
    except BaseException:
        with suppress(TimeoutError):
            await connection.close(timeout=CLOSE_SECONDS)
        raise


@asynccontextmanager
async def open_link(access: BrokerAccess, name: str, *, confirms: bool = False) -> AsyncIterator[Link]:
    """As :func:`open_connection`, with a channel; with ``confirms``, publishing waits until the broker took it."""
    async with open_connection(access, name) as connection:
        yield Link(await connection.channel(publisher_confirms=confirms), connection)


async def stay_connected(
    access: AccessSource, name: str, serve: Callable[[Link], Awaitable[None]], *, confirms: bool = False
) -> NoReturn:
    """Connect, ``serve`` until that raises a :class:`MessagingError` or returns, and again, with growing pauses.

    Every other error of ``serve`` ends it.
    """
    clock = asyncio.get_running_loop().time
    pause = FIRST_PAUSE_SECONDS
    while True:
        started = clock()
        try:
            async with open_link(present(access), name, confirms=confirms) as link:
                await serve(link)
        except BrokerUnavailableError as error:
            log.warning("%s: %s", name, error)
        except MessagingError as error:
            log.error("%s: %s", name, error)
        finally:
            CONNECTED.labels(name).set(0)
        if clock() - started > SETTLED_SECONDS:
            pause = FIRST_PAUSE_SECONDS
        await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


@contextmanager
def translated() -> Iterator[None]:
    """Raise our errors for the client's.

    The client throws CancelledError at those who wait on a connection that breaks: told from a real cancellation by
    whether anybody asked for one.
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
    """Take notice of how a task ended that nobody waits for."""
    if not task.cancelled():
        task.exception()


def _why(closing: asyncio.Future[object]) -> str:
    error = None if closing.cancelled() else closing.exception()
    return f"the connection to the broker is lost: {error!r}" if error else "the connection to the broker is closed"
