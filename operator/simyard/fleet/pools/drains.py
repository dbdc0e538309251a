# SPDX-License-Identifier: Apache-2.0
"""Sends the request to drain to the adapters of Workers with ``spec.drain``."""

from __future__ import annotations

from typing import NoReturn

from simyard.api.worker import Worker
from simyard.fleet.broker.orders import Orders
from simyard.fleet.registry import Registry
from simyard.fleet.work_queue import KeyQueue
from simyard_adapter.wire import Request


class Drains:
    """Sender of drain requests: one request per Worker, for each session of its adapter."""

    def __init__(self, registry: Registry, orders: Orders) -> None:
        self._registry = registry
        self._orders = orders
        self._queue = KeyQueue("drain", self._send)

    async def run(self) -> NoReturn:
        """Send requests until cancelled."""
        await self._queue.run()

    def worker_registered(self, worker_uid: str) -> None:
        """Send the request to a worker with a new session again, because the broker may have lost its queue."""
        worker = self._registry.find_worker(worker_uid)
        if worker is not None and worker.spec.drain:
            self._queue.add(worker_uid)

    def worker_changed(self, old: Worker | None, new: Worker | None) -> None:
        """Send the request after ``spec.drain`` of a Worker has become true."""
        if new is not None and new.spec.drain and (old is None or not old.spec.drain):
            self._queue.add(new.metadata.uid)

    async def _send(self, uid: str) -> None:
        await self._orders.send(uid, Request.DRAIN, lasting=True)
