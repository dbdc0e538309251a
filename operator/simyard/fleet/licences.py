"""Keeps account of the seats of licences, and wakes the pools that wait for one."""

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
from simyard.fleet.queue import KeyQueue
from simyard.fleet.registry import Registry, gone, key_text, now, pool_uid_of, service_key
from simyard.fleet.statuses import write_status
from simyard.kube.cache import Key, key_of
from simyard.plan.licence import (
    Allotment,
    Claim,
    Terms,
    allot,
    allotment_of,
    claim_of,
    licence_key,
    licence_status,
    shared_status,
    terms_of,
)
from simyard.plan.service import PublishedService

SEATS = Gauge("simyard_licence_seats", "Seats of licences: all, taken ones, and how many more are waited for.",
              ["licence", "state"])  # fmt: skip

SPACING_SECONDS = 0.1
STATUS_SPACING_SECONDS = 1.0
MESSAGE_SECONDS = 1.0
"""Pools that go on waiting say so late with the newest numbers."""


class Licences:
    """What the objects say of each licence. What a plan granted counts at once, before its Workers exist.

    ``wake`` is called with pools that are to be planned again, ``changed`` with services whose status may be different;
    both with the seconds in which that is due.
    """

    def __init__(self, registry: Registry) -> None:
        self.wake: list[Callable[[Key, float], None]] = []
        self.changed: list[Callable[[Key], None]] = []
        self._registry = registry
        self._planned: dict[str, WorkerPoolStatus] = {}
        self._holders: dict[str, Counter[str]] = {}
        self._queue = KeyQueue("licence", self._look, spacing_seconds=SPACING_SECONDS)
        self._statuses = KeyQueue("licence-status", self._write, spacing_seconds=STATUS_SPACING_SECONDS)
        registry.workers.subscribe(self._worker_changed)
        registry.services.subscribe(self._service_changed)
        registry.pools.subscribe(self._pool_changed)
        registry.licences.subscribe(self._licence_changed)

    async def run(self) -> NoReturn:
        """Wake those that wait and write the status of Licences, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.run(), name="seats of licences")
            group.create_task(self._statuses.run(), name="statuses of Licences")
        raise AssertionError("the tasks do not end")

    def allotment(self, pool: WorkerPool, time: datetime) -> Allotment | None:
        """What a pool that is about to be planned gets; None when its service has no licence."""
        service = self._registry.service_of(pool)
        key = licence_key(service.service) if service is not None else ""
        if not key:
            return None
        pools = self._pools(key)
        claims = {item.metadata.uid: self._claim(item) for item in pools}
        own = claims[pool.metadata.uid] = self._claim(pool, asks=time)
        namespace = pool.metadata.namespace
        here = {item.metadata.name: claims[item.metadata.uid].held for item in pools
                if item.metadata.namespace == namespace}  # fmt: skip
        alone = self._alone_in(key)
        outside = alone + self._left_behind(key)
        return allotment_of(
            own,
            list(claims.values()),
            licence=key.removeprefix(f"{namespace}/"),
            terms=self.terms(service.service) if service is not None else Terms(0),
            others=outside.total(),
            here={**here, "": alone[namespace]},
            outside=outside,
        )

    def planned(self, pool: WorkerPool, status: WorkerPoolStatus) -> None:
        """Take over what a plan has decided, before it is carried out."""
        before = self._planned.get(pool.metadata.uid, pool.status)
        self._planned[pool.metadata.uid] = status
        if _seen(before) != _seen(status):
            self._dirty(service_key(pool))

    def status(self, service: SimulationService) -> LicenceStatus | None:
        """The seats of a service's licence; None when it has none."""
        key = licence_key(service)
        if not key:
            return None
        terms = self.terms(service)
        seats = terms.seats if terms.refusal is None else 0
        return licence_status(seats, self._others(key), [self._claim(pool) for pool in self._pools(key)])

    def terms(self, service: SimulationService) -> Terms:
        """Return what the licence of a service offers to it."""
        key = licence_key(service)
        return terms_of(service, self._registry.licences.get("", key) if "/" not in key else None)

    def sharing(self, key: str) -> list[SimulationService]:
        """The services that share a licence."""
        return [item.service for item in self._registry.services.by("licence", key)]

    def _worker_changed(self, old: Worker | None, new: Worker | None) -> None:
        if (worker := new or old) is not None and (old is None or gone(old, new) is not None):
            self._dirty(service_key(worker))
        for item, other, change in ((new, old, 1), (old, new, -1)):
            key = _licence_of(item)
            if item is None or not key or (other is not None and gone(old, new) is None and _licence_of(other) == key):
                continue
            holders = self._holders.setdefault(key, Counter())
            holders[service_key(item)] += change
            if not holders[service_key(item)]:
                del holders[service_key(item)]
            if not holders:
                del self._holders[key]
            self._queue.add(key)

    def _service_changed(self, old: PublishedService | None, new: PublishedService | None) -> None:
        licences = [item.service.spec.licence if item is not None else None for item in (old, new)]
        if licences[0] != licences[1]:
            for item in (old, new):
                if item is not None and (key := licence_key(item.service)):
                    self._queue.add(key)

    def _pool_changed(self, old: WorkerPool | None, new: WorkerPool | None) -> None:
        if (left := gone(old, new)) is not None:
            self._planned.pop(left.metadata.uid, None)
            self._dirty(service_key(left))

    def _licence_changed(self, old: Licence | None, new: Licence | None) -> None:
        if old is not None and new is not None and old.spec == new.spec:
            return
        if (licence := new or old) is not None:
            key = licence.metadata.name
            self._queue.add(key)
            for pool in self._pools(key):
                for wake in self.wake:
                    wake(key_of(pool), MESSAGE_SECONDS)

    def _dirty(self, service: str) -> None:
        namespace, _, name = service.partition("/")
        found = self._registry.services.get(namespace, name)
        if found is not None and (key := licence_key(found.service)):
            self._queue.add(key)

    async def _write(self, name: str) -> None:
        """Write the status of a Licence."""
        if (licence := self._registry.licences.get("", name)) is None:
            self._statuses.forget(name)
            return
        claims = [self._claim(pool) for pool in self._pools(name)]
        status = shared_status(licence, len(self.sharing(name)), self._others(name), claims, now())
        await write_status(self._registry.client, self._registry.licences, licence.metadata, licence.status, status)

    async def _look(self, key: str) -> None:
        services = self.sharing(key)
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
        outside = self._alone_in(key) + self._left_behind(key)
        terms, others = self.terms(services[0]), outside.total()
        granted = allot(terms.seats, others, claims, limit=terms.limit, outside=outside)
        for pool, claim in zip(pools, claims, strict=True):
            if self._waits(pool):
                for wake in self.wake:
                    wake(key_of(pool), 0.0 if granted[claim.pool] > claim.kept else MESSAGE_SECONDS)
        for service in services:
            for changed in self.changed:
                changed((service.metadata.namespace, service.metadata.name))
        status = licence_status(terms.seats, others, claims)
        for state, value in (("total", status.seats), ("taken", status.taken), ("waiting", status.waiting)):
            SEATS.labels(key, state).set(value)

    def _claim(self, pool: WorkerPool, *, asks: datetime | None = None) -> Claim:
        held = self._registry.workers.count("pool", pool.metadata.uid)
        claim = claim_of(pool, self._newest(pool), held, asks=asks)
        service = self._registry.service_of(pool)
        if service is not None and self.terms(service.service).refusal is not None:
            return replace(claim, granted=held, desired=held)
        return claim

    def _newest(self, pool: WorkerPool) -> WorkerPoolStatus:
        return self._planned.get(pool.metadata.uid, pool.status)

    def _waits(self, pool: WorkerPool) -> bool:
        condition = find_condition(self._newest(pool).conditions, ConditionType.LICENCE_AVAILABLE)
        return condition is not None and condition.status == "False"

    def _pools(self, key: str) -> list[WorkerPool]:
        return [pool for item in self.sharing(key) for pool in self._registry.pools.by("service", key_text(item))]

    def _others(self, key: str) -> int:
        return self._alone_in(key).total() + self._left_behind(key).total()

    def _alone_in(self, key: str) -> Counter[str]:
        """Return, by namespace, the Workers that no pool owns."""
        alone: Counter[str] = Counter()
        for item in self.sharing(key):
            alone[item.metadata.namespace] += self._alone(item)
        return alone

    def _left_behind(self, key: str) -> Counter[str]:
        """Return, by namespace, the Workers that hold a seat although their service is gone."""
        left: Counter[str] = Counter()
        for service, count in self._holders.get(key, Counter()).items():
            namespace, _, name = service.partition("/")
            if self._registry.services.get(namespace, name) is None:
                left[namespace] += count
        return left

    def _alone(self, service: SimulationService) -> int:
        """Workers of a service that no pool of it owns."""
        text = key_text(service)
        workers, pools = self._registry.workers, self._registry.pools.by("service", text)
        return workers.count("service", text) - sum(workers.count("pool", pool.metadata.uid) for pool in pools)


def _licence_of(worker: Worker | None) -> str:
    """The licence that the Worker of a pool was made with; what others say of theirs is not believed."""
    if worker is None or not pool_uid_of(worker):
        return ""
    return worker.metadata.annotations.get(ANNOTATION_LICENCE, "")


def _seen(status: WorkerPoolStatus) -> tuple[object, ...]:
    """What of a pool's status concerns the other pools of its licence."""
    condition = find_condition(status.conditions, ConditionType.LICENCE_AVAILABLE)
    return status.licensed_replicas, (condition.status, condition.reason) if condition is not None else None
