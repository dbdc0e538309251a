# SPDX-License-Identifier: Apache-2.0
"""Rotations of a world's master key, and what the broker says of logins."""

from __future__ import annotations

import asyncio
import contextlib
import secrets

from fleet_world import LOOK_AT_BROKER_SECONDS, PATIENCE_SECONDS, World

from simyard.api import names
from simyard.cli.rotate import replace_key
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.topology import WORKER_QUEUES_PREFIX
from simyard_sites.kubernetes.resource import Resource

SECRETS = Resource("", "v1", "secrets", "Secret")


async def rotate(world: World) -> None:
    """Replace the master key, as `kubectl simyard rotate` does."""
    secret = await world.client.get(SECRETS, names.MASTER_KEY_SECRET, world.name)
    path = f"/api/v1/namespaces/{world.name}/secrets/{names.MASTER_KEY_SECRET}"
    await world.client.request("PUT", path, body=replace_key(secret, secrets.token_bytes(32)), resource=SECRETS)


async def until_rotated(world: World, *, unless: asyncio.Event | None = None) -> bool:
    """Wait until the former master key is forgotten; False when ``unless`` was set before."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while unless is None or not unless.is_set():
            secret = await world.client.get(SECRETS, names.MASTER_KEY_SECRET, world.name)
            if "previous" not in secret["data"]:
                return True
            await asyncio.sleep(LOOK_AT_BROKER_SECONDS)
    return False


async def logins(world: World, uid: str) -> list[str]:
    """The logins of a pool, or of a Worker that stands alone, that are at the broker."""
    return sorted(name for name in await world.left_at_broker(uid) if not name.startswith("simyard."))


async def consumed_under(world: World, uid: str) -> list[str]:
    """The logins under which the queues of the workers of a pool are consumed, one for each queue and login."""
    async with contextlib.aclosing(BrokerAdmin(world.access)) as admin:
        found = await admin.list_consumer_logins(WORKER_QUEUES_PREFIX)
    return [login for queue, logins in found.items() if uid in queue for login in logins]
