"""What OCCI frontends need at the broker: a user, a Secret with its password, and a virtual host for their clients."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping

from simyard.messaging.access import BrokerAccess
from simyard.messaging.admin import BrokerAdmin, QueueInfo
from simyard.messaging.credentials import derive_password
from simyard.messaging.errors import BrokerRefusedError
from simyard.messaging.occi_topology import (
    REQUEST_QUEUES_PREFIX,
    VHOST_KEY,
    clients_specs,
    clients_vhost,
    frontend_clients_user_spec,
    request_queue,
    request_queue_spec,
)
from simyard.messaging.topology import FRONTEND_USER, QueueKind, frontend_user_spec

log = logging.getLogger(__name__)


class OcciBroker:
    """Makes what frontends need. The clients' virtual host exists only where clients may speak AMQP at all.

    Attributes:
        vhost: the clients' virtual host; empty without one.
    """

    def __init__(self, access: BrokerAccess, admin: BrokerAdmin, *, clients: bool, endpoints: Iterable[str]) -> None:
        """``clients``: they may speak AMQP. ``endpoints``: URLs of frontends that the operator does not run itself."""
        self._access = access
        self._admin = admin
        self.vhost = clients_vhost(access.vhost) if clients else ""
        self._clients = BrokerAdmin(access.in_vhost(self.vhost)) if clients else None
        self._endpoints = tuple(endpoints)

    async def prepare(self, key: bytes) -> dict[str, str]:
        """Make what exists once, and give the content of the frontends' Secret.

        Args:
            key: the key from which passwords are derived.

        Raises:
            MessagingError: the broker did not do it.
        """
        password = derive_password(key, FRONTEND_USER)
        await self._admin.ensure_user(frontend_user_spec(), password)
        content = self._access.as_user(FRONTEND_USER, password).to_secret()
        if self._clients is not None:
            await self._clients.ensure_vhost()
            await self._clients.ensure_platform(clients_specs())
            await self._clients.ensure_user(frontend_clients_user_spec(), password)
            content[VHOST_KEY] = self.vhost
        for endpoint in self._endpoints:
            await self.ensure_queue(endpoint)
        return content

    async def ensure_queue(self, endpoint: str) -> None:
        """The queue that the frontends of an endpoint share exists when this returns; nothing without clients.

        One that an earlier version made stays as it is: its requests are not to be lost.

        Raises:
            MessagingError: the broker did not do it.
        """
        if self._clients is None:
            return
        kinds = [QueueKind.CLASSIC, QueueKind.QUORUM]
        if len(await self._admin.nodes()) > 1:
            kinds.reverse()
        for kind in kinds:
            # One of the other kind is of the time when the broker had one node, or more than one: a queue's type cannot
            # be changed.
            with contextlib.suppress(BrokerRefusedError):
                return await self._clients.ensure_queues([request_queue_spec(endpoint, kind)])
        name = request_queue(endpoint)
        if name not in await self.queues():
            raise BrokerRefusedError(f"the queue {name} cannot be made")
        log.warning("the queue %s is not as this version makes it: delete it to have it made anew", name)
        return None

    async def remove_queue(self, endpoint: str) -> None:
        """Delete the queue of an endpoint that is no more, with what is in it; an absent one is no error.

        Raises:
            MessagingError: the broker did not do it.
        """
        if self._clients is not None:
            await self._clients.delete_queues([request_queue(endpoint)])

    async def queues(self) -> Mapping[str, QueueInfo]:
        """The shared queues by name (:func:`~simyard.messaging.occi_topology.request_queue`), all in one call.

        Raises:
            MessagingError: the broker did not answer.
        """
        return {} if self._clients is None else await self._clients.few_queues(REQUEST_QUEUES_PREFIX)

    async def aclose(self) -> None:
        """Close the connections."""
        if self._clients is not None:
            await self._clients.aclose()
