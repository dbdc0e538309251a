"""What outlives a session: who owns the adapter's tasks, and how a message gets out although connections break."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Coroutine, Optional

from simyard_adapter.deadline import within
from simyard_adapter.transport import BrokerError, Session, UnroutableError

UNROUTABLE_RETRY_SECONDS = 5.0
_BROKEN_RETRY_SECONDS = 1.0


class Tasks:
    """The tasks of one adapter. ``failed`` gets the exception of the first that fails."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run it as a task of the adapter's."""
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.failed.done():
            self.failed.set_exception(error)

    async def close(self) -> None:
        """Cancel those that are left, and what they begin in the end, and wait for them."""
        while self._tasks:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if not self.failed.cancel() and not self.failed.cancelled():
            self.failed.exception()  # seen, if nobody did


class Link:
    """The present session, if there is one."""

    def __init__(self) -> None:
        self.session: Optional[Session] = None
        self._up = asyncio.Event()
        self._attached = asyncio.Event()

    def attach(self, session: Session) -> None:
        """A session is open."""
        self.session = session
        self._up.set()
        self._attached.set()
        self._attached = asyncio.Event()

    def detach(self, session: Session) -> None:
        """Forget a session that has ended, unless another one is attached already."""
        if self.session is session:
            self.session = None
            self._up.clear()

    async def replaced(self, session: Session) -> None:
        """Return when another session than this is attached."""
        while self.session is session:
            await self._attached.wait()

    async def up(self) -> Session:
        """The session, once there is one."""
        while self.session is None:
            await self._up.wait()
        return self.session

    async def publish(
        self,
        exchange: str,
        routing_key: str,
        kind: str,
        body: bytes,
        *,
        persistent: bool = False,
        correlation_id: Optional[str] = None,
    ) -> None:
        """Publish a mandatory message, again on each new session until the broker has confirmed it.

        Raises:
            UnroutableError: no queue takes it.
        """
        while True:
            session = await self.up()
            try:
                await session.publish(
                    exchange, routing_key, kind, body, persistent=persistent, correlation_id=correlation_id
                )
                return
            except BrokerError:
                with contextlib.suppress(asyncio.TimeoutError):
                    await within(_BROKEN_RETRY_SECONDS, session.closed.wait())

    async def see_queue(self, name: str) -> None:
        """Return when the broker has said that a queue exists."""
        while True:
            session = await self.up()
            try:
                await session.check_queue(name)
                return
            except BrokerError:
                with contextlib.suppress(asyncio.TimeoutError):
                    await within(_BROKEN_RETRY_SECONDS, session.closed.wait())

    async def publish_surely(self, exchange: str, routing_key: str, kind: str, body: bytes) -> None:
        """Publish a persistent message that must not be lost: where no queue takes it, try until one does."""
        while True:
            try:
                await self.publish(exchange, routing_key, kind, body, persistent=True)
                return
            except UnroutableError:
                await asyncio.sleep(UNROUTABLE_RETRY_SECONDS)
