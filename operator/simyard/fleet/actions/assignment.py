# SPDX-License-Identifier: Apache-2.0
"""Assigns waiting ServiceActions to free workers. One pass handles the waiting actions of one target.

A worker stays ready for some seconds after its adapter has left the broker, because most adapters come back. In these
seconds, the worker gets no action, because the action would have to wait for the adapter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Sized
from typing import NoReturn

from simyard.api import names
from simyard.api.service_action import ServiceAction
from simyard.api.worker import Worker
from simyard.fleet.registry import Registry, format_target_key, get_pool_uid, get_queue, get_time, list_target_keys
from simyard.fleet.status_writes import write_status
from simyard.fleet.work_queue import KeyQueue
from simyard.plan.actions import find_declared_action, record_assignment, record_wait
from simyard.plan.assignment import assign_actions, reserve_for_sync
from simyard.plan.worker import is_ready

PASS_SPACING_SECONDS = 0.02

Presence = Callable[[str], bool | None]
"""Function that returns whether a queue has a consumer; None if this is unknown."""


class Assignment:
    """Component that assigns the actions which wait for a worker.

    It calls ``added`` with the uid of an action that it has assigned, or that it could not write.
    """

    def __init__(self, registry: Registry, presence: Presence, added: Callable[[str], None]) -> None:
        self._registry = registry
        self._presence = presence
        self._added = added
        self._wanted: set[str] = set()
        self._held: set[str] = set()
        self._queue = KeyQueue("assignment", self._assign, concurrency=4, spacing_seconds=PASS_SPACING_SECONDS)

    async def run(self) -> NoReturn:
        """Assign actions until cancelled."""
        await self._queue.run()

    def add_waiting(self, action: ServiceAction) -> None:
        """Record that a valid action waits for a worker, and ask for a pass over its target."""
        self._wanted.add(action.metadata.uid)
        target = action.spec.target
        self._queue.add(format_target_key(target.kind, action.metadata.namespace, target.name))

    def forget(self, uid: str) -> None:
        """Forget an action that is gone."""
        self._wanted.discard(uid)

    def apply_finished(self, action: ServiceAction) -> None:
        """Ask for passes that can assign further actions to the worker of a finished action."""
        worker = self._registry.find_worker(action.status.worker_uid)
        if worker is not None:
            self._worker_free(worker)

    def worker_changed(self, old: Worker | None, new: Worker) -> None:
        """Ask for passes that can assign actions to a worker that became ready."""
        if is_ready(new) and (old is None or not is_ready(old)):
            self._worker_free(new)

    def presence_changed(self, worker: Worker) -> None:
        """Ask for passes that can assign actions to a ready worker whose adapter is back at the broker."""
        if is_ready(worker) and self._presence(get_queue(worker)):
            self._worker_free(worker)

    def _takes_actions(self, worker: Worker) -> bool:
        return is_ready(worker) and not worker.spec.drain and self._presence(get_queue(worker)) is not False

    def _worker_free(self, worker: Worker) -> None:
        for key in list_target_keys(worker):
            if self._registry.actions.count("target", key):
                self._queue.add(key)

    async def _assign(self, key: str) -> None:
        waiting_here = self._registry.actions.list_by("target", key)
        actions = [item for item in waiting_here if not item.status.worker_uid and item.metadata.uid in self._wanted]
        there = self._registry.list_target_workers(*key.split("/"))
        workers = [worker for worker in there if self._takes_actions(worker)]
        if not actions:
            self._queue.forget(key)
            return
        busy = frozenset(worker.metadata.uid for worker in workers if self._busy(worker)) | self._held
        kept = (
            frozenset[str]()
            if key.startswith(f"{names.WORKERS.kind}/")
            else list_reserved(self._registry, workers, busy)
        )
        busy |= kept
        concurrent = frozenset(action.metadata.uid for action in actions if self._concurrent(action))
        matched = assign_actions(
            actions, workers, busy, concurrent, {item.metadata.uid: self._load(item) for item in workers}
        )
        taken = {worker.metadata.uid for worker in matched.values()} - self._held
        self._held |= taken
        try:
            for action in actions:
                worker = matched.get(action.metadata.uid)
                if action.spec.cancel or action.metadata.deletion_timestamp is not None:
                    continue
                await self._write(action, worker, _why_waiting(workers, kept))
        finally:
            self._held -= taken

    async def _write(self, action: ServiceAction, worker: Worker | None, why: str) -> None:
        """Write the assignment of an action, or the reason why it waits.

        The write fails if the action has changed. So if two operators assign an action to different workers, only one
        write succeeds.
        """
        status = (
            record_wait(action, why, get_time()) if worker is None else record_assignment(action, worker, get_time())
        )
        registry = self._registry
        written = await write_status(
            registry.client, registry.actions, action.metadata, action.status, status, guarded=True
        )
        if not written or worker is not None:
            self._added(action.metadata.uid)

    def _load(self, worker: Worker) -> int:
        return sum(self._concurrent(action) for action in self._registry.actions.list_by("worker", worker.metadata.uid))

    def _busy(self, worker: Worker) -> bool:
        return any(
            not self._concurrent(action) for action in self._registry.actions.list_by("worker", worker.metadata.uid)
        )

    def _concurrent(self, action: ServiceAction) -> bool:
        declared = find_declared_action(action, self._registry.find_target_service(action))
        return declared is not None and declared.concurrent


def list_reserved(registry: Registry, workers: list[Worker], busy: Container[str]) -> frozenset[str]:
    """Return the uids of the workers that their pools reserve for Sync calls."""
    of_pool: defaultdict[str, list[Worker]] = defaultdict(list)
    for worker in workers:
        of_pool[get_pool_uid(worker)].append(worker)
    return frozenset().union(
        *(
            reserve_for_sync(of_pool[pool.metadata.uid], busy, pool.spec.reserved_for_sync)
            for uid in of_pool
            for pool in registry.pools.list_by("uid", uid)
        )
    )


def _why_waiting(ready: Sized, kept: Sized) -> str:
    if not ready:
        return "no worker is ready"
    if kept:
        return "every free worker is reserved for Sync calls (spec.reservedForSync of the pool)"
    return "every ready worker is busy"
