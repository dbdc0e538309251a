"""Connections to the broker that come back by themselves: the only module that knows how the AMQP client fails.

The client is aiormq, the layer below aio-pika: it can declare queues without waiting for each answer, a request costs
15 % less CPU than through aio-pika, and reconnecting is the loop in :func:`stay_connected`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import NoReturn

import aiormq
from aiormq.abc import AbstractChannel, AbstractConnection
from aiormq.exceptions import (
    AMQPError,
    ChannelAccessRefused,
    ChannelInvalidStateError,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    ConnectionNotAllowed,
    ProbableAuthenticationError,
)

from simyard.messaging.access import BrokerAccess
from simyard.messaging.errors import BrokerRefusedError, BrokerUnavailableError, MessagingError
from simyard.messaging.metrics import CONNECTED
from simyard.messaging.unreadable import tolerate_unreadable_properties

log = logging.getLogger(__name__)
logging.getLogger("aiormq").setLevel(logging.CRITICAL)  # it logs with tracebacks what it raises as well
tolerate_unreadable_properties()

REFUSALS = (
    ChannelAccessRefused,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    ConnectionNotAllowed,
    ProbableAuthenticationError,
)
CONNECT_SECONDS = 10.0
CLOSE_SECONDS = 3.0
SETTLED_SECONDS = 5.0
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 3.0


class Link:
    """A channel on a connection of its own, and when it is lost: closed, or one of its consumers cancelled."""

    def __init__(self, channel: AbstractChannel) -> None:
        self.channel = channel
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
async def open_connection(access: BrokerAccess, name: str) -> AsyncIterator[AbstractConnection]:
    """A connection, closed at the end; what the client raises in the block is :func:`translated`.

    Nothing in the block waits longer for the broker than its heartbeat allows.

    Args:
        access: where and as whom.
        name: shown in the broker's list of connections.

    Raises:
        BrokerUnavailableError: it cannot be reached, or went away.
        BrokerRefusedError: it refuses the credentials or what was asked for.
    """
    connection = aiormq.Connection(access.amqp_url(name), context=access.ssl_context())
    try:
        with translated():
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    await connection.connect()
            except REFUSALS:
                raise
            except (OSError, TimeoutError) as error:
                raise BrokerUnavailableError(f"cannot connect to {access.host}:{access.port}: {error!r}") from error
            yield connection
    finally:
        with suppress(TimeoutError):
            await connection.close(timeout=CLOSE_SECONDS)


@asynccontextmanager
async def open_link(access: BrokerAccess, name: str, *, confirms: bool = False) -> AsyncIterator[Link]:
    """As :func:`open_connection`, with a channel; with ``confirms``, publishing waits until the broker took it."""
    async with open_connection(access, name) as connection:
        yield Link(await connection.channel(publisher_confirms=confirms))


async def stay_connected(
    access: BrokerAccess, name: str, serve: Callable[[Link], Awaitable[None]], *, confirms: bool = False
) -> NoReturn:
    """Connect, ``serve`` until that raises a :class:`MessagingError` or returns, and again, with growing pauses.

    Every other error of ``serve`` ends it.
    """
    clock = asyncio.get_running_loop().time
    pause = FIRST_PAUSE_SECONDS
    while True:
        started = clock()
        try:
            async with open_link(access, name, confirms=confirms) as link:
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


def _why(closing: asyncio.Future[object]) -> str:
    error = None if closing.cancelled() else closing.exception()
    return f"the connection to the broker is lost: {error!r}" if error else "the connection to the broker is closed"
