"""kopf inside of the operator: its failures are seen, and it is started again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from api_proxy import ApiProxy
from fleet_world import World

from simyard.api import names
from simyard.controllers.embedded import Kopf
from simyard.fleet.fleet import Fleet
from simyard.kube.cache import ALL_NAMESPACES

DISCOVERY = f"/apis/{names.GROUP}/v1alpha1"


class Nothing:
    """Stands for what the fleet does before an object may go: nothing is ever left."""

    async def torn_down(self, uid: str) -> None:
        """Nothing is left of the pool."""

    async def emptied(self, name: str) -> None:
        """Nothing is left of the site."""


@dataclass
class Part:
    """As much of a fleet, or of its registry, as kopf needs."""

    pools: Any
    sites: Any
    registry: Any = None
    client: Any = None
    configuration: Any = None
    namespaces: Sequence[str] = ALL_NAMESPACES


async def test_kopf_whose_discovery_fails_once_is_started_again_and_does_its_work(
    make_world: Callable[[], Awaitable[World]],
) -> None:
    world = await make_world()
    failures = iter([True])
    proxy = ApiProxy(world.client.configuration, lambda path: path == DISCOVERY and next(failures, False))
    async with proxy.serving() as configuration:
        registry = world.seen
        seen = Part(registry.pools, registry.sites, client=Part(None, None, configuration=configuration))
        kopf = Kopf(cast(Fleet, Part(Nothing(), Nothing(), registry=seen)))
        running = asyncio.create_task(kopf.run())
        try:
            await world.make(names.WORKER_POOLS, "pool", {"serviceRef": {"name": "program"}, "replicas": 0})

            def has_finalizer() -> bool:
                pool = registry.pools.get(world.name, "pool")
                return pool is not None and names.FINALIZER in pool.metadata.finalizers

            await world.until(has_finalizer, "kopf has set the finalizer")
            assert proxy.refused == [DISCOVERY]
            await world.until(lambda: not kopf.problem(), "kopf is well")
            await world.client.delete(names.WORKER_POOLS, "pool", world.name)
            await world.until(lambda: registry.pools.get(world.name, "pool") is None, "it is gone")
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
