"""All that a frontend does in the virtual host of AMQP clients.

What ``server.py`` needs of it::

    services = ServiceAdapters() if settings.cloud4e else None  # also for the backend: actions and pulls of amqplinks
    amqp = AmqpTransport(endpoint, handlers.handle, authenticator.of_token, services)
    health.checks.append(lambda: amqp.finding)
    amqp.use(clients_access(access, secret["data"]))  # whenever the Secret changes
    group.create_task(amqp.run())
    ...
    await amqp.drain()  # while handlers and broker still serve
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Mapping
from contextlib import suppress
from typing import NoReturn

from simyard.apiserver.health import Finding
from simyard.frontend.amqp import AmqpServer, Handle, Identify
from simyard.frontend.cloud4e import ServiceAdapters
from simyard.frontend.handlers import REQUEST_SECONDS
from simyard.frontend.registration import registering
from simyard.messaging.access import BrokerAccess
from simyard.messaging.occi_topology import VHOST_KEY

FINISH_SECONDS = REQUEST_SECONDS + 5


class AmqpTransport:
    """Serves the endpoint's queue, and foreign service adapters; connects anew whenever the credentials change."""

    def __init__(self, endpoint: str, handle: Handle, identify: Identify, services: ServiceAdapters | None) -> None:
        """``endpoint``: the URL after which the queue is named. ``services``: the Cloud4E service side, if it is on."""
        self._services = services
        self._server = AmqpServer(endpoint, registering(handle) if services is not None else handle, identify)
        self._access: BrokerAccess | None = None
        self._changed = asyncio.Event()

    @property
    def finding(self) -> Finding:
        """Whether it does all that there is to do: nothing, where clients may not speak AMQP."""
        if self._access is None:
            return Finding("amqp", True, "off: the broker has no virtual host for clients")
        connected = self._server.connected
        return Finding("amqp", connected, f"serves {self._server.queue}" if connected else "not connected")

    def use(self, access: BrokerAccess | None) -> None:
        """Use this access to the clients' virtual host from now on; None: there is none."""
        if access != self._access:
            self._access = access
            self._changed.set()

    async def run(self) -> NoReturn:
        """Serve until cancelled."""
        while True:
            self._changed.clear()
            access = self._access
            async with asyncio.TaskGroup() as group:
                tasks: list[asyncio.Task[NoReturn]] = []
                if access is not None:
                    tasks.append(group.create_task(self._server.run(access)))
                    if self._services is not None:
                        tasks.append(group.create_task(self._services.run(access)))
                await self._changed.wait()
                if tasks:  # what was begun with the old access ends with it, as long as the broker lets it
                    with suppress(TimeoutError):
                        async with asyncio.timeout(FINISH_SECONDS):
                            await self._server.pause()
                for task in tasks:
                    task.cancel()

    async def drain(self) -> None:
        """Take no new request, and return when those that were taken are answered."""
        await self._server.drain()


def clients_access(access: BrokerAccess, secret: Mapping[str, str]) -> BrokerAccess | None:
    """The access to the clients' virtual host; None where there is no such host.

    Args:
        access: the one to the installation's own.
        secret: ``data`` of the frontends' Secret, base64.
    """
    try:
        vhost = base64.b64decode(secret.get(VHOST_KEY, ""), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    return access.in_vhost(vhost) if vhost else None
