# SPDX-License-Identifier: Apache-2.0
"""Counts the seats of licences, and wakes the pools that wait for a seat."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import NoReturn

from prometheus_client import Gauge

from simyard.api.base import find_condition
from simyard.api.licence import Licence
from simyard.api.names import ANNOTATION_LICENCE, ConditionType
from simyard.api.simulation_service import LicenceStatus, SimulationService
from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool, WorkerPoolStatus
from simyard.fleet.registry import Registry, find_removed, format_key, format_service_key, get_pool_uid, get_time
from simyard.fleet.status_writes import write_status
from simyard.fleet.work_queue import KeyQueue
from simyard.kube.cache import Key, make_key
from simyard.plan.licence import (
    Allotment,
    Claim,
    Terms,
    allot_seats,
    get_licence_key,
    get_terms,
    make_allotment,
    make_claim,
    plan_shared_status,
    sum_seats,
)
from simyard.plan.service import PublishedService
from simyard.plan.studies.demand import compute_demand

SEATS = Gauge("simyard_licence_seats", "Seats of licences: all, occupied, and waited for.",
              ["licence", "state"])  # fmt: skip

SPACING_SECONDS = 0.1
STATUS_SPACING_SECONDS = 1.0
MESSAGE_SECONDS = 1.0
"""Delay before a pool that still waits for seats reports the newest numbers."""


class Licences:
    """Component that counts the seats of each licence from the objects.

    The seats that a plan grants count at once, before their Workers exist. So two plans that follow each other do not
    grant the same seat.

    Attributes:
        on_pool_due: functions to call with each pool that must be planned again, and with the delay in seconds.
        on_change: functions to call with each service whose status may have changed.
    """

    def __init__(self, registry: Registry) -> None:
        self.on_pool_due: list[Callable[[Key, float], None]] = []
        self.on_change: list[Callable[[Key], None]] = []
        self._registry = registry
        self._planned: dict[str, WorkerPoolStatus] = {}
        self._holders: dict[str, Counter[str]] = {}
        self._queue = KeyQueue("licence", self._look, spacing_seconds=SPACING_SECONDS)
        self._statuses = KeyQueue("licence-status", self._write, spacing_seconds=STATUS_SPACING_SECONDS)

    async def run(self) -> NoReturn:
        """Wake waiting pools and write the statuses of Licences, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.run(), name="seats of licences")
            group.create_task(self._statuses.run(), name="statuses of Licences")
        raise AssertionError("the tasks do not end")

    def allot_pool(self, pool: WorkerPool, time: datetime) -> Allotment | None:
        """Return the seats of a pool for its next plan; None if its service has no licence."""
        service = self._registry.find_service(pool)
        key = get_licence_key(service.service) if service is not None else ""
        if not key:
            return None
        pools = self._pools(key)
        claims = {item.metadata.uid: self._claim(item) for item in pools}
        own = claims[pool.metadata.uid] = self._claim(pool, asks=time)
        namespace = pool.metadata.namespace
        here = {item.metadata.name: claims[item.metadata.uid].held for item in pools
                if item.metadata.namespace == namespace}  # fmt: skip
        alone = self._alone_in(key)
        outside = self._outside(key)
        return make_allotment(
            own,
            list(claims.values()),
            licence=key.removeprefix(f"{namespace}/"),
            terms=self.get_terms(service.service) if service is not None else Terms(0),
            others=outside.total(),
            here={**here, "": alone[namespace]},
            outside=outside,
        )

    def count_plan(self, pool: WorkerPool, status: WorkerPoolStatus) -> None:
        """Count the seats that the plan of a pool grants. The caller carries the plan out after this."""
        before = self._planned.get(pool.metadata.uid, pool.status)
        self._planned[pool.metadata.uid] = status
        if _seen(before) != _seen(status):
            self._dirty(format_service_key(pool))

    def get_status(self, service: SimulationService) -> LicenceStatus | None:
        """Return the numbers of seats of a service's licence, for the service's status; None if it has no licence."""
        key = get_licence_key(service)
        if not key:
            return None
        terms = self.get_terms(service)
        seats = terms.seats if terms.refusal is None else 0
        return sum_seats(seats, self._outside(key).total(), [self._claim(pool) for pool in self._pools(key)])

    def get_terms(self, service: SimulationService) -> Terms:
        """Return the terms that the licence of a service grants to this service."""
        key = get_licence_key(service)
        return get_terms(service, self._registry.licences.get("", key) if "/" not in key else None)

    def list_sharing_services(self, key: str) -> list[SimulationService]:
        """Return the services that share a licence."""
        return [item.service for item in self._registry.services.list_by("licence", key)]

    def worker_changed(self, old: Worker | None, new: Worker | None) -> None:
        """Update the number of occupied seats after a change of a Worker."""
        if (worker := new or old) is not None and (old is None or find_removed(old, new) is not None):
            self._dirty(format_service_key(worker))
        for item, other, change in ((new, old, 1), (old, new, -1)):
            key = _licence_of(item)
            if (
                item is None
                or not key
                or (other is not None and find_removed(old, new) is None and _licence_of(other) == key)
            ):
                continue
            holders = self._holders.setdefault(key, Counter())
            holders[format_service_key(item)] += change
            if not holders[format_service_key(item)]:
                del holders[format_service_key(item)]
            if not holders:
                del self._holders[key]
            self._queue.add(key)

    def service_changed(self, old: PublishedService | None, new: PublishedService | None) -> None:
        """Distribute the seats of a licence again when a service begins or ceases to refer to the licence."""
        licences = [item.service.spec.licence if item is not None else None for item in (old, new)]
        if licences[0] != licences[1]:
            for item in (old, new):
                if item is not None and (key := get_licence_key(item.service)):
                    self._queue.add(key)

    def pool_changed(self, old: WorkerPool | None, new: WorkerPool | None) -> None:
        """Release the seats of a deleted pool."""
        if (left := find_removed(old, new)) is not None:
            self._planned.pop(left.metadata.uid, None)
            self._dirty(format_service_key(left))

    def licence_changed(self, old: Licence | None, new: Licence | None) -> None:
        """Distribute the seats of a changed Licence again, and ask for passes over its pools."""
        if old is not None and new is not None and old.spec == new.spec:
            return
        if (licence := new or old) is not None:
            key = licence.metadata.name
            self._queue.add(key)
            for pool in self._pools(key):
                for wake in self.on_pool_due:
                    wake(make_key(pool), MESSAGE_SECONDS)

    def _dirty(self, service: str) -> None:
        namespace, _, name = service.partition("/")
        found = self._registry.services.get(namespace, name)
        if found is not None and (key := get_licence_key(found.service)):
            self._queue.add(key)

    async def _write(self, name: str) -> None:
        """Write the status of a Licence."""
        if (licence := self._registry.licences.get("", name)) is None:
            self._statuses.forget(name)
            return
        claims = [self._claim(pool) for pool in self._pools(name)]
        status = plan_shared_status(
            licence, len(self.list_sharing_services(name)), self._outside(name), claims, get_time()
        )
        await write_status(self._registry.client, self._registry.licences, licence.metadata, licence.status, status)

    async def _look(self, key: str) -> None:
        services = self.list_sharing_services(key)
        if "/" not in key:
            self._statuses.add(key)
        if not services:
            self._queue.forget(key)
            for state in ("total", "taken", "waiting"):
                with contextlib.suppress(KeyError):
                    SEATS.remove(key, state)
            return
        pools = self._pools(key)
        claims = [self._claim(pool) for pool in pools]
        outside = self._outside(key)
        terms, others = self.get_terms(services[0]), outside.total()
        granted = allot_seats(terms.seats, others, claims, limit=terms.limit, outside=outside)
        for pool, claim in zip(pools, claims, strict=True):
            if self._waits(pool):
                for wake in self.on_pool_due:
                    wake(make_key(pool), 0.0 if granted[claim.pool] > claim.kept else MESSAGE_SECONDS)
        for service in services:
            for changed in self.on_change:
                changed((service.metadata.namespace, service.metadata.name))
        status = sum_seats(terms.seats, others, claims)
        for state, value in (("total", status.seats), ("taken", status.taken), ("waiting", status.waiting)):
            SEATS.labels(key, state).set(value)

    def _claim(self, pool: WorkerPool, *, asks: datetime | None = None) -> Claim:
        held = self._registry.workers.count("pool", pool.metadata.uid)
        demand = compute_demand(self._registry.list_studies_of_pool(pool))
        claim = make_claim(pool, self._newest(pool), held, asks=asks, demand=demand)
        service = self._registry.find_service(pool)
        if service is not None and self.get_terms(service.service).refusal is not None:
            return replace(claim, granted=held, desired=held)
        return claim

    def _newest(self, pool: WorkerPool) -> WorkerPoolStatus:
        return self._planned.get(pool.metadata.uid, pool.status)

    def _waits(self, pool: WorkerPool) -> bool:
        condition = find_condition(self._newest(pool).conditions, ConditionType.LICENCE_AVAILABLE)
        return condition is not None and condition.status == "False"

    def _pools(self, key: str) -> list[WorkerPool]:
        return [
            pool
            for item in self.list_sharing_services(key)
            for pool in self._registry.pools.list_by("service", format_key(item))
        ]

    def _outside(self, key: str) -> Counter[str]:
        """Return the number of seats that Workers occupy without a claim of a pool, by namespace."""
        return self._alone_in(key) + self._left_behind(key)

    def _alone_in(self, key: str) -> Counter[str]:
        """Return the number of Workers without a pool that occupy a seat, by namespace."""
        alone: Counter[str] = Counter()
        for item in self.list_sharing_services(key):
            alone[item.metadata.namespace] += self._alone(item)
        return alone

    def _left_behind(self, key: str) -> Counter[str]:
        """Return the number of Workers of deleted services that still occupy a seat, by namespace."""
        left: Counter[str] = Counter()
        for service, count in self._holders.get(key, Counter()).items():
            namespace, _, name = service.partition("/")
            if self._registry.services.get(namespace, name) is None:
                left[namespace] += count
        return left

    def _alone(self, service: SimulationService) -> int:
        """Return the number of Workers of a service that do not belong to a pool of the service."""
        text = format_key(service)
        workers, pools = self._registry.workers, self._registry.pools.list_by("service", text)
        return workers.count("service", text) - sum(workers.count("pool", pool.metadata.uid) for pool in pools)


def _licence_of(worker: Worker | None) -> str:
    """Return the licence whose seat a pool's Worker occupies, or an empty text.

    The function ignores the annotation of a Worker without a pool, because a user can have written it.
    """
    if worker is None or not get_pool_uid(worker):
        return ""
    return worker.metadata.annotations.get(ANNOTATION_LICENCE, "")


def _seen(status: WorkerPoolStatus) -> tuple[object, ...]:
    """Return the fields of a pool's status on which the seats of other pools depend."""
    condition = find_condition(status.conditions, ConditionType.LICENCE_AVAILABLE)
    return status.licensed_replicas, (condition.status, condition.reason) if condition is not None else None
