"""Requests of the operator's own to the adapters of workers, which nobody answers."""

from __future__ import annotations

from collections.abc import Mapping

from simyard.fleet.registry import Registry, queue_of
from simyard.messaging.errors import NoConsumerError
from simyard.messaging.requests import Requester
from simyard_adapter.declarations import Json
from simyard_adapter.wire import Request


class Orders:
    """Tells workers what to do; telling them again does no harm."""

    def __init__(self, registry: Registry, requester: Requester) -> None:
        self._registry = registry
        self._requester = requester

    async def give(self, uid: str, kind: Request, body: Mapping[str, Json] | None = None, *, lasting: bool) -> None:
        """Put an order into the queue of the Worker of that uid.

        Without a Worker or a queue nothing runs there that could be told. A ``lasting`` order survives the broker's
        restart.

        Raises:
            MessagingError: it may not have been taken.
        """
        worker = self._registry.worker(uid)
        if worker is None:
            return
        publish = self._requester.publish_durable if lasting else self._requester.publish_passing
        try:
            await publish(queue_of(worker), kind, body or {}, f"{kind.value}-{uid}")
        except NoConsumerError:
            return
