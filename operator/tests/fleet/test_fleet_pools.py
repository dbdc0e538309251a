# SPDX-License-Identifier: Apache-2.0
"""Several pools at once: their plans share sites, and each status is written once a second at most."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from prometheus_client import REGISTRY

from simyard.api import names
from simyard.api.base import Json
from simyard.api.cloud_site import CloudSite
from simyard.fleet.pools.licences import Licences
from simyard.fleet.pools.reconciler import Pools
from simyard.fleet.pools.workers import WRITERS
from simyard.fleet.registry import Registry, get_pool_uid
from simyard.fleet.timing import PRODUCTION
from simyard.fleet.wiring import connect
from simyard.plan.placement import SiteState
from simyard_sites.kubernetes.errors import AlreadyExistsError, ApiError, NotFoundError, UnavailableError
from simyard_sites.kubernetes.resource import Resource

READY = {"type": "Ready", "status": "True", "reason": "ProbeSucceeded", "lastTransitionTime": "2026-01-01T00:00:00Z"}
SERVICE = {"interface": {}, "connector": {"python": {"class": "module:Class"}}}


class Server:
    """The part of an API server that pools need.

    ``gate`` holds up the creation of Workers. ``loses`` is called while the answer for a Worker is lost.
    """

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Json] = {}
        self.gate = asyncio.Event()
        self.asked: list[str] = []
        self.written: dict[str, list[float]] = {}
        self.refuses: ApiError | None = None
        self.loses_answers = False
        self.loses: dict[str, Callable[[], None]] = {}
        self.deletes = 0
        self.permits: asyncio.Semaphore | None = None
        self._numbers = itertools.count(1)

    def make(self, resource: Resource, name: str, **parts: Any) -> Json:
        number = next(self._numbers)
        body = {"metadata": {"name": name, "namespace": "ns", "uid": f"uid-{number}", "generation": 1}, **parts}
        return self._store(resource, body)

    async def create(self, resource: Resource, body: Json, namespace: str = "") -> Json:
        self.asked.append(body["spec"]["site"])
        await self.gate.wait()
        if self.refuses is not None:
            raise self.refuses
        name = body["metadata"]["name"]
        if (resource.kind, name) in self.objects:
            raise AlreadyExistsError(409, "AlreadyExists", name)
        metadata = {**body["metadata"], "uid": f"uid-{next(self._numbers)}", "generation": 1}
        stored = self._store(resource, {**body, "metadata": metadata})
        if (happens := self.loses.pop(name, None)) is not None:
            happens()
            raise UnavailableError(503, "Unavailable", "the answer was lost")
        return stored

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Json:
        if (resource.kind, name) not in self.objects:
            raise NotFoundError(404, "NotFound", "there is none")
        return self.objects[resource.kind, name]

    async def patch(
        self, resource: Resource, name: str, body: Json, namespace: str = "", *, subresource: str = ""
    ) -> Json:
        assert subresource == "status"
        self.written.setdefault(name, []).append(asyncio.get_running_loop().time())
        old = self.objects[resource.kind, name]
        stored = self._store(resource, {**old, "status": _merged(old.get("status", {}), body["status"])})
        if self.loses_answers:
            raise UnavailableError(503, "Unavailable", "the answer was lost")
        return stored

    async def delete(self, resource: Resource, name: str, namespace: str = "", *, uid: str = "") -> Json | None:
        self.deletes += 1
        if self.permits is not None:
            await self.permits.acquire()
        self.objects.pop((resource.kind, name), None)
        return None

    def _store(self, resource: Resource, body: Json) -> Json:
        stored = {**body, "metadata": {**body["metadata"], "resourceVersion": str(next(self._numbers))}}
        self.objects[resource.kind, stored["metadata"]["name"]] = stored
        return stored


def _merged(old: Json, patch: Json) -> Json:
    both = {**old, **patch}
    return {name: value for name, value in both.items() if value is not None}


@dataclass
class World:
    """Pools with scripted surroundings."""

    server: Server = field(default_factory=Server)
    problem: str = ""
    most: int = 4
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.registry = Registry(cast(Any, self.server))
        licences = Licences(self.registry)
        self.pools = Pools(self.registry, cast(Any, self), cast(Any, self), cast(Any, self), licences)
        connect(self.registry, licences, self.pools, self.pools.uses)
        self.registry.services.learn(self.server.make(names.SIMULATION_SERVICES, "service", spec=SERVICE))

    def make_pool(self, name: str, replicas: int) -> None:
        spec = {"serviceRef": {"name": "service"}, "replicas": replicas}
        self.registry.pools.learn(self.server.make(names.WORKER_POOLS, name, spec=spec))

    def list_states(self, reserved: Mapping[str, int]) -> dict[str, SiteState]:
        spec = {"provider": {"emulated": {}}, "limits": {"maxWorkers": self.most}}
        raw = {"metadata": {"name": "site"}, "spec": spec, "status": {"conditions": [READY]}}
        workers = self.registry.workers.count("site", "site") + reserved.get("site", 0)
        return {"site": SiteState(CloudSite.model_validate(raw), workers)}

    def emit(self, *about: object, warning: bool = False) -> None:
        """Record an Event, like a recorder."""
        self.told.append(str(about[2]))

    def sweep_soon(self) -> None:
        """Ignore the request for a sweep, like a broker that is swept."""

    def scale(self, name: str, replicas: int) -> None:
        raw = self.server.objects["WorkerPool", name]
        metadata = {**raw["metadata"], "generation": raw["metadata"]["generation"] + 1}
        spec = {**raw["spec"], "replicas": replicas}
        stored = self.server._store(names.WORKER_POOLS, {**raw, "metadata": metadata, "spec": spec})
        self.registry.pools.learn(stored)

    def fail(self, name: str) -> None:
        """Let the machine of a Worker fail."""
        raw = self.server.objects["Worker", name]
        condition = {**READY, "status": "False", "reason": "MachineFailed"}
        self.registry.workers.learn(self.server._store(names.WORKERS, {**raw, "status": {"conditions": [condition]}}))

    def lose(self, name: str) -> None:
        """Let a Worker be gone."""
        worker = self.registry.workers.get("ns", name)
        assert worker is not None
        del self.server.objects["Worker", name]
        self.registry.workers.forget(worker)

    def register(self) -> None:
        """Let every Worker become ready."""
        for worker in self.registry.workers:
            raw = self.server.objects["Worker", worker.metadata.name]
            condition = {**READY, "reason": "Registered"}
            self.registry.workers.learn(
                self.server._store(names.WORKERS, {**raw, "status": {"conditions": [condition]}})
            )

    def of(self, pool: str) -> int:
        uid = self.server.objects["WorkerPool", pool]["metadata"]["uid"]
        return sum(get_pool_uid(worker) == uid for worker in self.registry.workers)

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
    async with asyncio.timeout(240):
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
    assert all(later - earlier >= PRODUCTION.status_spacing_seconds for earlier, later in itertools.pairwise(times))


async def test_a_pool_that_waits_for_room_is_told_when_a_worker_of_another_goes(world: World) -> None:
    world.server.gate.set()
    world.make_pool("one", 4)
    await until(lambda: world.of("one") == 4)
    world.make_pool("two", 1)
    await until(lambda: "has its maximum" in str(world.server.objects["WorkerPool", "two"].get("status")))
    world.scale("one", 3)
    await until(lambda: world.of("two") == 1)


async def test_a_place_that_was_held_in_vain_goes_to_who_waits_for_it(world: World) -> None:
    world.make_pool("one", 4)
    await until(lambda: len(world.server.asked) == 4)
    world.make_pool("two", 1)
    await until(lambda: "has its maximum" in str(world.server.objects["WorkerPool", "two"].get("status")))
    world.server.refuses = ApiError(403, "Forbidden", "a quota")
    world.server.gate.set()
    await until(lambda: len(world.server.asked) > 4)


async def test_a_worker_of_whose_making_no_answer_came_counts_before_another_is_made(world: World) -> None:
    world.server.gate.set()
    world.make_pool("one", 1)
    await until(lambda: world.of("one") == 1)

    def meanwhile() -> None:
        world.lose("one-0")
        world.scale("one", 1)

    world.server.loses["one-1"] = meanwhile
    world.scale("one", 2)
    await until(lambda: not world.server.loses and world.of("one") == 1)
    assert [name for kind, name in world.server.objects if kind == "Worker"] == ["one-1"]


async def test_what_failed_is_remembered_when_its_successor_cannot_be_made_yet(world: World) -> None:
    world.server.gate.set()
    world.make_pool("one", 1)
    await until(lambda: world.of("one") == 1)
    world.server.refuses = UnavailableError(503, "Unavailable", "it restarts")
    world.fail("one-0")
    await until(lambda: world.of("one") == 0 and len(world.server.asked) > 2)
    world.server.refuses = None
    await until(lambda: world.of("one") == 1)
    assert world.told.count("WorkerReplaced") == 1
    await until(lambda: world.server.objects["WorkerPool", "one"].get("status", {}).get("failures"))


async def test_a_late_echo_of_our_own_write_does_not_replace_what_is_newer(world: World) -> None:
    world.server.gate.set()
    world.server.loses_answers = True
    world.make_pool("one", 1)
    await until(lambda: world.of("one") == 1 and "one" in world.server.written)
    echo = world.server.objects["WorkerPool", "one"]
    world.fail("one-0")
    await until(lambda: "WorkerReplaced" in world.told)
    world.registry.pools.learn(echo)
    world.server.loses_answers = False
    await until(lambda: world.of("one") == 1)
    world.register()
    await until(lambda: world.ready_in_status("one") == 1)
    assert len(world.server.objects["WorkerPool", "one"]["status"]["failures"]) == 1


async def test_a_pool_that_ends_many_workers_does_not_hold_up_the_writes_of_another(world: World) -> None:
    world.most = 200
    world.server.gate.set()
    world.make_pool("one", 150)
    await until(lambda: world.of("one") == 150)
    permits = world.server.permits = asyncio.Semaphore(0)
    world.scale("one", 0)
    await until(lambda: world.server.deletes == WRITERS)
    world.make_pool("two", 1)

    def goes_on() -> bool:
        permits.release()
        return world.of("two") == 1 or world.server.deletes == 150

    await until(goes_on)
    assert world.of("one") > 0
    assert world.of("two") == 1


async def test_the_metrics_are_the_sums_over_the_pools_that_exist(world: World) -> None:
    world.server.gate.set()
    world.make_pool("one", 2)
    world.make_pool("two", 1)
    await until(lambda: len(world.registry.workers) == 3)
    world.register()
    await until(lambda: REGISTRY.get_sample_value("simyard_workers", {"state": "ready"}) == 3)
    pool = world.registry.pools.get("ns", "one")
    assert pool is not None
    world.registry.pools.forget(pool)
    assert REGISTRY.get_sample_value("simyard_workers", {"state": "ready"}) == 1
