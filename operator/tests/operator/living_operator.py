# SPDX-License-Identifier: Apache-2.0
"""An operator in the test's process; what kopf does in the operator is done here in a few lines."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from aiormq.abc import DeliveredMessage
from fleet_life import Life, WorldClient

from simyard.api import names
from simyard.api.worker_pool import WorkerPool
from simyard.fleet.fleet import Fleet
from simyard.messaging.liveness import Liveness
from simyard_sites.kubernetes.errors import NotFoundError


@dataclass
class Operator:
    """An operator in this process."""

    life: Life
    fleet: Fleet
    task: asyncio.Task[None]

    async def end(self) -> None:
        """It does nothing more, whatever it was doing."""
        self.life.dead.set()
        self.task.cancel()
        await asyncio.wait([self.task])
        self.raise_defect()

    def raise_defect(self) -> None:
        """Raise what has ended it, if anything has."""
        if self.task.done() and not self.task.cancelled() and (error := self.task.exception()) is not None:
            raise error


async def run_fleet(fleet: Fleet, client: WorldClient) -> None:
    async with client, asyncio.TaskGroup() as group:
        _release_pools(fleet, client, group)
        await fleet.run()


def _release_pools(fleet: Fleet, client: WorldClient, group: asyncio.TaskGroup) -> None:
    """As kopf does: take the finalizer from a pool that is torn down."""
    waiting: set[str] = set()

    async def release(pool: WorkerPool) -> None:
        await fleet.pools.wait_until_torn_down(pool.metadata.uid)
        body = {"metadata": {"uid": pool.metadata.uid, "finalizers": []}}
        while True:
            with contextlib.suppress(NotFoundError):
                try:
                    await client.patch(names.WORKER_POOLS, pool.metadata.name, body, pool.metadata.namespace)
                except Exception as error:
                    if not getattr(error, "retryable", False):
                        raise
                    continue
            return

    def changed(_: WorkerPool | None, new: WorkerPool | None) -> None:
        if new is not None and new.metadata.deletion_timestamp is not None and new.metadata.uid not in waiting:
            waiting.add(new.metadata.uid)
            group.create_task(release(new))

    fleet.registry.pools.subscribe(changed)


def hear_broker(liveness: Liveness, home_vhost: str, vhost: str) -> None:
    """Hear of the consumers of a virtual host where the broker tells of all of them: in one."""
    liveness._access = replace(liveness._access, vhost=home_vhost)
    heard: Callable[[DeliveredMessage], Awaitable[None]] = liveness._on_event

    async def on_event(message: DeliveredMessage) -> None:
        headers = message.header.properties.headers or {}
        if headers.get("vhost") == vhost:
            headers["vhost"] = home_vhost
            await heard(message)

    liveness._on_event = on_event  # type: ignore[method-assign]
