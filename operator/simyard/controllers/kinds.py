"""The handlers of our kinds.

What is to be done is decided and done by the fleet, which has caches of its own; kopf sets the finalizer on WorkerPools
and CloudSites, and calls us when one is to be deleted: the finalizer goes when the handler returns.
"""

from __future__ import annotations

import asyncio
from typing import Any

import kopf

from simyard.api import names
from simyard.api.names import Resource
from simyard.fleet.fleet import Fleet

WAIT_SECONDS = 20.0
RETRY_SECONDS = 1.0


def handlers(fleet: Fleet) -> kopf.OperatorRegistry:
    """The registry of handlers."""
    registry = kopf.OperatorRegistry()

    async def delete_pool(uid: str, **_: Any) -> None:
        """Wait until the pool's workers and machines and what it had at the broker are gone."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await fleet.pools.torn_down(uid)
        except TimeoutError:
            raise kopf.TemporaryError("workers or machines are left", delay=RETRY_SECONDS) from None

    async def delete_site(name: str, **_: Any) -> None:
        """Wait until no Worker and no machine is left at the site."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await fleet.sites.emptied(name)
        except TimeoutError:
            raise kopf.TemporaryError("workers or machines are left", delay=RETRY_SECONDS) from None

    kopf.on.delete(*_selector(names.WORKER_POOLS), registry=registry, id="machines")(delete_pool)
    kopf.on.delete(*_selector(names.CLOUD_SITES), registry=registry, id="machines")(delete_site)
    return registry


def _selector(resource: Resource) -> tuple[str, str, str]:
    return resource.group, resource.version, resource.plural
