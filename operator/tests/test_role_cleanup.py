"""``simyard cleanup`` at a broker of somebody else's: everything of ours goes, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from dataclasses import replace

import pytest
from click.testing import CliRunner, Result

from simyard.messaging.access import BrokerAccess
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.occi_topology import clients_specs, clients_vhost
from simyard.messaging.topology import QueueKind, QueueSpec, UserSpec, pool_user_spec, worker_queue_spec
from simyard.roles import main
from simyard_dev.broker import Broker


async def test_what_simyard_made_goes_and_nothing_else(broker: Broker) -> None:
    if broker.management_url is None:
        pytest.skip("RABBITMQ_MANAGEMENT_URL is not set")
    home = BrokerAccess.from_url(broker.url, broker.management_url, None)
    digits = secrets.token_hex(4)
    access = home.in_vhost(f"clean-{digits}")
    mine, shared = pool_user_spec(f"mine-{digits}"), pool_user_spec(f"shared-{digits}")
    foreign = UserSpec(f"foreign-{digits}", ".*", ".*", ".*")
    async with contextlib.AsyncExitStack() as stack:
        admin, other, clients = [
            await stack.enter_async_context(contextlib.aclosing(BrokerAdmin(item)))
            for item in (access, home.in_vhost(f"other-{digits}"), home.in_vhost(clients_vhost(access.vhost)))
        ]
        for vhost in (admin, other, clients):
            await vhost.ensure_vhost()
            stack.push_async_callback(vhost.delete_vhost)
        for spec in (shared, foreign):
            stack.push_async_callback(admin.delete_user, spec.name)
        await admin.ensure_platform()
        await clients.ensure_platform(clients_specs())
        await admin.ensure_queues([worker_queue_spec(mine.name, "w"), QueueSpec("theirs", QueueKind.CLASSIC)])
        for spec in (mine, shared, foreign):
            await admin.ensure_user(spec, "password")
        await other.ensure_user(replace(shared, topic_permissions=()), "password")

        assert "would delete" in (await run(access)).output
        assert mine.name in await admin.permitted_users()
        done = await run(access, "--yes")
        assert done.exit_code == 0, done.output
        assert set(await admin.queues("")) == {"theirs"}
        assert not [name for name in await admin.exchanges() if name.startswith("simyard.")]
        assert {mine.name, shared.name, foreign.name} & await admin.users() == {shared.name, foreign.name}
        assert {access.vhost, clients_vhost(access.vhost)} & await admin.vhosts() == {access.vhost}


async def run(access: BrokerAccess, *arguments: str) -> Result:
    url = str(access.amqp_url("cleanup").with_query(None))
    options = ["cleanup", "--amqp-url", url, "--amqp-management-url", access.management_url, *arguments]
    return await asyncio.to_thread(CliRunner().invoke, main, options)
