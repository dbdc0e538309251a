# SPDX-License-Identifier: Apache-2.0
"""Creates the broker user of OCCI frontends, the content of their Secret, and the virtual host of OCCI clients."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

from simyard.messaging.access import BrokerAccess
from simyard.messaging.admin import BrokerAdmin, QueueInfo
from simyard.messaging.credentials import derive_password
from simyard.messaging.errors import BrokerRefusedError
from simyard.messaging.occi_topology import (
    REQUEST_QUEUES_PREFIX,
    VHOST_KEY,
    build_clients_specs,
    build_frontend_clients_user_spec,
    build_request_queue_spec,
    name_clients_vhost,
    name_request_queue,
)
from simyard.messaging.topology import FRONTEND_USER, QueueKind, build_frontend_user_spec

log = logging.getLogger(__name__)


class OcciBroker:
    """The OCCI part of the broker: the frontends' user and, if clients may use AMQP, the clients' virtual host.

    Attributes:
        vhost: the name of the virtual host; empty if there is none.
    """

    def __init__(
        self,
        access: BrokerAccess,
        admin: BrokerAdmin,
        *,
        clients: bool,
        endpoints: Iterable[str],
        user: str = FRONTEND_USER,
    ) -> None:
        """Create the object; :meth:`prepare` then creates the user and the virtual host.

        ``clients`` says whether clients may speak AMQP. ``endpoints`` are URLs of frontends that run outside of this
        installation. ``user`` is the name of the frontends' user.
        """
        self._user = user
        self._access = access
        self._admin = admin
        self.vhost = name_clients_vhost(access.vhost) if clients else ""
        self._clients = BrokerAdmin(access.enter_vhost(self.vhost)) if clients else None
        self._endpoints = tuple(endpoints)

    async def prepare(self, key: bytes) -> dict[str, str]:
        """Create the user and the virtual host; return the content of the frontends' Secret.

        Args:
            key: the key from which passwords are derived.

        Raises:
            MessagingError: the broker did not create them.
        """
        password = derive_password(key, self._user)
        await self._admin.ensure_user(replace(build_frontend_user_spec(), name=self._user), password)
        content = self._access.as_user(self._user, password).to_secret()
        if self._clients is not None:
            await self._clients.ensure_vhost()
            await self._clients.ensure_platform(build_clients_specs())
            await self._clients.ensure_user(replace(build_frontend_clients_user_spec(), name=self._user), password)
            content[VHOST_KEY] = self.vhost
        for endpoint in self._endpoints:
            await self.ensure_queue(endpoint)
        return content

    async def ensure_queue(self, endpoint: str) -> None:
        """Declare the queue that the frontends of an endpoint share, if clients may use AMQP.

        A queue that an earlier version declared in another way does not change, because its requests must not be lost.

        Raises:
            MessagingError: the broker did not declare it.
        """
        if self._clients is None:
            return
        kinds = [QueueKind.CLASSIC, QueueKind.QUORUM]
        if len(await self._admin.list_nodes()) > 1:
            kinds.reverse()
        for kind in kinds:
            # The queue may exist with the other type, if the broker had another number of nodes when it was declared.
            # The type of a queue cannot change.
            with contextlib.suppress(BrokerRefusedError):
                return await self._clients.ensure_queues([build_request_queue_spec(endpoint, kind)])
        name = name_request_queue(endpoint)
        if name not in await self.list_queues():
            raise BrokerRefusedError(f"the broker refuses to declare the queue {name}")
        log.warning("the queue %s is not as this version declares it: delete it, and it is declared anew", name)
        return None

    async def remove_queue(self, endpoint: str) -> None:
        """Delete the queue of an endpoint with its requests; a missing queue is no error.

        Raises:
            MessagingError: the broker did not delete it.
        """
        if self._clients is not None:
            await self._clients.delete_queues([name_request_queue(endpoint)])

    async def list_queues(self) -> Mapping[str, QueueInfo]:
        """Return the shared queues by name (:func:`~simyard.messaging.occi_topology.name_request_queue`), in one call.

        Raises:
            MessagingError: the broker did not answer.
        """
        return {} if self._clients is None else await self._clients.search_queues(REQUEST_QUEUES_PREFIX)

    async def aclose(self) -> None:
        """Close the connections."""
        if self._clients is not None:
            await self._clients.aclose()
