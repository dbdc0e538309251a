"""The status of every SimulationService."""

from __future__ import annotations

from typing import NoReturn

from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool
from simyard.fleet.frontends import Frontends
from simyard.fleet.licences import Licences
from simyard.fleet.queue import KeyQueue
from simyard.fleet.registry import Registry, key_text, now, service_key
from simyard.fleet.statuses import write_status
from simyard.kube.cache import Key
from simyard.plan.service import PublishedService, ServiceCounts, plan_service
from simyard.plan.worker import is_ready

STATUS_SPACING_SECONDS = 1.0


class Services:
    """Writes a service's status when its manifest, its pools or its workers change; once a second at most."""

    def __init__(self, registry: Registry, licences: Licences, frontends: Frontends) -> None:
        self._registry = registry
        self._licences = licences
        self._frontends = frontends
        self._queue = KeyQueue("service", self._reconcile, spacing_seconds=STATUS_SPACING_SECONDS)
        registry.services.subscribe(self._service_changed)
        registry.pools.subscribe(self._pool_changed)
        registry.workers.subscribe(self._worker_changed)
        licences.changed.append(lambda key: self._queue.add(key, STATUS_SPACING_SECONDS))
        frontends.changed.append(self._queue.add)

    async def run(self) -> NoReturn:
        """Reconcile until cancelled."""
        await self._queue.run()

    def _service_changed(self, old: PublishedService | None, new: PublishedService | None) -> None:
        if new is not None and (old is None or old.metadata.generation != new.metadata.generation):
            self._queue.add(_key(key_text(new)))

    def _pool_changed(self, old: WorkerPool | None, new: WorkerPool | None) -> None:
        pool = new or old
        if pool is not None and (old is None or new is None):
            self._queue.add(_key(service_key(pool)))

    def _worker_changed(self, old: Worker | None, new: Worker | None) -> None:
        worker = new or old
        if worker is not None and (old is None or new is None or is_ready(old) != is_ready(new)):
            self._queue.add(_key(service_key(worker)), STATUS_SPACING_SECONDS)

    async def _reconcile(self, key: Key) -> None:
        service = self._registry.services.get(*key)
        if service is None:
            self._queue.forget(key)
            return
        text = key_text(service)
        workers = self._registry.workers.by("service", text)
        counts = ServiceCounts(
            pools=self._registry.pools.count("service", text),
            workers=len(workers),
            ready=sum(map(is_ready, workers)),
        )
        licence = self._licences.status(service.service)
        terms = self._licences.terms(service.service)
        frontends = self._frontends.view(service.service)
        status = plan_service(service, counts, now(), licence, terms, frontends)
        registry = self._registry
        await write_status(registry.client, registry.services, service.metadata, service.service.status, status)


def _key(text: str) -> Key:
    namespace, _, name = text.partition("/")
    return namespace, name
