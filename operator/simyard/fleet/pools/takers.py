# SPDX-License-Identifier: Apache-2.0
"""Makes workers takers: it sends them the request ``take``, after which they take requests from their pool's queue.

In every pool, some workers become takers. In a pool that clients call, all workers become takers.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import NoReturn

from simyard.api.service_action import ServiceAction
from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool
from simyard.fleet.broker.orders import Orders
from simyard.fleet.registry import Registry, find_removed, get_pool_uid
from simyard.fleet.timing import PRODUCTION, Timing
from simyard.fleet.work_queue import KeyQueue
from simyard.guest.messages import Active, Registered
from simyard.messaging.errors import MessagingError
from simyard.messaging.events import ReceivedEvent
from simyard.plan.takers import PoolTakers
from simyard.plan.worker import is_ready
from simyard_adapter.wire import Request

BATCH = 100
"""Workers of a pool that receive the request at once; a pause follows, so that the broker has time for calls."""


class Takers:
    """Component that chooses takers. It knows them from its own requests and from the registrations of adapters.

    A pool counts as used from the first ``active`` message of one of its workers until this process ends. After a
    restart, the operator learns from the next such message that the pool is used. An adapter remembers that it is a
    taker, and a second request does no harm.
    """

    def __init__(self, registry: Registry, orders: Orders, timing: Timing = PRODUCTION) -> None:
        self._registry = registry
        self._orders = orders
        self._told: set[str] = set()
        self._used: set[str] = set()
        self._pools: defaultdict[str, PoolTakers] = defaultdict(PoolTakers)
        self._queue = KeyQueue("takers", self._tell, spacing_seconds=timing.takers_spacing_seconds)

    async def run(self) -> NoReturn:
        """Send requests until cancelled."""
        await self._queue.run()

    def apply_event(self, event: ReceivedEvent) -> None:
        """Record from a worker's message that the worker is a taker, or that its pool is used."""
        worker = self._registry.find_worker(event.worker_uid)
        if worker is None or not (pool := get_pool_uid(worker)):
            return
        match event.message:
            case Registered(takes=told):
                (self._told.add if told else self._told.discard)(event.worker_uid)
                self._look_at(worker)
            case Active() if pool not in self._used and self._registry.pools.count("uid", pool):
                self._used.add(pool)
                self._queue.add(pool)

    def worker_changed(self, old: Worker | None, new: Worker | None) -> None:
        """Choose takers again after a Worker became ready, ceased to be ready, or was deleted."""
        left = find_removed(old, new)
        if left is not None:
            self._told.discard(left.metadata.uid)
            self._place(left, ready=False)
        before = old is not None and left is None and _takes_actions(old)
        if new is not None and before != _takes_actions(new):
            self._look_at(new)

    def action_changed(self, old: ServiceAction | None, new: ServiceAction | None) -> None:
        """Choose takers again after a change that can make the worker of an action busy or free."""
        for uid in {action.status.worker_uid for action in (old, new) if action is not None}:
            if (worker := self._registry.find_worker(uid)) is not None:
                self._look_at(worker)

    def pool_changed(self, old: WorkerPool | None, new: WorkerPool | None) -> None:
        """Forget a deleted pool."""
        if (left := find_removed(old, new)) is not None:
            self._used.discard(left.metadata.uid)
            self._queue.forget(left.metadata.uid)

    def _look_at(self, worker: Worker) -> None:
        pool = get_pool_uid(worker)
        self._place(worker, ready=_takes_actions(worker))
        if self._to_tell(pool, 1):
            self._queue.add(pool)

    def _place(self, worker: Worker, *, ready: bool) -> None:
        uid, pool = worker.metadata.uid, get_pool_uid(worker)
        if not pool:
            return
        busy = self._registry.actions.count("worker", uid) > 0
        self._pools[pool].set_state(uid, ready=ready, told=uid in self._told, busy=busy)
        if not self._pools[pool]:
            del self._pools[pool]

    def _to_tell(self, pool: str, most: int) -> list[str]:
        members = self._pools.get(pool)
        return members.choose_to_tell(used=pool in self._used, most=most) if members is not None else []

    async def _tell(self, pool: str) -> float | None:
        async with asyncio.TaskGroup() as group:
            telling = [group.create_task(self._try_to_tell(uid)) for uid in self._to_tell(pool, BATCH)]
        for task in telling:
            if (error := task.result()) is not None:
                raise error
        return 0.0 if self._to_tell(pool, 1) else None

    async def _try_to_tell(self, uid: str) -> MessagingError | None:
        """Send the request to one worker; return the error if the broker did not accept it.

        The worker counts as a taker before the request is sent. So a registration that arrives during the request has
        the last word.
        """
        self._mark(uid, told=True)
        try:
            await self._orders.send(uid, Request.TAKE, lasting=False)
        except MessagingError as error:
            self._mark(uid, told=False)
            return error
        return None

    def _mark(self, uid: str, *, told: bool) -> None:
        worker = self._registry.find_worker(uid)
        if worker is not None:
            (self._told.add if told else self._told.discard)(uid)
            self._place(worker, ready=_takes_actions(worker))


def _takes_actions(worker: Worker) -> bool:
    return is_ready(worker) and not worker.spec.drain
