"""The handlers of our kinds.

What is to be done is decided and done by the fleet, which has caches of its own; kopf sets the finalizer on WorkerPools
and CloudSites, and calls us when one is to be deleted: the finalizer goes when the handler returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import kopf

from simyard.api import names
from simyard_sites.kubernetes.resource import Resource

WAIT_SECONDS = 20.0
RETRY_SECONDS = 1.0
TornDown = Callable[[str], Awaitable[None]]
"""Waits until nothing is left of a pool; gets its uid."""
Emptied = Callable[[str, str], Awaitable[None]]
"""Waits until nothing is left of a site; gets its name and its uid."""


def handlers(pool_torn_down: TornDown, site_emptied: Emptied) -> kopf.OperatorRegistry:
    """The registry of handlers."""
    registry = kopf.OperatorRegistry()

    async def delete_pool(uid: str, **_: Any) -> None:
        """Wait until the pool's workers and machines and what it had at the broker are gone."""
        await _within_time(pool_torn_down(uid))

    async def delete_site(name: str, uid: str, **_: Any) -> None:
        """Wait until no Worker and no machine is left at the site."""
        await _within_time(site_emptied(name, uid))

    kopf.on.delete(*_selector(names.WORKER_POOLS), registry=registry, id="machines")(delete_pool)
    kopf.on.delete(*_selector(names.CLOUD_SITES), registry=registry, id="machines")(delete_site)
    return registry


async def _within_time(waiting: Awaitable[None]) -> None:
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            await waiting
    except TimeoutError:
        raise kopf.TemporaryError("workers or machines are left", delay=RETRY_SECONDS) from None


def _selector(resource: Resource) -> tuple[str, str, str]:
    return resource.group, resource.version, resource.plural
