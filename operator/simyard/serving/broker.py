# SPDX-License-Identifier: Apache-2.0
"""Connects the apiserver and the frontends to the broker.

If only the password changes, the client uses the new password for its next connection. The broker keeps existing
connections open, so no request fails. After any other change of the access, the client closes all connections and opens
new ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

from simyard.guest.messages import Reply
from simyard.messaging.access import AccessSource, BrokerAccess
from simyard.messaging.errors import BrokerUnavailableError
from simyard.messaging.events import AttributeEvents, EventHandler
from simyard.messaging.requests import Requester
from simyard.serving.directory import Destination
from simyard_adapter.declarations import Json
from simyard_adapter.wire import Request

NAME_PREFIX = "apiserver"


class BrokerClient:
    """A client of the broker that sends requests to workers and receives changes of their attributes."""

    def __init__(
        self, on_events: EventHandler, beside: Sequence[Callable[[AccessSource], Coroutine[None, None, NoReturn]]] = ()
    ) -> None:
        """Create the client without connections. ``beside`` are further tasks that use the same credentials."""
        self._on_events = on_events
        self._beside = beside
        self._access: BrokerAccess | None = None
        self._changed = asyncio.Event()
        self._requester: Requester | None = None

    @property
    def connected(self) -> bool:
        """True while requests can be sent."""
        return self._requester is not None and self._requester.connected

    @property
    def blocked(self) -> str:
        """The reason why the broker accepts no messages; "" while it accepts them."""
        return self._requester.blocked if self._requester is not None else ""

    def set_access(self, access: BrokerAccess) -> None:
        """Use this access from now on. Requests in progress fail, unless only the password has changed."""
        before, self._access = self._access, access
        if before is None or replace(before, password=access.password) != access:
            self._changed.set()

    def _present(self) -> BrokerAccess:
        assert self._access is not None, "connections are made once there is an access"
        return self._access

    async def run(self) -> NoReturn:
        """Keep the connections until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            requester = self._requester = Requester(self._present, NAME_PREFIX)
            events = AttributeEvents(self._present, self._on_events)
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(requester.run()), group.create_task(events.run())]
                tasks += [group.create_task(run(self._present)) for run in self._beside]
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
        """Send a request and return the reply. Raises the same errors as ``Requester.request``."""
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
