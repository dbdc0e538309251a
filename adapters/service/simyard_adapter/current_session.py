# SPDX-License-Identifier: Apache-2.0
"""The parts of an adapter that outlive a session: its tasks, and the delivery of messages across sessions.

A connection can break at any time, and the adapter then opens a new session. A message that must arrive therefore
belongs to no session: it is published on each session in turn until the broker confirms it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Coroutine, Optional

from simyard_adapter.deadline import within
from simyard_adapter.transport import BrokerError, Session, UnroutableError

UNROUTABLE_RETRY_SECONDS = 5.0
_BROKEN_RETRY_SECONDS = 1.0


class Tasks:
    """The tasks of one adapter. ``failed`` receives the exception of the first task that fails."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run a coroutine as a task of the adapter."""
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
        """Cancel all tasks, including those that they start while they end, and wait for them."""
        while self._tasks:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if not self.failed.cancel() and not self.failed.cancelled():
            self.failed.exception()  # Mark the exception as retrieved, so that asyncio does not log it.


class CurrentSession:
    """The session of an adapter that is open at the moment, if any."""

    def __init__(self) -> None:
        self.session: Optional[Session] = None
        self._up = asyncio.Event()
        self._attached = asyncio.Event()

    def attach(self, session: Session) -> None:
        """Make a session the present one."""
        self.session = session
        self._up.set()
        self._attached.set()
        self._attached = asyncio.Event()

    def detach(self, session: Session) -> None:
        """Remove a session that has ended, unless another session has replaced it."""
        if self.session is session:
            self.session = None
            self._up.clear()

    async def wait_until_replaced(self, session: Session) -> None:
        """Return when another session has replaced this one."""
        while self.session is session:
            await self._attached.wait()

    async def wait_for_session(self) -> Session:
        """Wait for a session and return it."""
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
        """Publish a mandatory message; repeat it on each new session until the broker has confirmed it.

        Raises:
            UnroutableError: No queue accepts the message.
        """
        while True:
            session = await self.wait_for_session()
            try:
                await session.publish(
                    exchange, routing_key, kind, body, persistent=persistent, correlation_id=correlation_id
                )
                return
            except BrokerError:
                with contextlib.suppress(asyncio.TimeoutError):
                    await within(_BROKEN_RETRY_SECONDS, session.closed.wait())

    async def wait_for_queue(self, name: str) -> None:
        """Return when the broker has confirmed that a queue exists."""
        while True:
            session = await self.wait_for_session()
            try:
                await session.check_queue(name)
                return
            except BrokerError:
                with contextlib.suppress(asyncio.TimeoutError):
                    await within(_BROKEN_RETRY_SECONDS, session.closed.wait())

    async def publish_until_routed(self, exchange: str, routing_key: str, kind: str, body: bytes) -> None:
        """Publish a persistent message that must not be lost; retry while no queue accepts it."""
        while True:
            try:
                await self.publish(exchange, routing_key, kind, body, persistent=True)
                return
            except UnroutableError:
                await asyncio.sleep(UNROUTABLE_RETRY_SECONDS)
