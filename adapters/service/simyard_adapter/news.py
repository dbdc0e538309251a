"""Tells the control plane what changes: attributes, progress, use; coalesced, no faster than it can be read."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import Any, Callable

from simyard_adapter.attributes import AttributeStore
from simyard_adapter.context import Context
from simyard_adapter.link import Link
from simyard_adapter.transport import BrokerError, Session, encode
from simyard_adapter.wire import ACTIVE_SECONDS, EVENTS_EXCHANGE, Event

COALESCE_SECONDS = 0.05
RETRY_SECONDS = 1.0
PROGRESS_SECONDS = 0.25


class News:
    """The changes that are not told yet. ``attributes_changed`` and ``progress`` may be called from any thread."""

    def __init__(self, link: Link, attributes: AttributeStore, key: Callable[[Event], str], worker: str) -> None:
        self._link = link
        self._attributes = attributes
        self._key = key
        self._worker = worker
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._lock = threading.Lock()
        self._notified = False
        self._progress: dict[str, Context] = {}
        self._told: dict[str, float] = {}
        self._sequence = 0
        self._serving = 0
        self._active = False
        self._active_due = 0.0
        attributes.listen(self.attributes_changed)

    def attributes_changed(self) -> None:
        """An attribute has a new value."""
        self._notify()

    def progress(self, context: Context) -> None:
        """An invocation has new progress."""
        with self._lock:
            self._progress[context.invocation] = context
        self._notify()

    def forget(self, invocation: str) -> None:
        """An invocation has ended: its progress is of no interest any more."""
        with self._lock:
            self._progress.pop(invocation, None)
        self._told.pop(invocation, None)

    def serving(self, more: int) -> None:
        """So many more Sync requests run, or fewer: the control plane hears nothing else of them.

        Called in the event loop.
        """
        self._serving += more
        self._tell_active()

    def _tell_active(self) -> None:
        if not self._active:
            self._active = True
            self._loop.call_at(self._active_due, self._wake.set)

    def _notify(self) -> None:
        with self._lock:
            notified, self._notified = self._notified, True
        if not notified:
            with contextlib.suppress(RuntimeError):  # the loop is closed: a thread that nobody waits for
                self._loop.call_soon_threadsafe(self._wake.set)

    async def run(self) -> None:
        """Tell, for ever; values that were not told when a session broke are told by the next registration."""
        while True:
            await self._wake.wait()
            await asyncio.sleep(COALESCE_SECONDS)
            session = await self._link.up()
            self._wake.clear()
            try:
                await self.tell(session)
            except BrokerError:
                await asyncio.sleep(RETRY_SECONDS)
                self._wake.set()  # what was not told is still to be told

    async def tell(self, session: Session) -> None:
        """Tell what there is to tell now.

        Raises:
            BrokerError: the session broke.
        """
        with self._lock:
            self._notified = False
        changes = self._attributes.take_changes()
        if changes:
            self._sequence += 1
            body = {"sequence": self._sequence, "values": changes, "observedAt": time.time()}
            await self._publish(session, Event.ATTRIBUTES, body)
        now = self._loop.time()
        if self._active and now >= self._active_due:
            await self._publish(session, Event.ACTIVE, {})
            self._active, self._active_due = False, now + ACTIVE_SECONDS
            if self._serving:
                self._tell_active()
        with self._lock:
            contexts = list(self._progress.values())
        for context in contexts:
            due = self._told.get(context.invocation, 0.0) + PROGRESS_SECONDS
            if due > now:
                self._loop.call_at(due, self._wake.set)
                continue
            with self._lock:
                self._progress.pop(context.invocation, None)
            progress = context.take_progress()
            if progress is not None:
                self._told[context.invocation] = now
                body = {"invocation": context.invocation}
                if progress.percent is not None:
                    body["percent"] = progress.percent
                if progress.message:
                    body["message"] = progress.message
                await self._publish(session, Event.PROGRESS, body)

    async def _publish(self, session: Session, kind: Event, body: dict[str, Any]) -> None:
        data = encode({"worker": self._worker, **body})
        await session.publish(EVENTS_EXCHANGE, self._key(kind), kind.value, data, mandatory=False)
