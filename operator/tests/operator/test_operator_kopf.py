# SPDX-License-Identifier: Apache-2.0
"""kopf inside of the operator: when it stands still the process ends, and the next one does the work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from api_proxy import ApiProxy
from fleet_world import World
from kubernetes_asyncio.client import Configuration

from simyard.api import names
from simyard.controllers.leadership import Leadership
from simyard.controllers.operator import run_operator
from simyard.fleet.fleet import Fleet
from simyard.kube.cache import ALL_NAMESPACES
from simyard.kube.lease import Lease

DISCOVERY = f"/apis/{names.GROUP}/v1alpha1"


class Nothing:
    """What the fleet does before an object may go: nothing is ever left."""

    async def wait_until_torn_down(self, uid: str) -> None:
        """Nothing is left of the pool."""

    async def wait_until_emptied(self, name: str) -> None:
        """Nothing is left of the site."""


@dataclass
class Client:
    """The way to the API server."""

    configuration: Configuration


@dataclass
class Objects:
    """As much of a registry as kopf needs."""

    pools: Any
    sites: Any
    client: Client
    namespaces: Sequence[str] = ALL_NAMESPACES

    async def wait_until_synced(self) -> None:
        """The caches are the test's own."""


@dataclass
class PartOfFleet:
    """As much of a fleet as kopf needs."""

    registry: Objects
    pools: Nothing = field(default_factory=Nothing)
    sites: Nothing = field(default_factory=Nothing)

    async def run(self) -> None:
        """Do nothing until cancelled."""
        await asyncio.Event().wait()


async def test_an_operator_whose_kopf_stands_still_ends_and_the_next_one_does_the_work(
    make_world: Callable[[], Awaitable[World]],
) -> None:
    world = await make_world()
    failures = iter([True])
    proxy = ApiProxy(world.client.configuration, lambda path: path == DISCOVERY and next(failures, False))
    pools = world.seen.pools

    def lead(configuration: Configuration) -> tuple[Leadership, asyncio.Event]:
        stop = asyncio.Event()
        objects = Objects(pools, world.seen.sites, Client(configuration))
        lease = Lease(world.client, namespace=world.name, name="kopf", identity="test")
        fleet = cast(Fleet, PartOfFleet(objects))
        return Leadership(lease, fleet, stop.set, max_stalled_seconds=3.0), stop

    async with proxy.serving() as configuration:
        await world.make(names.WORKER_POOLS, "pool", {"serviceRef": {"name": "program"}, "replicas": 0})
        with pytest.raises(Exception, match=r"400|stands still"):
            await run_operator(*lead(configuration))
        assert proxy.refused == [DISCOVERY]

    def has_finalizer() -> bool:
        pool = pools.get(world.name, "pool")
        return pool is not None and names.FINALIZER in pool.metadata.finalizers

    leadership, stop = lead(world.client.configuration)
    running = asyncio.create_task(run_operator(leadership, stop))
    await world.until(has_finalizer, "kopf has set the finalizer")
    await world.client.delete(names.WORKER_POOLS, "pool", world.name)
    await world.until(lambda: pools.get(world.name, "pool") is None, "it is gone")
    stop.set()
    await running
