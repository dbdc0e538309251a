# SPDX-License-Identifier: Apache-2.0
"""Writes the status of every SimulationService."""

from __future__ import annotations

from typing import NoReturn

from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool
from simyard.fleet.frontends.reconciler import Frontends
from simyard.fleet.pools.licences import Licences
from simyard.fleet.registry import Registry, format_key, format_service_key, get_time
from simyard.fleet.status_writes import write_status
from simyard.fleet.timing import PRODUCTION, Timing
from simyard.fleet.work_queue import KeyQueue
from simyard.kube.cache import Key
from simyard.plan.service import PublishedService, ServiceCounts, plan_service
from simyard.plan.worker import is_ready


class Services:
    """Writer of the statuses of services. It writes each status after a change, at most once a second."""

    def __init__(
        self, registry: Registry, licences: Licences, frontends: Frontends, timing: Timing = PRODUCTION
    ) -> None:
        self._registry = registry
        self._licences = licences
        self._frontends = frontends
        self._spacing = timing.status_spacing_seconds
        self._queue = KeyQueue("service", self._reconcile, spacing_seconds=self._spacing)

    async def run(self) -> NoReturn:
        """Reconcile until cancelled."""
        await self._queue.run()

    def licence_changed(self, key: Key) -> None:
        """Ask for a write of a service's status, because the seats of its licence have changed."""
        self._queue.add(key, self._spacing)

    def frontends_changed(self, key: Key) -> None:
        """Ask for a write of a service's status, because its frontends have changed."""
        self._queue.add(key)

    def service_changed(self, old: PublishedService | None, new: PublishedService | None) -> None:
        """Reconcile a service that is new or changed."""
        if new is not None and (old is None or old.metadata.generation != new.metadata.generation):
            self._queue.add(_key(format_key(new)))

    def pool_changed(self, old: WorkerPool | None, new: WorkerPool | None) -> None:
        """Count the pools of a service again."""
        pool = new or old
        if pool is not None and (old is None or new is None):
            self._queue.add(_key(format_service_key(pool)))

    def worker_changed(self, old: Worker | None, new: Worker | None) -> None:
        """Count the Workers and the ready Workers of a service again."""
        worker = new or old
        if worker is not None and (old is None or new is None or is_ready(old) != is_ready(new)):
            self._queue.add(_key(format_service_key(worker)), self._spacing)

    async def _reconcile(self, key: Key) -> None:
        service = self._registry.services.get(*key)
        if service is None:
            self._queue.forget(key)
            return
        text = format_key(service)
        workers = self._registry.workers.list_by("service", text)
        counts = ServiceCounts(
            pools=self._registry.pools.count("service", text),
            workers=len(workers),
            ready=sum(map(is_ready, workers)),
        )
        licence = self._licences.get_status(service.service)
        terms = self._licences.get_terms(service.service)
        frontends = self._frontends.get_view(service.service)
        status = plan_service(service, counts, get_time(), licence, terms, frontends)
        registry = self._registry
        await write_status(registry.client, registry.services, service.metadata, service.service.status, status)


def _key(text: str) -> Key:
    namespace, _, name = text.partition("/")
    return namespace, name
