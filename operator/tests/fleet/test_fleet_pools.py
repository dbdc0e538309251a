"""Pools beside each other: their plans share sites, and each writes its status once a second at most."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from simyard.api import names
from simyard.api.base import Json
from simyard.api.cloud_site import CloudSite
from simyard.fleet.licences import Licences
from simyard.fleet.pools import STATUS_SPACING_SECONDS, Pools
from simyard.fleet.registry import Registry, pool_uid_of
from simyard.kube.errors import NotFoundError
from simyard.plan.placement import SiteState

READY = {"type": "Ready", "status": "True", "reason": "ProbeSucceeded", "lastTransitionTime": "2026-01-01T00:00:00Z"}
SERVICE = {"interface": {}, "connector": {"python": {"class": "module:Class"}}}


class Server:
    """As much of an API server as pools need; ``gate`` holds up the creation of Workers."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Json] = {}
        self.gate = asyncio.Event()
        self.asked: list[str] = []
        self.written: dict[str, list[float]] = {}
        self._numbers = itertools.count(1)

    def make(self, resource: names.Resource, name: str, **parts: Any) -> Json:
        number = next(self._numbers)
        body = {"metadata": {"name": name, "namespace": "ns", "uid": f"uid-{number}", "generation": 1}, **parts}
        return self._store(resource, body)

    async def create(self, resource: names.Resource, body: Json, namespace: str = "") -> Json:
        self.asked.append(body["spec"]["site"])
        await self.gate.wait()
        metadata = {**body["metadata"], "uid": f"uid-{next(self._numbers)}", "generation": 1}
        return self._store(resource, {**body, "metadata": metadata})

    async def get(self, resource: names.Resource, name: str, namespace: str = "") -> Json:
        if (resource.kind, name) not in self.objects:
            raise NotFoundError("there is none")
        return self.objects[resource.kind, name]

    async def patch(
        self, resource: names.Resource, name: str, body: Json, namespace: str = "", *, subresource: str = ""
    ) -> Json:
        assert subresource == "status"
        self.written.setdefault(name, []).append(asyncio.get_running_loop().time())
        old = self.objects[resource.kind, name]
        return self._store(resource, {**old, "status": _merged(old.get("status", {}), body["status"])})

    async def delete(self, resource: names.Resource, name: str, namespace: str = "", *, uid: str = "") -> Json | None:
        self.objects.pop((resource.kind, name), None)
        return None

    def _store(self, resource: names.Resource, body: Json) -> Json:
        stored = {**body, "metadata": {**body["metadata"], "resourceVersion": str(next(self._numbers))}}
        self.objects[resource.kind, stored["metadata"]["name"]] = stored
        return stored


def _merged(old: Json, patch: Json) -> Json:
    both = {**old, **patch}
    return {name: value for name, value in both.items() if value is not None}


@dataclass
class World:
    """Pools with all that is beside them played."""

    server: Server = field(default_factory=Server)
    reachable: bool = True

    def __post_init__(self) -> None:
        self.registry = Registry(cast(Any, self.server))
        self.pools = Pools(self.registry, cast(Any, self), cast(Any, self), cast(Any, self), Licences(self.registry))
        self.registry.services.learn(self.server.make(names.SIMULATION_SERVICES, "service", spec=SERVICE))

    def make_pool(self, name: str, replicas: int) -> None:
        spec = {"serviceRef": {"name": "service"}, "replicas": replicas}
        self.registry.pools.learn(self.server.make(names.WORKER_POOLS, name, spec=spec))

    def states(self, reserved: Mapping[str, int]) -> dict[str, SiteState]:
        spec = {"provider": {"emulated": {}}, "limits": {"maxWorkers": 4}}
        raw = {"metadata": {"name": "site"}, "spec": spec, "status": {"conditions": [READY]}}
        workers = self.registry.workers.count("site", "site") + reserved.get("site", 0)
        return {"site": SiteState(CloudSite.model_validate(raw), workers)}

    def emit(self, *about: object, warning: bool = False) -> None:
        """As a recorder of events."""

    def register(self) -> None:
        """Every Worker becomes ready."""
        for worker in self.registry.workers:
            raw = self.server.objects["Worker", worker.metadata.name]
            condition = {**READY, "reason": "Registered"}
            self.registry.workers.learn(
                self.server._store(names.WORKERS, {**raw, "status": {"conditions": [condition]}})
            )

    def of(self, pool: str) -> int:
        uid = self.server.objects["WorkerPool", pool]["metadata"]["uid"]
        return sum(pool_uid_of(worker) == uid for worker in self.registry.workers)

    def ready_in_status(self, pool: str) -> int:
        return int(self.server.objects["WorkerPool", pool].get("status", {}).get("readyReplicas", 0))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    running = asyncio.create_task(world.pools.run())
    yield world
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def until(check: Any) -> None:
    async with asyncio.timeout(30):
        while not check():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


async def test_pools_that_start_together_never_pass_the_maximum_of_a_site(world: World) -> None:
    world.make_pool("one", 3)
    await until(lambda: len(world.server.asked) == 3)
    world.make_pool("two", 3)
    await until(lambda: len(world.server.asked) == 4)
    world.pools.wake_all()
    world.server.gate.set()
    await until(lambda: len(world.registry.workers) == 4)
    await until(lambda: "has its maximum of 4 workers" in str(world.server.objects["WorkerPool", "two"].get("status")))
    assert (world.of("one"), world.of("two")) == (3, 1)
    assert len(world.server.asked) == 4


async def test_a_status_is_written_once_a_second_at_most_also_when_it_is_urgent(world: World) -> None:
    world.server.gate.set()
    world.make_pool("one", 2)
    await until(lambda: world.of("one") == 2)
    world.register()
    await until(lambda: world.ready_in_status("one") == 2)
    for worker in list(world.registry.workers):
        world.registry.workers.forget(worker)
        del world.server.objects["Worker", worker.metadata.name]
    await until(lambda: world.ready_in_status("one") == 0)
    times = world.server.written["one"]
    assert len(times) >= 2
    assert all(later - earlier >= STATUS_SPACING_SECONDS for earlier, later in itertools.pairwise(times))
