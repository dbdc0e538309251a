# SPDX-License-Identifier: Apache-2.0
"""Sends updates to the control plane: changed attributes, progress, and the use of the worker.

Changes that follow each other quickly are combined, so that the updates never arrive faster than they can be read.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import Any, Callable

from simyard_adapter.attributes import AttributeStore
from simyard_adapter.context import Context
from simyard_adapter.current_session import CurrentSession
from simyard_adapter.transport import BrokerError, Session, encode
from simyard_adapter.wire import ACTIVE_SECONDS, EVENTS_EXCHANGE, Event

COALESCE_SECONDS = 0.05
RETRY_SECONDS = 1.0
PROGRESS_SECONDS = 0.25


class Updates:
    """The updates that are not sent yet. ``attributes_changed`` and ``progress`` may be called from any thread."""

    def __init__(
        self,
        current: CurrentSession,
        attributes: AttributeStore,
        key: Callable[[Event], str],
        worker: str,
        retry_seconds: float = RETRY_SECONDS,
        active_seconds: float = ACTIVE_SECONDS,
    ) -> None:
        self._retry_seconds = retry_seconds
        self._active_seconds = active_seconds
        self._current = current
        self._attributes = attributes
        self._key = key
        self._worker = worker
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._lock = threading.Lock()
        self._notified = False
        self._progress: dict[str, Context] = {}
        self._sent_at: dict[str, float] = {}
        self._sequence = 0
        self._serving = 0
        self._active = False
        self._active_due = 0.0
        attributes.add_listener(self.record_attributes)

    def record_attributes(self) -> None:
        """Record that an attribute has a new value."""
        self._notify()

    def record_progress(self, context: Context) -> None:
        """Record that an invocation has new progress."""
        with self._lock:
            self._progress[context.invocation] = context
        self._notify()

    def forget(self, invocation: str) -> None:
        """Drop the progress of an invocation that has ended."""
        with self._lock:
            self._progress.pop(invocation, None)
        self._sent_at.pop(invocation, None)

    def count_serving(self, more: int) -> None:
        """Change the number of running Sync requests by ``more``; call this in the event loop.

        The control plane does not see Sync requests, so the worker reports that it is active.
        """
        self._serving += more
        self._plan_active()

    def _plan_active(self) -> None:
        if not self._active:
            self._active = True
            self._loop.call_at(self._active_due, self._wake.set)

    def _notify(self) -> None:
        with self._lock:
            notified, self._notified = self._notified, True
        if not notified:
            with contextlib.suppress(RuntimeError):  # The loop is closed; the thread outlived the adapter.
                self._loop.call_soon_threadsafe(self._wake.set)

    async def run(self) -> None:
        """Send updates until cancelled; values that a broken session did not send are part of the next registration."""
        while True:
            await self._wake.wait()
            await asyncio.sleep(COALESCE_SECONDS)
            session = await self._current.wait_for_session()
            self._wake.clear()
            try:
                await self.send(session)
            except BrokerError:
                await asyncio.sleep(self._retry_seconds)
                self._wake.set()  # Some updates are not sent yet.

    async def send(self, session: Session) -> None:
        """Send the updates that are due now.

        Raises:
            BrokerError: The session broke.
        """
        with self._lock:
            self._notified = False
        changes = self._attributes.collect_changes()
        if changes:
            self._sequence += 1
            body = {"sequence": self._sequence, "values": changes, "observedAt": time.time()}
            await self._publish(session, Event.ATTRIBUTES, body)
        now = self._loop.time()
        if self._active and now >= self._active_due:
            await self._publish(session, Event.ACTIVE, {})
            self._active, self._active_due = False, now + self._active_seconds
            if self._serving:
                self._plan_active()
        with self._lock:
            contexts = list(self._progress.values())
        for context in contexts:
            due = self._sent_at.get(context.invocation, 0.0) + PROGRESS_SECONDS
            if due > now:
                self._loop.call_at(due, self._wake.set)
                continue
            with self._lock:
                self._progress.pop(context.invocation, None)
            progress = context.collect_progress()
            if progress is not None:
                self._sent_at[context.invocation] = now
                body = {"invocation": context.invocation}
                if progress.percent is not None:
                    body["percent"] = progress.percent
                if progress.message:
                    body["message"] = progress.message
                await self._publish(session, Event.PROGRESS, body)

    async def _publish(self, session: Session, kind: Event, body: dict[str, Any]) -> None:
        data = encode({"worker": self._worker, **body})
        await session.publish(EVENTS_EXCHANGE, self._key(kind), kind.value, data, mandatory=False)
