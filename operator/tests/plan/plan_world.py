# SPDX-License-Identifier: Apache-2.0
"""World of one pool for tests: it carries out plans, time passes, and workers become ready or fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from plan_objects import NOW, made_ready, make_pool, make_service, make_site, make_worker, not_ready

from simyard.api.names import LABEL_REVISION
from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool
from simyard.plan.backoff import Backoff
from simyard.plan.idleness import Use
from simyard.plan.licence import Allotment
from simyard.plan.placement import SiteState
from simyard.plan.pool import PoolPlan, plan_pool
from simyard.plan.pool_input import PoolInput
from simyard.plan.service import PublishedService
from simyard.plan.worker import is_ready
from simyard.plan.workforce import Clock

SERVICE = make_service()


def labelled(worker: Worker, revision: str) -> Worker:
    """Return the Worker with another revision."""
    labels = {**worker.metadata.labels, LABEL_REVISION: revision}
    return worker.model_copy(update={"metadata": worker.metadata.model_copy(update={"labels": labels})})


@dataclass
class World:
    """State of the API server, of the sites and of the operator's memory.

    ``now`` is the wall clock, which may jump, ``steady`` the clock that nobody sets.
    """

    pool: WorkerPool = field(default_factory=make_pool)
    service: PublishedService | None = SERVICE
    sites: Mapping[str, SiteState] = field(default_factory=lambda: {"a": make_site("a")})
    workers: dict[str, Worker] = field(default_factory=dict)
    now: datetime = NOW
    steady: float = 0.0
    since: dict[str, float] = field(default_factory=dict)
    backoff: Backoff = field(default_factory=Backoff)
    use: Use = field(default_factory=Use)
    licence: Allotment | None = None
    active: float = 0.0
    created: int = 0
    busy: frozenset[str] = frozenset()
    heard_seconds: float = 0.0

    def given(self) -> PoolInput:
        """Return the input of the next plan; the sites count the pool's workers."""
        counts = [worker.spec.site for worker in self.workers.values()]
        sites = {name: replace(state, workers=counts.count(name)) for name, state in self.sites.items()}
        return PoolInput(
            pool=self.pool,
            previous=self.pool.status,
            backoff=self.backoff,
            workers=list(self.workers.values()),
            service=self.service,
            sites=sites,
            now=self.now,
            use=replace(self.use, quiet_seconds=self.steady - self.active),
            busy=self.busy,
            heard_seconds=self.heard_seconds,
            clock=Clock(self.steady, dict(self.since)),
            licence=self.licence,
        )

    def turn(self) -> PoolPlan:
        """Plan and carry out."""
        plan = plan_pool(self.given())
        self.carry_out(plan)
        return plan

    def carry_out(self, plan: PoolPlan) -> None:
        """Carry out a plan like the API server: a name exists once, and only the object with the uid is deleted."""
        for removal in plan.delete:
            if self._is_there(removal.worker):
                del self.workers[removal.worker.metadata.name]
        for worker in plan.drain:
            if self._is_there(worker):
                spec = worker.spec.model_copy(update={"drain": True})
                self.put(not_ready(worker.model_copy(update={"spec": spec}), "Draining", self.now))
        for worker, revision in plan.adopt:
            if self._is_there(worker):
                self.workers[worker.metadata.name] = labelled(self.workers[worker.metadata.name], revision)
        for new in plan.create:
            if new.name not in self.workers:
                self.put(labelled(make_worker(new.name, site=new.site, requested=self.now), new.revision))
                self.created += 1
        self.backoff = plan.backoff
        if self.use.now or plan.status.last_active_time != self.pool.status.last_active_time:
            self.active = self.steady
        self.pool = self.pool.model_copy(update={"status": plan.status})

    def put(self, worker: Worker) -> None:
        """Store a new or changed worker; its time limits begin anew."""
        self.workers[worker.metadata.name] = worker
        self.since[worker.metadata.uid] = self.steady

    def change(self, **spec: Any) -> None:
        """Fields of the pool's spec are changed."""
        metadata = self.pool.metadata.model_copy(update={"generation": self.pool.metadata.generation + 1})
        new = self.pool.spec.model_validate({**self.pool.spec.to_json(), **spec})
        self.pool = self.pool.model_copy(update={"metadata": metadata, "spec": new})

    def publish(self, **spec: Any) -> None:
        """Publish a changed service."""
        self.service = make_service(**spec)
        self.backoff = Backoff()

    def restart(self) -> None:
        """Restart the operator: it sees every worker for the first time."""
        self.backoff, self.use, self.active = Backoff(), Use(), self.steady
        self.since = {worker.metadata.uid: self.steady for worker in self.workers.values()}

    def set(self, slot: int, how: str) -> None:
        """Change one of the workers at random."""
        names = sorted(self.workers)
        if not names:
            return
        worker = self.workers[names[slot % len(names)]]
        if how == "gone":
            del self.workers[worker.metadata.name]
        elif how == "ready" and not worker.spec.drain:
            self.put(made_ready(worker, self.now))
        elif how == "failed":
            self.put(not_ready(worker, "MachineFailed", self.now))
        elif how == "unlabelled":
            metadata = worker.metadata.model_copy(update={"labels": {}})
            self.workers[worker.metadata.name] = worker.model_copy(update={"metadata": metadata})

    def serving(self) -> list[Worker]:
        """Return the workers that do not drain."""
        return [worker for worker in self.workers.values() if not worker.spec.drain]

    def ready(self) -> list[Worker]:
        """Return the workers that accept actions."""
        return [worker for worker in self.serving() if is_ready(worker)]

    def pass_time(self, seconds: float) -> None:
        """Both clocks go on."""
        self.now += timedelta(seconds=seconds)
        self.steady += seconds

    def come_up(self, can: Callable[[Worker], bool] = lambda worker: True) -> None:
        """Workers that can come up do."""
        for worker in list(self.workers.values()):
            if not worker.spec.drain and not is_ready(worker) and can(worker):
                self.put(made_ready(worker, self.now))

    def settle(self, turns: int = 60, can: Callable[[Worker], bool] = lambda worker: True) -> None:
        """Let all workers become ready and time pass, until there is nothing left to do."""
        for _ in range(turns):
            plan = self.turn()
            if plan.wake_seconds is None and not (plan.create or plan.drain or plan.delete or plan.adopt):
                break
            self.come_up(can)
            self.pass_time(max(1.0, plan.wake_seconds or 0))

    def _is_there(self, worker: Worker) -> bool:
        found = self.workers.get(worker.metadata.name)
        return found is not None and found.metadata.uid == worker.metadata.uid
