"""Tells the adapters of Workers with ``spec.drain`` to drain."""

from __future__ import annotations

from typing import NoReturn

from simyard.api.worker import Worker
from simyard.fleet.queue import KeyQueue
from simyard.fleet.registry import Registry, queue_of
from simyard.messaging.errors import NoConsumerError
from simyard.messaging.requests import Requester
from simyard_adapter.wire import Request


class Drains:
    """Sends the request once per process and Worker: sending it again does no harm."""

    def __init__(self, registry: Registry, requester: Requester) -> None:
        self._registry = registry
        self._requester = requester
        self._queue = KeyQueue("drain", self._send)
        registry.workers.subscribe(self._changed)

    async def run(self) -> NoReturn:
        """Send until cancelled."""
        await self._queue.run()

    def _changed(self, old: Worker | None, new: Worker | None) -> None:
        if new is not None and new.spec.drain and (old is None or not old.spec.drain):
            self._queue.add(new.metadata.uid)

    async def _send(self, uid: str) -> None:
        worker = self._registry.worker(uid)
        if worker is None:
            return
        try:
            await self._requester.publish_durable(queue_of(worker), Request.DRAIN, {}, f"drain-{uid}")
        except NoConsumerError:
            return  # its machine was never made, so nothing runs there
