# SPDX-License-Identifier: Apache-2.0
"""The journal's way to the control plane: begins that must be known, and results that must arrive."""

from __future__ import annotations

from typing import Any, Callable, Mapping

from simyard_adapter.bootstrap import Bootstrap
from simyard_adapter.current_session import CurrentSession, Tasks
from simyard_adapter.journal import Journal
from simyard_adapter.transport import encode
from simyard_adapter.wire import EVENTS_EXCHANGE, Event, make_event_key, name_worker_queue


class Results:
    """The results of accepted invocations and chunks.

    Attributes:
        unsent: The ids whose result the broker has not confirmed yet.
    """

    def __init__(
        self, bootstrap: Bootstrap, journal: Journal, current: CurrentSession, tasks: Tasks, on_sent: Callable[[], None]
    ) -> None:
        """Create an empty set; ``on_sent`` is called after each confirmed result."""
        self._bootstrap = bootstrap
        self._journal = journal
        self._current = current
        self._tasks = tasks
        self._on_sent = on_sent
        self.unsent: set[str] = set()

    def encode(self, invocation: str, body: Mapping[str, Any]) -> bytes:
        """Return the body of a result event."""
        return encode({"worker": self._bootstrap.worker, "invocation": invocation, **body})

    async def finish(self, invocation: str, body: Mapping[str, Any]) -> None:
        """Store a result in the journal, and start to send it."""
        result = self.encode(invocation, body)
        await self._journal.finish(invocation, result)
        self.send_soon(invocation, result)

    def send_soon(self, invocation: str, result: bytes) -> None:
        """Start to send a result that the journal has."""
        self.unsent.add(invocation)
        self._tasks.spawn(self._send(invocation, result))

    async def _send(self, invocation: str, result: bytes) -> None:
        await self.publish(result)
        await self._journal.confirm(invocation)
        self.unsent.discard(invocation)
        self._on_sent()

    async def publish(self, result: bytes) -> None:
        """Publish a result until the broker has confirmed it."""
        await self._publish(Event.RESULT, result)

    async def announce_begin(self, invocation: str) -> None:
        """Tell the control plane that an invocation begins that must not run twice; return when it may begin.

        The operator can then assign the invocations that this worker never began to another worker. A worker whose
        queue is deleted begins nothing further: this method does not return then.
        """
        await self._publish(Event.BEGUN, self.encode(invocation, {}))
        await self._current.wait_for_queue(
            name_worker_queue(self._bootstrap.broker.identity, self._bootstrap.worker_uid)
        )

    async def _publish(self, kind: Event, body: bytes) -> None:
        key = make_event_key(kind, self._bootstrap.broker.identity, self._bootstrap.worker_uid)
        await self._current.publish_until_routed(EVENTS_EXCHANGE, key, kind.value, body)
