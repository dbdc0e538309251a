"""Tells the adapters of Workers with ``spec.drain`` to drain."""

from __future__ import annotations

from typing import NoReturn

from simyard.api.worker import Worker
from simyard.fleet.orders import Orders
from simyard.fleet.queue import KeyQueue
from simyard.fleet.registry import Registry
from simyard_adapter.wire import Request


class Drains:
    """Sends the request once per process and Worker."""

    def __init__(self, registry: Registry, orders: Orders) -> None:
        self._registry = registry
        self._orders = orders
        self._queue = KeyQueue("drain", self._send)
        registry.workers.subscribe(self._changed)

    async def run(self) -> NoReturn:
        """Send until cancelled."""
        await self._queue.run()

    def registered(self, worker_uid: str) -> None:
        """Send it again to a worker that has a new session: its queue may have been lost with a broker's node."""
        worker = self._registry.worker(worker_uid)
        if worker is not None and worker.spec.drain:
            self._queue.add(worker_uid)

    def _changed(self, old: Worker | None, new: Worker | None) -> None:
        if new is not None and new.spec.drain and (old is None or not old.spec.drain):
            self._queue.add(new.metadata.uid)

    async def _send(self, uid: str) -> None:
        await self._orders.give(uid, Request.DRAIN, lasting=True)
