"""Workers whose machines must leave their hosts: they drain, and their pools replace and end them as any that do."""

from __future__ import annotations

from typing import NoReturn

from simyard.api.names import WORKER_POOLS, WORKERS, Reason
from simyard.fleet.queue import KeyQueue
from simyard.fleet.recorder import Recorder
from simyard.fleet.registry import Registry
from simyard_sites.base import Machine
from simyard_sites.kubernetes.errors import ConflictError, NotFoundError


class Evacuations:
    """Has them drain, with one write each; what is drained already, or ends, is left alone."""

    def __init__(self, registry: Registry, recorder: Recorder) -> None:
        self._registry = registry
        self._recorder = recorder
        self._why: dict[str, str] = {}
        self._queue = KeyQueue("evacuation", self._drain)

    async def run(self) -> NoReturn:
        """Drain until cancelled."""
        await self._queue.run()

    def note(self, machine: Machine) -> None:
        """The site says that a machine must leave its host."""
        uid = machine.owner.worker_uid
        worker = self._registry.worker(uid)
        if worker is not None and not worker.spec.drain:
            self._why[uid] = machine.evacuate
            self._queue.add(uid)

    async def _drain(self, uid: str) -> None:
        worker, why = self._registry.worker(uid), self._why.get(uid, "")
        if worker is not None and not worker.spec.drain and worker.metadata.deletion_timestamp is None:
            metadata = worker.metadata
            change = {"metadata": {"uid": uid}, "spec": {"drain": True}}
            try:
                raw = await self._registry.client.patch(WORKERS, metadata.name, change, metadata.namespace)
                self._registry.workers.learn(raw)
            except (NotFoundError, ConflictError):
                pass  # it is gone, and with it what had to leave
            else:
                self._tell(metadata.namespace, metadata.controller.name if metadata.controller else "", why)
        self._why.pop(uid, None)
        self._queue.forget(uid)

    def _tell(self, namespace: str, pool: str, why: str) -> None:
        found = self._registry.pools.get(namespace, pool) if pool else None
        if found is not None:
            note = f"a worker drains and is replaced: {why}"
            self._recorder.emit(WORKER_POOLS, found.metadata, Reason.WORKER_EVACUATED, note)
