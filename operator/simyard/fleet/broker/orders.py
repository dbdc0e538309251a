# SPDX-License-Identifier: Apache-2.0
"""Sends requests of the operator to the adapters of workers. The adapters send no replies to these requests."""

from __future__ import annotations

from collections.abc import Mapping

from simyard.fleet.registry import Registry, get_queue
from simyard.messaging.errors import NoConsumerError
from simyard.messaging.requests import Requester
from simyard_adapter.declarations import Json
from simyard_adapter.wire import Request


class Orders:
    """Sender of the operator's requests to adapters. An adapter may receive such a request twice without harm."""

    def __init__(self, registry: Registry, requester: Requester) -> None:
        self._registry = registry
        self._requester = requester

    async def send(self, uid: str, kind: Request, body: Mapping[str, Json] | None = None, *, lasting: bool) -> None:
        """Put a request into the queue of a Worker.

        The method does nothing if the Worker does not exist or its queue has no consumer, because then no adapter could
        receive the request. A ``lasting`` request survives a restart of the broker.

        Raises:
            MessagingError: the broker may not have accepted the request.
        """
        worker = self._registry.find_worker(uid)
        if worker is None:
            return
        publish = self._requester.publish_persistent if lasting else self._requester.publish_transient
        try:
            await publish(get_queue(worker), kind, body or {}, f"{kind.value}-{uid}")
        except NoConsumerError:
            return
