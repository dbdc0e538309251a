# SPDX-License-Identifier: Apache-2.0
"""Prices of workers: those of their sites."""

from __future__ import annotations

from simyard.api.quantities import parse_cores
from simyard.api.study import Study
from simyard.api.worker import Worker
from simyard.fleet.registry import Registry


class Prices:
    """The prices of workers, in thousandths of the currency of their sites for an hour."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def find(self, worker_uid: str) -> int | None:
        """Return the price of a worker; None if the worker is gone."""
        worker = self._registry.find_worker(worker_uid)
        return None if worker is None else self._compute(worker)

    def find_highest(self, study: Study) -> int:
        """Return the highest price of the workers of a study."""
        target = study.spec.target
        workers = self._registry.list_target_workers(target.kind, study.metadata.namespace, target.name)
        return max(map(self._compute, workers), default=0)

    def _compute(self, worker: Worker) -> int:
        site = self._registry.sites.get("", worker.spec.site)
        if site is None:
            return 0
        service = self._registry.find_service(worker)
        resources = worker.spec.resources or (service.service.spec.resources if service is not None else None)
        cores = parse_cores(resources.cpu) if resources is not None else 1
        return site.spec.cost.worker_hour_millis + site.spec.cost.core_hour_millis * cores
