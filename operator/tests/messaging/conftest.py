# SPDX-License-Identifier: Apache-2.0
"""Fixtures: each test has its own virtual host with the platform's exchanges and queues."""

import contextlib
import secrets
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from simyard.messaging.access import BrokerAccess
from simyard.messaging.admin import BrokerAdmin
from simyard_dev.broker import Broker

sys.path.insert(0, str(Path(__file__).parent))

from messaging_workers import MakeWorker, access_to, worker_maker


@pytest.fixture
async def access(broker: Broker) -> AsyncIterator[BrokerAccess]:
    """Yield the administrator's access to a virtual host with the platform's exchanges and queues."""
    access = replace(access_to(broker), vhost=f"test/{secrets.token_hex(8)}")
    vhost = access.vhost.replace("/", "%2F")
    authorization = {"Authorization": aiohttp.encode_basic_auth(access.username, access.password)}
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    async with aiohttp.ClientSession(access.management_url, headers=authorization, raise_for_status=True) as session:
        await session.put(f"/api/vhosts/{vhost}")
        await session.put(f"/api/permissions/{vhost}/{access.username}", json=everything)
        try:
            yield access
        finally:
            await session.delete(f"/api/vhosts/{vhost}")


@pytest.fixture
async def admin(access: BrokerAccess) -> AsyncIterator[BrokerAdmin]:
    """Yield an administrator after it has created the exchanges and queues of the platform."""
    async with contextlib.aclosing(BrokerAdmin(access)) as admin:
        await admin.ensure_platform()
        yield admin


@pytest.fixture
async def make_worker(access: BrokerAccess, admin: BrokerAdmin) -> AsyncIterator[MakeWorker]:
    """Return a function that creates a worker in its own pool, given the pool's uid."""
    async with worker_maker(access, admin) as make:
        yield make
