# SPDX-License-Identifier: Apache-2.0
"""All sites: the remains of a runner that has ended, and the reports about machines without a Worker."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from prometheus_client import REGISTRY
from scripted_site import TIMING, ScriptedBroker, ScriptedClient, ScriptedSite, Statuses, owner, until
from test_fleet_site_trouble import LockedSite

from simyard.api.base import Json, Metadata
from simyard.api.cloud_site import CloudSite
from simyard.api.names import ANNOTATION_ABANDON
from simyard.fleet.broker.provisioning import Broker
from simyard.fleet.metering import Metering
from simyard.fleet.platform_health import PlatformHealth
from simyard.fleet.recorder import Recorder
from simyard.fleet.registry import Registry
from simyard.fleet.sites.reconciler import Sites, SitesSettings
from simyard.fleet.wiring import connect
from simyard.fleet.worker_statuses import WorkerStatuses
from simyard.plan.platform import MAX_OVERDUE_SECONDS
from simyard_sites.base import Changed, Machine, SiteEvent, UnauthenticatedError, UnavailableError
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import NotFoundError
from simyard_sites.kubernetes.resource import Resource

_versions = itertools.count(1)


@dataclass
class Api(ScriptedClient):
    """An API server without objects, or with one object whose status can be written."""

    item: Json | None = None
    platform: list[tuple[str, str]] = field(default_factory=list)
    """Status and message of ``PlatformHealthy`` in each status that was written."""

    async def patch(self, _: Resource, name: str, change: Json, *__: Any, **___: Any) -> Json:
        if self.item is None:
            raise NotFoundError(404, "NotFound", "no such site")
        conditions = change["status"]["conditions"]
        told = [(item["status"], item["message"]) for item in conditions if item["type"] == "PlatformHealthy"]
        self.platform += told
        metadata = {**self.item["metadata"], "resourceVersion": str(next(_versions))}
        return {**self.item, "metadata": metadata, "status": change["status"]}


@dataclass
class Recorded:
    """Events by kind and reason."""

    events: list[tuple[str, str]] = field(default_factory=list)

    def emit(self, resource: Resource, regarding: Metadata, reason: str, note: str, *, warning: bool) -> None:
        self.events.append((resource.kind, reason))


@dataclass
class DefectiveSite(ScriptedSite):
    """A site whose events the runner cannot read, and whose provider cannot be used after it was closed."""

    closed: bool = False

    async def events(self) -> AsyncGenerator[SiteEvent, None]:
        yield Changed(cast(Machine, None))

    async def aclose(self) -> None:
        self.closed = True


class AwaySite(ScriptedSite):
    """A site whose events cannot be followed."""

    async def events(self) -> AsyncGenerator[SiteEvent, None]:
        raise UnavailableError("nobody answers")
        yield


@dataclass
class World:
    """Sites whose providers are ``providers``, one after the other."""

    providers: list[ScriptedSite]
    name: str = "site"
    recorder: Recorded = field(default_factory=Recorded)
    api: Api = field(default_factory=Api)
    registry: Registry = field(init=False)
    sites: Sites = field(init=False)

    def __post_init__(self) -> None:
        self.registry = Registry(cast(KubeClient, self.api))
        metering = Metering(self.registry)
        self.sites = Sites(
            self.registry,
            cast(WorkerStatuses, Statuses()),
            cast(Broker, ScriptedBroker()),
            cast(Recorder, self.recorder),
            metering,
            SitesSettings("platform", "default", lambda *_: self.providers.pop(0), TIMING),
        )
        connect(self.registry, metering, self.sites)

    def site(self, generation: int = 1, **emulated: Any) -> CloudSite:
        metadata = {"name": self.name, "uid": "site-uid", "resourceVersion": str(next(_versions))}
        raw = {
            "metadata": {**metadata, "generation": generation},
            "spec": {"provider": {"emulated": emulated}, "orphanGraceSeconds": 0},
        }
        site = self.registry.sites.learn(raw)
        assert site is not None
        return site

    def gauge(self, name: str, **labels: str) -> float | None:
        return REGISTRY.get_sample_value(f"simyard_{name}", {"site": self.name, **labels})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.sites.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])


MakeWorld = Callable[..., World]


@pytest.fixture
def make_world() -> MakeWorld:
    return lambda *providers, name: World(list(providers), name)


async def test_the_gauges_of_a_runner_end_with_it(make_world: MakeWorld) -> None:
    good = LockedSite()
    good.add("pool-0-unknown", owner("pool-0"))
    world = make_world(LockedSite(broken=UnauthenticatedError("wrong password")), good, name="gauges")
    site = world.site()
    async with world.running():
        await until(lambda: world.gauge("site_breaker_open") == 1)
        site = world.site(2, timeScalePercent=7)
        await until(lambda: world.gauge("site_pace_items") is not None)
        assert world.gauge("site_breaker_open") == 0
        assert world.gauge("site_in_flight_limit", call="delete") is not None
        world.registry.sites.forget(site)
        await until(lambda: world.gauge("site_breaker_open") is None)
    assert world.gauge("site_pace_items") is None
    assert world.gauge("site_in_flight_limit", call="delete") is None
    assert world.gauge("site_batch_size", call="delete") is None


async def test_after_a_defect_a_site_gets_a_new_provider(make_world: MakeWorld) -> None:
    defective, good = DefectiveSite(), ScriptedSite()
    world = make_world(defective, good, name="defective")
    world.site()
    async with world.running():
        await until(lambda: good.calls["probe"])
        assert defective.closed


async def test_a_site_that_is_emptied_is_cleared(make_world: MakeWorld) -> None:
    provider = ScriptedSite()
    world = make_world(provider, name="emptied")
    world.site()
    async with world.running(), asyncio.timeout(240):
        await until(lambda: "emptied" in world.sites._running and world.sites._running["emptied"].runner.complete)
        await world.sites.wait_until_emptied("emptied")
    assert provider.calls["clear"] == 1


async def test_a_site_that_was_never_reached_is_not_waited_for(make_world: MakeWorld) -> None:
    provider = AwaySite()
    world = make_world(provider, name="never")
    world.site()
    async with world.running(), asyncio.timeout(240):
        await until(lambda: provider.calls["probe"])
        await world.sites.wait_until_emptied("never")
    assert provider.calls["clear"] == 0


async def test_an_orphan_whose_pool_is_gone_is_reported_on_its_site(make_world: MakeWorld) -> None:
    provider = ScriptedSite()
    provider.add("pool-0-unknown", owner("pool-0"))
    world = make_world(provider, name="orphaned")
    world.site()
    async with world.running():
        await until(lambda: not provider.machines)
    assert world.recorder.events == [("CloudSite", "OrphanRemoved")]


@pytest.mark.parametrize(("ready", "machines"), [("True", {"site": None}), ("False", {})])
async def test_a_pool_that_goes_waits_for_a_site_that_is_not_known_yet_but_for_none_that_is_away(
    ready: str, machines: dict[str, int | None]
) -> None:
    world = World([])
    condition = {"type": "Ready", "status": ready, "reason": "Because", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    raw = world.site().model_dump(mode="json", by_alias=True)
    raw["metadata"]["resourceVersion"] = str(next(_versions))
    world.registry.sites.learn({**raw, "status": {"version": "1", "conditions": [condition]}})
    assert world.sites.count_machines_of_pool("default", "pool") == machines


async def test_a_site_that_becomes_ready_is_told(make_world: MakeWorld) -> None:
    world = make_world(ScriptedSite(), name="ready")
    world.api.item = world.site().model_dump(mode="json", by_alias=True)
    async with world.running():
        await until(lambda: world.recorder.events)
    assert world.recorder.events == [("CloudSite", "SiteReady")]


async def test_a_site_that_is_gone_for_good_goes_when_it_is_abandoned_and_has_no_workers(make_world: MakeWorld) -> None:
    world = make_world(LockedSite(broken=UnauthenticatedError("gone for good")), name="gone")
    raw = world.site().model_dump(mode="json", by_alias=True)

    def learn(**annotations: str) -> None:
        metadata = {**raw["metadata"], "resourceVersion": str(next(_versions)), "annotations": annotations}
        world.registry.sites.learn({**raw, "metadata": metadata, "status": {"version": "1"}})

    metadata = {"name": "w", "namespace": "ns", "uid": "w-uid", "resourceVersion": str(next(_versions))}
    spec = {"serviceRef": {"name": "service"}, "site": world.name}
    worker = world.registry.workers.learn({"metadata": metadata, "spec": spec})
    assert worker is not None
    learn()
    async with world.running():
        emptied = asyncio.create_task(world.sites.wait_until_emptied(world.name))
        learn(**{ANNOTATION_ABANDON: "true"})
        await until(lambda: world.gauge("site_breaker_open") == 1)
        assert not emptied.done(), "a Worker is left"
        world.registry.workers.forget(worker)
        async with asyncio.timeout(240):
            await emptied
    assert world.recorder.events == [("CloudSite", "SiteAbandoned")]


async def test_a_site_that_does_not_answer_stays_as_long_as_nobody_gives_it_up(make_world: MakeWorld) -> None:
    world = make_world(LockedSite(broken=UnauthenticatedError("away")), name="away")
    raw = world.site().model_dump(mode="json", by_alias=True)
    metadata = {**raw["metadata"], "resourceVersion": str(next(_versions))}
    world.registry.sites.learn({**raw, "metadata": metadata, "status": {"version": "1"}})
    async with world.running():
        emptied = asyncio.create_task(world.sites.wait_until_emptied(world.name))
        await until(lambda: world.gauge("site_breaker_open") == 1)
        assert not emptied.done()
        emptied.cancel()
    assert world.recorder.events == []


async def test_a_problem_of_the_platform_costs_a_site_one_write_and_its_end_another(make_world: MakeWorld) -> None:
    world = make_world(ScriptedSite(), name="told")
    world.api.item = world.site().model_dump(mode="json", by_alias=True)
    behind, time = 0.0, 0.0
    health = PlatformHealth(lambda: ("pool", behind), lambda: None, lambda: time)
    health.on_change.append(world.sites.platform_changed)

    def looks(count: int) -> None:
        nonlocal behind, time
        for _ in range(count):
            time += 15.0
            behind = behind + 15.0 if behind else 0.0
            health.look()

    async with world.running():
        await until(lambda: world.api.platform == [("True", "")])
        behind = 1.0
        looks(50)
        await until(lambda: len(world.api.platform) == 2)
        looks(50)
        behind = 0.0
        looks(3)
        behind = MAX_OVERDUE_SECONDS
        looks(1)
        behind = 0.0
        looks(4)
        await until(lambda: len(world.api.platform) == 3)
    (_, before), (status, text), after = world.api.platform
    assert (before, status, after) == ("", "False", ("True", ""))
    assert "the operator's work on pool has stood still since" in text
