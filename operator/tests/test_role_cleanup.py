# SPDX-License-Identifier: Apache-2.0
"""``simyard cleanup`` removes the objects of Simyard from an external broker, and no other objects."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from dataclasses import replace

import pytest
from click.testing import CliRunner, Result

from simyard.messaging.access import BrokerAccess
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.occi_topology import build_clients_specs, name_clients_vhost
from simyard.messaging.topology import QueueKind, QueueSpec, UserSpec, build_pool_user_spec, build_worker_queue_spec
from simyard.roles import main
from simyard_dev.broker import Broker


async def test_what_simyard_made_goes_and_nothing_else(broker: Broker) -> None:
    if broker.management_url is None:
        pytest.skip("RABBITMQ_MANAGEMENT_URL is not set")
    home = BrokerAccess.from_url(broker.url, broker.management_url, None)
    digits = secrets.token_hex(4)
    access = home.enter_vhost(f"clean-{digits}")
    mine, shared = build_pool_user_spec(f"mine-{digits}"), build_pool_user_spec(f"shared-{digits}")
    foreign = UserSpec(f"foreign-{digits}", ".*", ".*", ".*")
    async with contextlib.AsyncExitStack() as stack:
        admin, other, clients = [
            await stack.enter_async_context(contextlib.aclosing(BrokerAdmin(item)))
            for item in (
                access,
                home.enter_vhost(f"other-{digits}"),
                home.enter_vhost(name_clients_vhost(access.vhost)),
            )
        ]
        for vhost in (admin, other, clients):
            await vhost.ensure_vhost()
            stack.push_async_callback(vhost.delete_vhost)
        for spec in (shared, foreign):
            stack.push_async_callback(admin.delete_user, spec.name)
        await admin.ensure_platform()
        await clients.ensure_platform(build_clients_specs())
        await admin.ensure_queues([build_worker_queue_spec(mine.name, "w"), QueueSpec("theirs", QueueKind.CLASSIC)])
        for spec in (mine, shared, foreign):
            await admin.ensure_user(spec, "password")
        await other.ensure_user(replace(shared, topic_permissions=()), "password")

        assert "would delete" in (await run(access)).output
        assert mine.name in await admin.list_permitted_users()
        done = await run(access, "--yes")
        assert done.exit_code == 0, done.output
        assert set(await admin.list_queues("")) == {"theirs"}
        assert not [name for name in await admin.list_exchanges() if name.startswith("simyard.")]
        assert {mine.name, shared.name, foreign.name} & await admin.list_users() == {shared.name, foreign.name}
        assert {access.vhost, name_clients_vhost(access.vhost)} & await admin.list_vhosts() == {access.vhost}


async def run(access: BrokerAccess, *arguments: str) -> Result:
    url = str(access.build_amqp_url("cleanup").with_query(None))
    options = ["cleanup", "--amqp-url", url, "--amqp-management-url", access.management_url, *arguments]
    return await asyncio.to_thread(CliRunner().invoke, main, options)
