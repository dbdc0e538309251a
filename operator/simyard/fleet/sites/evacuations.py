# SPDX-License-Identifier: Apache-2.0
"""Drains the Workers whose machines must leave their hosts; their pools then replace them."""

from __future__ import annotations

from typing import NoReturn

from simyard.api.names import WORKER_POOLS, WORKERS, Reason
from simyard.fleet.recorder import Recorder
from simyard.fleet.registry import Registry
from simyard.fleet.work_queue import KeyQueue
from simyard_sites.base import Machine
from simyard_sites.kubernetes.errors import ConflictError, NotFoundError


class Evacuations:
    """Component that drains the Workers of machines that must leave their hosts, each with a reason."""

    def __init__(self, registry: Registry, recorder: Recorder) -> None:
        self._registry = registry
        self._recorder = recorder
        self._why: dict[str, str] = {}
        self._queue = KeyQueue("evacuation", self._drain)

    async def run(self) -> NoReturn:
        """Drain Workers until cancelled."""
        await self._queue.run()

    def evacuate(self, machine: Machine) -> None:
        """Ask for the drain of a machine's Worker, because the machine must leave its host."""
        uid = machine.owner.worker_uid
        worker = self._registry.find_worker(uid)
        if worker is not None and not worker.spec.drain:
            self._why[uid] = machine.evacuate
            self._queue.add(uid)

    async def _drain(self, uid: str) -> None:
        worker, why = self._registry.find_worker(uid), self._why.get(uid, "")
        if worker is not None and not worker.spec.drain and worker.metadata.deletion_timestamp is None:
            metadata = worker.metadata
            change = {"metadata": {"uid": uid}, "spec": {"drain": True}}
            try:
                raw = await self._registry.client.patch(WORKERS, metadata.name, change, metadata.namespace)
                self._registry.workers.learn(raw)
            except (NotFoundError, ConflictError):
                pass  # the Worker was deleted, so its machine is deleted as well
            else:
                self._report(metadata.namespace, metadata.controller.name if metadata.controller else "", why)
        self._why.pop(uid, None)
        self._queue.forget(uid)

    def _report(self, namespace: str, pool: str, why: str) -> None:
        found = self._registry.pools.get(namespace, pool) if pool else None
        if found is not None:
            note = f"a worker drains and is replaced: {why}"
            self._recorder.emit(WORKER_POOLS, found.metadata, Reason.WORKER_EVACUATED, note)
