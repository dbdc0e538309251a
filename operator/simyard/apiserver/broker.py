"""The apiserver's connections to the broker: made anew whenever its credentials change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import NoReturn

from simyard.apiserver.directory import Destination
from simyard.guest.messages import Reply
from simyard.messaging.access import BrokerAccess
from simyard.messaging.errors import BrokerUnavailableError
from simyard.messaging.events import AttributeEvents, EventHandler
from simyard.messaging.requests import Requester
from simyard_adapter.declarations import Json
from simyard_adapter.wire import Request

NAME_PREFIX = "apiserver"


class BrokerLink:
    """Sends requests to workers and receives the changes of their attributes."""

    def __init__(
        self, on_events: EventHandler, beside: Sequence[Callable[[BrokerAccess], Coroutine[None, None, NoReturn]]] = ()
    ) -> None:
        """``beside``: what else runs with the same credentials."""
        self._on_events = on_events
        self._beside = beside
        self._access: BrokerAccess | None = None
        self._changed = asyncio.Event()
        self._requester: Requester | None = None

    @property
    def connected(self) -> bool:
        """Whether a request can be sent now."""
        return self._requester is not None and self._requester.connected

    @property
    def blocked(self) -> str:
        """Why the broker takes no messages; empty while it takes them."""
        return self._requester.blocked if self._requester is not None else ""

    def use(self, access: BrokerAccess) -> None:
        """Use these credentials from now on; what is under way on other ones fails."""
        if access != self._access:
            self._access = access
            self._changed.set()

    async def run(self) -> NoReturn:
        """Keep the connections."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            assert self._access is not None
            requester = self._requester = Requester(self._access, NAME_PREFIX)
            events = AttributeEvents(self._access, self._on_events)
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(requester.run()), group.create_task(events.run())]
                tasks += [group.create_task(run(self._access)) for run in self._beside]
                await self._changed.wait()
                for task in tasks:
                    task.cancel()

    async def request(
        self,
        destination: Destination,
        kind: Request,
        body: Mapping[str, Json],
        *,
        timeout_seconds: float,
        message_id: str | None = None,
    ) -> Reply:
        """Send a request and return the reply; errors are those of :meth:`Requester.request`."""
        if self._requester is None:
            raise BrokerUnavailableError("there are no credentials for the message broker yet")
        return await self._requester.request(
            destination.queue,
            destination.user,
            kind,
            body,
            timeout_seconds=timeout_seconds,
            message_id=message_id,
        )
