# SPDX-License-Identifier: Apache-2.0
"""The assignment of ServiceActions to workers that are connected to the broker, with caches filled by hand."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from simyard.api import names
from simyard.api.base import Json
from simyard.api.worker import Worker
from simyard.fleet.actions.assignment import Assignment
from simyard.fleet.registry import Registry, get_queue
from simyard_sites.kubernetes.resource import Resource

TIME = "2026-01-01T12:00:00Z"
DEADLINE_SECONDS = 30.0


class World:
    """Two ready workers of a pool, and a broker at which the workers in ``away`` have no consumer."""

    def __init__(self) -> None:
        self.registry = Registry(cast(Any, self))
        self.away: set[str] = set()
        self.assignment = Assignment(self.registry, self._has_consumer, lambda _: None)
        self._written: asyncio.Queue[Json] = asyncio.Queue()
        self._numbers = itertools.count(1)
        self._stored: dict[str, Json] = {}
        self._put(names.WORKER_POOLS, "pool", {"serviceRef": {"name": "service"}})
        condition = {"type": "Ready", "status": "True", "reason": "Registered", "lastTransitionTime": TIME}
        owner = {"kind": "WorkerPool", "name": "pool", "uid": "pool", "controller": True}
        spec = {"serviceRef": {"name": "service"}, "site": "a"}
        for name in ("w0", "w1"):
            self._put(names.WORKERS, name, spec, {"conditions": [condition]}, ownerReferences=[owner])

    def _has_consumer(self, queue: str) -> bool:
        return all(queue != get_queue(self.worker(name)) for name in self.away)

    def worker(self, name: str) -> Worker:
        found = self.registry.find_worker(name)
        assert found is not None
        return found

    def _put(self, resource: Resource, name: str, spec: Json, status: Json | None = None, **meta: Any) -> Json:
        metadata = {"namespace": "ns", "uid": name, "resourceVersion": str(next(self._numbers)), **meta}
        raw = {"metadata": {"name": name, "creationTimestamp": TIME, **metadata}, "spec": spec, "status": status or {}}
        self._stored[name] = raw
        next(cache for cache in self.registry.caches if cache.resource is resource).learn(raw)
        return raw

    def ask(self, kind: str, target: str) -> None:
        """Let an action on a target wait for a worker."""
        self._put(names.SERVICE_ACTIONS, "action", {"target": {"kind": kind, "name": target}, "action": "solve"})
        action = self.registry.find_action("action")
        assert action is not None
        self.assignment.add_waiting(action)

    async def patch(self, resource: Resource, name: str, body: Json, namespace: str, *, subresource: str) -> Json:
        """Write a status, as the API server does."""
        before = self._stored[name]
        stored = self._put(resource, name, before["spec"], {**before["status"], **body["status"]})
        self._written.put_nowait(stored["status"])
        return stored

    async def next_status(self) -> Json:
        """Return the next status of the action that is written."""
        return await asyncio.wait_for(self._written.get(), DEADLINE_SECONDS)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    running = asyncio.create_task(made.assignment.run())
    yield made
    running.cancel()
    await asyncio.wait({running})


async def test_an_action_is_assigned_to_a_ready_worker_that_is_at_the_broker(world: World) -> None:
    world.away = {"w0"}
    world.ask("WorkerPool", "pool")
    assert (await world.next_status())["worker"] == "w1"


async def test_an_action_on_a_worker_that_left_the_broker_waits_until_it_is_back(world: World) -> None:
    world.away = {"w0"}
    world.ask("Worker", "w0")
    assert "worker" not in await world.next_status()
    world.away = set()
    world.assignment.presence_changed(world.worker("w0"))
    assert (await world.next_status())["worker"] == "w0"
