# SPDX-License-Identifier: Apache-2.0
"""A licence, claims on its seats, and pools that share it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from plan_objects import NOW, at, made_ready, make_pool, make_service, make_site, make_worker

from simyard.api.base import Condition, find_condition
from simyard.api.licence import Licence
from simyard.api.simulation_service import SimulationService
from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool
from simyard.plan.backoff import Backoff
from simyard.plan.licence import (
    Allotment,
    Claim,
    Terms,
    make_allotment,
    make_claim,
)
from simyard.plan.placement import SiteState
from simyard.plan.pool import PoolPlan, plan_pool
from simyard.plan.pool_input import PoolInput

SITES = {"a": make_site("a")}
SERVICE = make_service(licence={"seats": 5})
CLOSED = {"from": "Selected", "names": ["elsewhere"]}


def shared_service(name: str = "acme") -> SimulationService:
    return make_service(licence={"licenceRef": {"name": name}}).service


def make_licence(seats: int = 5, **spec: Any) -> Licence:
    return Licence.model_validate({"metadata": {"name": "acme"}, "spec": {"seats": seats, **spec}})


def claim(pool: str, held: int = 0, desired: int = 0, since: float | None = None, granted: int = 0) -> Claim:
    return Claim(pool, held, granted, desired, None if since is None else at(since))


@dataclass
class World:
    """Pools that share a licence, in the hands of their plans; what is created takes a while to be seen by others."""

    seats: int
    pools: dict[str, WorkerPool]
    workers: dict[str, dict[str, Worker]] = field(default_factory=dict)
    alone: int = 0
    now: datetime = NOW
    sites: dict[str, SiteState] = field(default_factory=lambda: SITES)
    stuck: set[str] = field(default_factory=set)
    flying: dict[str, PoolPlan] = field(default_factory=dict)

    def held(self, name: str) -> int:
        return len(self.workers.setdefault(name, {}))

    def claims(self, asks: str = "") -> dict[str, Claim]:
        return {
            name: make_claim(pool, pool.status, self.held(name), asks=self.now if name == asks else None)
            for name, pool in self.pools.items()
        }

    def allotment(self, name: str) -> Allotment:
        claims = self.claims(name)
        return make_allotment(
            claims[name], list(claims.values()), licence="acme", terms=Terms(self.seats), others=self.alone, here={}
        )

    def decide(self, name: str) -> PoolPlan:
        """Make a plan that counts at once; its Workers appear later."""
        pool = self.pools[name]
        plan = plan_pool(
            PoolInput(
                pool=pool,
                previous=pool.status,
                backoff=Backoff(),
                workers=list(self.workers.setdefault(name, {}).values()),
                service=SERVICE,
                sites={} if name in self.stuck else self.sites,
                now=self.now,
                licence=self.allotment(name),
            )
        )
        self.pools[name] = pool.model_copy(update={"status": plan.status})
        self.flying[name] = plan
        return plan

    def carry_out(self, name: str) -> None:
        plan = self.flying.pop(name, None)
        if plan is None:
            return
        mine = self.workers[name]
        for removal in plan.delete:
            mine.pop(removal.worker.metadata.name, None)
        for worker in plan.drain:
            mine.pop(worker.metadata.name, None)
        for new in plan.create:
            mine.setdefault(new.name, made_ready(make_worker(new.name, requested=self.now), self.now))

    def plan(self, name: str) -> PoolPlan:
        self.carry_out(name)
        plan = self.decide(name)
        self.carry_out(name)
        return plan

    def scale(self, name: str, replicas: int) -> None:
        pool = self.pools[name]
        meta = pool.metadata.model_copy(update={"generation": pool.metadata.generation + 1})
        spec = pool.spec.model_copy(update={"replicas": replicas})
        self.pools[name] = pool.model_copy(update={"metadata": meta, "spec": spec})

    def restart(self) -> None:
        """Nothing is remembered but objects, and whatever was under way was done in part or not at all."""
        self.flying.clear()

    def total(self) -> int:
        return self.alone + sum(map(len, self.workers.values()))

    def condition(self, name: str) -> Condition:
        found = find_condition(self.pools[name].status.conditions, "LicenceAvailable")
        assert found is not None
        return found


def world(seats: int, **replicas: int) -> World:
    """Pools in the order of their creation, a minute apart; the last one is a minute old."""
    pools = {}
    for age, (name, count) in enumerate(reversed(replicas.items()), 1):
        pool = make_pool(count, name)
        meta = pool.metadata.model_copy(update={"creation_timestamp": at(-60 * age)})
        pools[name] = pool.model_copy(update={"metadata": meta})
    return World(seats, pools)
