"""The two consumers of an adapter: the worker's own queue always, the pool's queue once told to, while free.

Each has a channel of its own: RabbitMQ stops working on a channel whose quorum queue has no leader, and the worker's
own queue must not suffer from that.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Callable, Optional

from aiormq.abc import DeliveredMessage

from simyard_adapter.backoff import backoff_seconds
from simyard_adapter.deadline import within
from simyard_adapter.logs import WorkerLog
from simyard_adapter.transport import BrokerError, Connections, Session, guarded
from simyard_adapter.wire import pool_queue

WORKER_PREFETCH = 16
POOL_PREFETCH = 1
BACKOFF_LAST_SECONDS = 15.0
POOL_BACKOFF_LAST_SECONDS = 60.0
_WATCH_SECONDS = 10.0

Take = Callable[[Session, DeliveredMessage], None]


class Consumer:
    """Consumes one queue of a session, once or now and then."""

    def __init__(self, session: Session, queue: str, prefetch: int, take: Take) -> None:
        self._session = session
        self._name = queue
        self._prefetch = prefetch
        self._take = take
        self._tag: Optional[str] = None
        self._limited = False
        self._changing = asyncio.Lock()

    @property
    def active(self) -> bool:
        """It consumes."""
        return self._tag is not None

    async def adjust(self, wanted: Callable[[], bool]) -> None:
        """Start or stop, until it is as ``wanted`` says.

        Raises:
            BrokerError: the session broke; the reason may be that the queue does not exist.
        """
        if self.active == wanted():
            return
        async with self._changing:
            while self.active != wanted():
                if self._tag is None:
                    self._tag = await guarded(self._consume(), f"consuming {self._name}")
                else:
                    cancelling = self._session.channel.basic_cancel(self._tag)
                    await guarded(cancelling, f"ceasing to consume {self._name}")
                    self._tag = None

    async def _consume(self) -> Optional[str]:
        channel = self._session.channel
        if not self._limited:
            await channel.basic_qos(prefetch_count=self._prefetch)
            self._limited = True
        return (await channel.basic_consume(self._name, self._on_message)).consumer_tag

    async def watch(self) -> None:
        """Return when the session has closed, or the broker has cancelled the consumer.

        It does that when the queue is deleted or its node goes.
        """
        if self._session.hears_cancels:
            await self._session.closed.wait()
        while not self._session.closed.is_set():
            async with self._changing:
                channel: Any = self._session.channel
                if self._tag is not None and self._tag not in channel.consumers:
                    return
            with contextlib.suppress(asyncio.TimeoutError):
                await within(_WATCH_SECONDS, self._session.closed.wait())

    async def _on_message(self, message: DeliveredMessage) -> None:
        # The library's tasks end with the channel: what comes is handed over at once.
        self._take(self._session, message)


class PoolConsumer:
    """Consumes the pool's queue while the worker may take from it, and tries again if it cannot."""

    def __init__(
        self,
        connections: Connections,
        user: str,
        take: Take,
        may_take: Callable[[Session, bool], bool],
        on_lost: Callable[[Session], None],
        log: WorkerLog,
    ) -> None:
        """``may_take`` is asked with the session, and whether it consumes now."""
        self._connections = connections
        self._queue = pool_queue(user)
        self._take = take
        self._may_take = may_take
        self._on_lost = on_lost
        self._log = log
        self._session: Optional[Session] = None
        self._consumer: Optional[Consumer] = None
        self._retires = False

    async def run(self) -> None:
        """Consume, for ever."""
        failures = 0
        self._retires = False
        while True:
            try:
                async with self._connections.channel() as channel:
                    self._session = session = Session(channel)
                    self._consumer = Consumer(session, self._queue, POOL_PREFETCH, self._take)
                    try:
                        await self.adjust()
                        failures = 0 if self._consumer.active else failures
                        await self._consumer.watch()
                    finally:
                        self._consumer = self._session = None
                        self._on_lost(session)
            except BrokerError as error:
                self._log.warning("the pool's queue: %s", error)
            failures += 1
            await asyncio.sleep(backoff_seconds(failures, POOL_BACKOFF_LAST_SECONDS))

    async def retire(self) -> None:
        """Consume no more, and return when what was taken is answered; the next :meth:`run` consumes again."""
        self._retires = True
        await self.adjust()
        if self._session is not None:
            await self._session.until_settled()

    async def adjust(self) -> None:
        """Start or stop consuming, as the present state asks for."""
        session, consumer = self._session, self._consumer
        if session is None or consumer is None or session.closed.is_set():
            return
        try:
            await consumer.adjust(lambda: not self._retires and self._may_take(session, consumer.active))
        except BrokerError as error:
            self._log.warning("the pool's queue: %s", error)
            session.closed.set()
