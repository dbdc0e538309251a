# SPDX-License-Identifier: Apache-2.0
"""The frontend's part in the virtual host of AMQP clients.

``server.py`` uses this class as follows::

    services = ServiceAdapters() if settings.cloud4e else None  # also for the backend: actions and pulls of amqplinks
    amqp = AmqpTransport(endpoint, handlers.handle, authenticator.identify_token, services)
    health.checks.append(lambda: amqp.health_check)
    amqp.use_access(build_clients_access(access, secret["data"]))  # whenever the Secret changes
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

from simyard.frontend.amqp.cloud4e import ServiceAdapters
from simyard.frontend.amqp.consumer import AmqpServer, Handle, Identify
from simyard.frontend.amqp.registration import accept_registrations
from simyard.frontend.handlers import REQUEST_SECONDS
from simyard.messaging.access import BrokerAccess
from simyard.messaging.occi_topology import VHOST_KEY
from simyard.serving.checks import HealthCheck

FINISH_SECONDS = REQUEST_SECONDS + 5


class AmqpTransport:
    """The AMQP side of a frontend: the server of the endpoint's queue, and the foreign service adapters.

    It connects again whenever the credentials change.
    """

    def __init__(self, endpoint: str, handle: Handle, identify: Identify, services: ServiceAdapters | None) -> None:
        """Create the transport.

        ``endpoint`` is the URL from which the name of the queue follows. ``services`` is the connection to foreign
        service adapters; None if the frontend does not serve them.
        """
        self._services = services
        self._server = AmqpServer(endpoint, accept_registrations(handle) if services is not None else handle, identify)
        self._access: BrokerAccess | None = None
        self._changed = asyncio.Event()

    @property
    def health_check(self) -> HealthCheck:
        """The state of the connection, for ``/readyz``.

        It is also good if the installation offers no AMQP to clients.
        """
        if self._access is None:
            return HealthCheck("amqp", True, "off: the broker has no virtual host for clients")
        connected = self._server.connected
        return HealthCheck("amqp", connected, f"serves {self._server.queue}" if connected else "not connected")

    def use_access(self, access: BrokerAccess | None) -> None:
        """Use this access to the clients' virtual host from now on; None if there is no such virtual host."""
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
                if tasks:  # requests of the old connection finish on it, as long as the broker permits
                    with suppress(TimeoutError):
                        async with asyncio.timeout(FINISH_SECONDS):
                            await self._server.pause()
                for task in tasks:
                    task.cancel()

    async def drain(self) -> None:
        """Stop accepting requests, and return when the accepted requests are answered."""
        await self._server.drain()


def build_clients_access(access: BrokerAccess, secret: Mapping[str, str]) -> BrokerAccess | None:
    """Return the access to the clients' virtual host; None if this virtual host does not exist.

    Args:
        access: the access to the installation's own virtual host.
        secret: ``data`` of the frontends' Secret, in base64.
    """
    try:
        vhost = base64.b64decode(secret.get(VHOST_KEY, ""), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    return access.enter_vhost(vhost) if vhost else None
