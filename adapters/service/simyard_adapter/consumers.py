"""The two consumers of a session: the worker's own queue always, the pool's queue only while the worker is free."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Awaitable, Callable, Optional

from aio_pika.abc import AbstractIncomingMessage, AbstractQueue

from simyard_adapter.transport import BrokerError, Session, guarded

WORKER_PREFETCH = 16
POOL_PREFETCH = 1

Handler = Callable[[AbstractIncomingMessage, bool], None]


class Consumers:
    """``take`` gets each message, and whether it came from the pool's queue.

    ``may_take_from_pool`` says whether the pool's consumer should be there, given whether it is.
    """

    def __init__(
        self,
        session: Session,
        worker_queue: str,
        pool_queue: str,
        take: Handler,
        may_take_from_pool: Callable[[bool], bool],
    ) -> None:
        """``pool_queue`` is empty for a worker that stands alone."""
        self._session = session
        self._worker_queue = worker_queue
        self._pool_queue = pool_queue
        self._take = take
        self._may_take_from_pool = may_take_from_pool
        self._worker_tag: Optional[str] = None
        self._pool_tag: Optional[str] = None
        self._stopped = False
        self._changing = asyncio.Lock()

    async def start(self) -> None:
        """Consume.

        Raises:
            BrokerError: the session broke; the reason may be that a queue does not exist.
        """
        async with self._changing:
            self._worker_tag = await self._consume(self._worker_queue, WORKER_PREFETCH, self._on_worker)
        await self.adjust()

    async def adjust(self) -> None:
        """Start or stop the pool's consumer, as the present state asks for; does nothing if the session broke."""
        if not self._wrong() or self._session.closed.is_set():
            return
        with contextlib.suppress(BrokerError):
            async with self._changing:
                while self._wrong():
                    if self._pool_tag is None:
                        self._pool_tag = await self._consume(self._pool_queue, POOL_PREFETCH, self._on_pool)
                    else:
                        await self._cancel(self._pool_queue, self._pool_tag)
                        self._pool_tag = None

    def _wrong(self) -> bool:
        consuming = self._pool_tag is not None
        wanted = bool(self._pool_queue) and not self._stopped and self._may_take_from_pool(consuming)
        return consuming != wanted

    async def stop(self) -> None:
        """Take nothing any more."""
        self._stopped = True
        await self.adjust()
        if self._worker_tag is not None:
            with contextlib.suppress(BrokerError):
                await self._cancel(self._worker_queue, self._worker_tag)

    async def intact(self) -> bool:
        """The broker has not cancelled a consumer (it does when its queue is deleted or its node goes)."""
        async with self._changing:
            underlay: Any = await self._session.channel.get_underlay_channel()
            return all(tag in underlay.consumers for tag in (self._worker_tag, self._pool_tag) if tag is not None)

    async def _queue(self, name: str) -> AbstractQueue:
        return await self._session.channel.get_queue(name, ensure=False)

    async def _consume(
        self, queue: str, prefetch: int, callback: Callable[[AbstractIncomingMessage], Awaitable[None]]
    ) -> str:
        # The prefetch counts for the consumers that are made after it (RabbitMQ's reading of basic.qos).
        await guarded(self._session.channel.set_qos(prefetch_count=prefetch), "setting the prefetch")
        return await guarded((await self._queue(queue)).consume(callback), f"consuming {queue}")

    async def _cancel(self, queue: str, tag: str) -> None:
        await guarded((await self._queue(queue)).cancel(tag), f"ceasing to consume {queue}")

    # The library's tasks end with the channel: what comes is handed over at once.
    async def _on_worker(self, message: AbstractIncomingMessage) -> None:
        self._take(message, False)

    async def _on_pool(self, message: AbstractIncomingMessage) -> None:
        self._take(message, True)
