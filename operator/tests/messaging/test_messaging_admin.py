# SPDX-License-Identifier: Apache-2.0
import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from messaging_workers import MakeWorker

from simyard.messaging.access import BrokerAccess
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.connection import open_channel
from simyard.messaging.errors import BrokerRefusedError, BrokerUnavailableError
from simyard.messaging.topology import WORKER_QUEUES_PREFIX, build_pool_queue_spec, build_worker_queue_spec
from simyard_adapter.limits import MAX_BROKER_MESSAGE_BYTES
from simyard_dev.broker import Broker

BULK = 1000


async def test_everything_can_be_made_and_removed_twice(admin: BrokerAdmin, make_worker: MakeWorker) -> None:
    await admin.ensure_platform()
    user = (await make_worker("pool")).user
    specs = [build_pool_queue_spec(user), *(build_worker_queue_spec(user, f"w{number}") for number in range(BULK))]
    names = [spec.name for spec in specs]
    await admin.ensure_queues(specs)
    await admin.ensure_queues(specs)
    assert set(names[1:]) <= set(await admin.list_queues(WORKER_QUEUES_PREFIX))
    assert user in await admin.list_users()
    for _ in range(2):
        await admin.delete_queues(names)
        await admin.delete_user(user)
    assert not await admin.list_queues("simyard.worker.")
    assert user not in await admin.list_users()


async def test_a_queue_that_exists_with_other_arguments_is_refused(admin: BrokerAdmin) -> None:
    spec = build_worker_queue_spec("pool-1", "w1")
    await admin.ensure_queues([spec])
    with pytest.raises(BrokerRefusedError, match="x-max-length"):
        await admin.ensure_queues([replace(spec, arguments={**spec.arguments, "x-max-length": 1})])


async def test_the_development_broker_bounds_messages_and_takes_what_old_adapters_send(
    access: BrokerAccess, admin: BrokerAdmin
) -> None:
    assert await admin.has_message_limit()
    async with open_channel(access, "test", confirms=True) as link:
        await link.channel.basic_publish(bytes(MAX_BROKER_MESSAGE_BYTES), routing_key="simyard.nobody")


async def test_deleting_a_user_closes_its_connections(admin: BrokerAdmin, make_worker: MakeWorker) -> None:
    worker = await make_worker("pool")
    async with asyncio.timeout(240):
        with pytest.raises(BrokerUnavailableError):
            async with worker.connect() as link:
                await admin.delete_user(worker.user)
                await link.wait_until_lost()


async def test_wrong_credentials_are_refused_and_an_absent_broker_is_unavailable(access: BrokerAccess) -> None:
    with pytest.raises(BrokerRefusedError):
        async with open_channel(access.as_user("nobody", "wrong"), "test"):
            pass
    with pytest.raises(BrokerUnavailableError):
        async with open_channel(replace(access, port=1), "test"):
            pass
    for wrong, error in (
        (access.as_user("nobody", "wrong"), BrokerRefusedError),
        (replace(access, management_url="http://127.0.0.1:1"), BrokerUnavailableError),
    ):
        admin = BrokerAdmin(wrong)
        with pytest.raises(error):
            await admin.list_users()
        await admin.aclose()


async def test_tls_verifies_the_broker(broker: Broker, tmp_path: Path) -> None:
    if broker.tls_url is None or broker.ca_file is None:
        pytest.skip("the broker does not offer TLS with a CA of its own")
    access = BrokerAccess.from_url(broker.tls_url, broker.management_url or "", broker.ca_file)
    async with open_channel(access, "test"):
        pass
    with pytest.raises(BrokerUnavailableError):
        async with open_channel(replace(access, host="127.0.0.2"), "test"):
            pass
