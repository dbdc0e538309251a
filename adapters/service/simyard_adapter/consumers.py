# SPDX-License-Identifier: Apache-2.0
"""The two consumers of an adapter: one for the worker's own queue, one for the pool's queue.

The worker's own queue is always consumed. The pool's queue is consumed once the operator has asked for it, and only
while the worker is free. Each consumer has a channel of its own: RabbitMQ stops working on a channel whose quorum queue
has no leader, and this must not block the worker's own queue.

A quorum queue compares a consumer that starts with all other consumers of the queue, and writes each start and stop to
disk. With thousands of workers, a stop and a start for each action would cost the broker more than the action itself.
A worker therefore leaves the pool's queue only when it has been busy for :data:`MIN_BUSY_SECONDS`. It then returns a
request of the pool that arrived meanwhile, so that another worker takes it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Callable, Coroutine, Optional, Protocol

from aiormq.abc import DeliveredMessage

from simyard_adapter.backoff import draw_delay
from simyard_adapter.deadline import within
from simyard_adapter.logs import WorkerLog
from simyard_adapter.transport import BrokerError, Connections, Session, await_guarded
from simyard_adapter.wire import name_pool_queue

WORKER_PREFETCH = 16
POOL_PREFETCH = 1
MAX_BACKOFF_SECONDS = 15.0
MAX_POOL_BACKOFF_SECONDS = 60.0
MIN_BUSY_SECONDS = 0.05
_WATCH_SECONDS = 10.0

Receive = Callable[[Session, DeliveredMessage], None]


class Consumer:
    """A consumer of one queue of a session; it can stop and start again."""

    def __init__(
        self,
        session: Session,
        queue: str,
        prefetch: int,
        receive: Receive,
        watch_seconds: float = _WATCH_SECONDS,
    ) -> None:
        self._watch_seconds = watch_seconds
        self._session = session
        self._name = queue
        self._prefetch = prefetch
        self._receive = receive
        self._tag: Optional[str] = None
        self._limited = False
        self._changing = asyncio.Lock()

    @property
    def active(self) -> bool:
        """True while the queue is consumed."""
        return self._tag is not None

    async def adjust(self, wanted: Callable[[], bool]) -> None:
        """Start or stop consuming until the state is as ``wanted`` says.

        Raises:
            BrokerError: The session broke; one possible reason is that the queue does not exist.
        """
        if self.active == wanted():
            return
        async with self._changing:
            while self.active != wanted():
                if self._tag is None:
                    self._tag = await await_guarded(self._consume(), f"starting the consumer of {self._name}")
                else:
                    cancelling = self._session.channel.basic_cancel(self._tag)
                    await await_guarded(cancelling, f"stopping the consumer of {self._name}")
                    self._tag = None

    async def _consume(self) -> Optional[str]:
        channel = self._session.channel
        if not self._limited:
            await channel.basic_qos(prefetch_count=self._prefetch)
            self._limited = True
        return (await channel.basic_consume(self._name, self._on_message)).consumer_tag

    async def watch(self) -> None:
        """Return when the session has closed, or when the broker has cancelled the consumer.

        The broker cancels a consumer when the queue is deleted or its node fails.
        """
        if self._session.hears_cancels:
            await self._session.closed.wait()
        while not self._session.closed.is_set():
            async with self._changing:
                channel: Any = self._session.channel
                if self._tag is not None and self._tag not in channel.consumers:
                    return
            with contextlib.suppress(asyncio.TimeoutError):
                await within(self._watch_seconds, self._session.closed.wait())

    async def _on_message(self, message: DeliveredMessage) -> None:
        # Tasks of the AMQP client end with the channel, so the message is passed on at once.
        self._receive(self._session, message)


class PoolWork(Protocol):
    """The work of a worker, as far as the pool's queue is concerned."""

    def may_take_from_pool(self, session: Session, *, consuming: bool) -> bool:
        """Return True if the worker may receive requests from the pool's queue, which it is ``consuming`` or not."""

    def return_to_pool(self) -> None:
        """Return the requests from the pool's queue that wait behind other work."""

    def drop_session(self, session: Session) -> None:
        """Drop the waiting requests of a session that has ended."""


class PoolConsumer:
    """The consumer of the pool's queue: it consumes while the worker is free, and retries after failures."""

    def __init__(
        self,
        connections: Connections,
        user: str,
        receive: Receive,
        work: PoolWork,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        log: WorkerLog,
    ) -> None:
        """Create a consumer of the pool's queue; :meth:`run` starts it.

        Args:
            connections: The connections to the broker.
            user: The identity of the broker user.
            receive: Called with each message and its session.
            work: The work that decides whether the worker is free.
            spawn: Starts a task of the adapter.
            log: The worker's log.
        """
        self._connections = connections
        self._queue = name_pool_queue(user)
        self._receive = receive
        self._work = work
        self._spawn = spawn
        self._log = log
        self._session: Optional[Session] = None
        self._consumer: Optional[Consumer] = None
        self._retires = False
        self._stopping: Optional[asyncio.TimerHandle] = None

    async def run(self) -> None:
        """Consume the queue until the task is cancelled."""
        failures = 0
        self._retires = False
        while True:
            try:
                async with self._connections.open_channel() as channel:
                    self._session = session = Session(channel)
                    self._consumer = Consumer(session, self._queue, POOL_PREFETCH, self._receive)
                    try:
                        await self.adjust()
                        failures = 0 if self._consumer.active else failures
                        await self._consumer.watch()
                    finally:
                        self._stay()
                        self._consumer = self._session = None
                        self._work.drop_session(session)
            except BrokerError as error:
                self._log.warning("the pool's queue cannot be consumed: %s", error)
            failures += 1
            await asyncio.sleep(draw_delay(failures, MAX_POOL_BACKOFF_SECONDS))

    async def retire(self) -> None:
        """Stop consuming, and return when all received requests are answered; the next :meth:`run` consumes again."""
        self._retires = True
        await self.adjust()
        if self._session is not None:
            await self._session.wait_until_acknowledged()

    def adjust_soon(self) -> None:
        """Have the consumer start at once, or stop when the worker has been busy for a while."""
        session, consumer = self._session, self._consumer
        if session is None or consumer is None:
            return
        wanted = self._wants(session, consumer)
        if wanted:
            self._stay()
        if wanted and not consumer.active:
            self._spawn(self.adjust())
        elif not wanted and consumer.active and self._stopping is None:
            self._stopping = asyncio.get_running_loop().call_later(MIN_BUSY_SECONDS, self._leave)

    def _leave(self) -> None:
        self._stopping = None
        self._spawn(self.adjust())

    def _stay(self) -> None:
        if self._stopping is not None:
            self._stopping.cancel()
            self._stopping = None

    def _wants(self, session: Session, consumer: Consumer) -> bool:
        return not self._retires and self._work.may_take_from_pool(session, consuming=consumer.active)

    async def adjust(self) -> None:
        """Start or stop consuming now, as the work asks for."""
        session, consumer = self._session, self._consumer
        if session is None or consumer is None or session.closed.is_set():
            return
        try:
            await consumer.adjust(lambda: self._wants(session, consumer))
            if not consumer.active:
                self._work.return_to_pool()
        except BrokerError as error:
            self._log.warning("the pool's queue cannot be consumed: %s", error)
            session.closed.set()
