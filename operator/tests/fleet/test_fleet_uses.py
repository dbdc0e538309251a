# SPDX-License-Identifier: Apache-2.0
"""The use of a pool that has an idle timeout."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any, cast

import pytest

from simyard.api import names
from simyard.api.base import Json, from_seconds
from simyard.api.worker_pool import WorkerPool
from simyard.fleet.pools.uses import Uses
from simyard.fleet.registry import Registry, get_time
from simyard.fleet.wiring import connect
from simyard.guest.messages import Active, Drained
from simyard.messaging.events import ReceivedEvent
from simyard.plan.idleness import Use
from simyard_adapter.wire import ACTIVE_SECONDS, name_pool_user
from simyard_sites.kubernetes.resource import Resource

FINISHED = "2026-01-01T12:00:00Z"
COMPLETE = {
    "finishedTime": FINISHED,
    "conditions": [{"type": "Complete", "status": "True", "reason": "Succeeded", "lastTransitionTime": FINISHED}],
}


class World:
    """Caches that are filled by hand."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.registry = Registry(cast(Any, None))
        self.uses = Uses(self.registry, lambda pool: self.heard.append(pool.metadata.name))
        connect(self.registry, self.uses)
        self._numbers = itertools.count(1)

    def put(self, resource: Resource, name: str, spec: Json, status: Json | None = None, **meta: Any) -> Json:
        metadata = {"namespace": "ns", "uid": name, "resourceVersion": str(next(self._numbers)), **meta}
        raw = {"metadata": {"name": name, **metadata}, "spec": spec, "status": status or {}}
        next(cache for cache in self.registry.caches if cache.resource is resource).learn(raw)
        return raw

    def pool(self, name: str = "pool", **spec: Any) -> WorkerPool:
        self.put(names.WORKER_POOLS, name, {"serviceRef": {"name": "service"}, "idleTimeoutSeconds": 60, **spec})
        found = self.registry.pools.get("ns", name)
        assert found is not None
        return found

    def worker(self, name: str = "pool-0") -> None:
        owner = {"kind": "WorkerPool", "name": "pool", "uid": "pool", "controller": True}
        self.put(names.WORKERS, name, {"serviceRef": {"name": "service"}, "site": "a"}, ownerReferences=[owner])

    def act(self, kind: str, target: str, status: Json | None = None) -> None:
        self.put(names.SERVICE_ACTIONS, "act", {"target": {"kind": kind, "name": target}, "action": "solve"}, status)


@pytest.mark.parametrize(
    ("kind", "target"), [("WorkerPool", "pool"), ("Worker", "pool-0"), ("SimulationService", "service")]
)
def test_an_action_uses_the_pool_that_it_is_for(kind: str, target: str) -> None:
    world = World()
    pool = world.pool()
    world.worker()
    world.act(kind, target)
    assert world.heard == ["pool"]
    last = world.uses.get_use(pool, busy=False).last
    assert last is not None
    assert get_time() - last < timedelta(hours=1)


def test_a_pool_is_used_while_an_action_waits_for_it_or_runs_on_it() -> None:
    world = World()
    pool = world.pool()
    assert world.uses.get_use(pool, busy=False) == Use()
    assert world.uses.get_use(pool, busy=True).now
    world.act("WorkerPool", "pool")
    assert world.uses.get_use(pool, busy=False).now
    world.act("WorkerPool", "pool", COMPLETE)
    assert not world.uses.get_use(pool, busy=False).now


def test_an_action_on_the_service_needs_a_pool_only_while_the_service_has_no_worker() -> None:
    world = World()
    pool = world.pool()
    world.act("SimulationService", "service")
    assert world.uses.get_use(pool, busy=False).now
    world.worker("other-0")
    assert not world.uses.get_use(pool, busy=False).now


def test_actions_that_were_listed_before_their_pool_count_from_when_they_finished() -> None:
    world = World()
    world.act("WorkerPool", "pool", COMPLETE)
    pool = world.pool()
    assert world.uses.get_use(pool, busy=False).last is None
    world.uses.look_back()
    assert str(world.uses.get_use(pool, busy=False).last) == "2026-01-01 12:00:00+00:00"


def test_a_worker_that_is_active_may_be_so_until_it_would_say_so_again() -> None:
    world = World()
    pool = world.pool()
    world.worker()
    world.uses.apply_event(ReceivedEvent(name_pool_user("pool"), "pool-0", Active(), received_at=1000.0))
    world.uses.apply_event(ReceivedEvent(name_pool_user("pool"), "pool-0", Drained(), received_at=5000.0))
    assert world.uses.get_use(pool, busy=False) == Use(last=from_seconds(1000 + ACTIVE_SECONDS))
    assert world.heard == ["pool"]


def test_of_pools_without_a_time_out_nothing_is_kept() -> None:
    world = World()
    pool = world.pool(idleTimeoutSeconds=None)
    world.act("WorkerPool", "pool")
    assert world.uses.get_use(pool, busy=True) == Use()
    assert world.heard == []
