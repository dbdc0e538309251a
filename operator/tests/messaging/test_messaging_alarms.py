# SPDX-License-Identifier: Apache-2.0
"""A broker that is short of memory accepts no messages: requests fail at once with that reason."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator

import pytest
from messaging_workers import access_to, running, worker_maker

from simyard.fleet.broker.health import BrokerHealth
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.errors import BrokerBlockedError, MessagingError
from simyard.messaging.requests import Requester
from simyard_adapter.wire import Request
from simyard_dev.local_broker import LocalBroker

pytestmark = pytest.mark.xdist_group("mortal-broker")

PATIENCE_SECONDS = 240.0


@contextlib.asynccontextmanager
async def short_of_memory(broker: LocalBroker) -> AsyncIterator[None]:
    await asyncio.to_thread(broker.run_rabbitmqctl, "set_vm_memory_high_watermark", "absolute", "1MB")
    try:
        yield
    finally:
        await asyncio.to_thread(broker.run_rabbitmqctl, "set_vm_memory_high_watermark", "0.4")


@pytest.fixture
async def admin(mortal_broker: LocalBroker) -> AsyncIterator[BrokerAdmin]:
    async with contextlib.aclosing(BrokerAdmin(access_to(mortal_broker))) as admin:
        await admin.ensure_platform()
        yield admin


async def test_a_request_fails_at_once_and_names_the_alarm(mortal_broker: LocalBroker, admin: BrokerAdmin) -> None:
    access = access_to(mortal_broker)
    requester = Requester(access, "test")
    async with worker_maker(access, admin) as make, running(requester), asyncio.timeout(PATIENCE_SECONDS):
        worker = await make("pool")
        await requester.wait_until_connected()

        async def ask() -> object:
            return await requester.request(worker.queue, worker.user, Request.LOG, {}, timeout_seconds=3600)

        async with worker.answering(b"{}"):
            async with short_of_memory(mortal_broker):
                # The broker blocks a connection at its first message, which it may still accept without an answer.
                first = asyncio.create_task(ask())
                with pytest.raises(BrokerBlockedError, match="memory"):
                    while True:
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(1):
                                await ask()
                assert "memory" in requester.blocked
                first.cancel()
            while True:  # until the broker accepts messages again
                with contextlib.suppress(MessagingError):
                    await ask()
                    break
                await asyncio.sleep(0)
        assert not requester.blocked


async def test_the_operator_knows_of_an_alarm_without_sending_anything(
    mortal_broker: LocalBroker, admin: BrokerAdmin
) -> None:
    changes = asyncio.Event()
    health = BrokerHealth(admin, alarm_changed=changes.set, nodes_changed=lambda: None, look_seconds=0.2)
    async with running(health), asyncio.timeout(PATIENCE_SECONDS):
        async with short_of_memory(mortal_broker):
            while "short of memory" not in health.alarm:
                await changes.wait()
                changes.clear()
        while health.alarm:
            await changes.wait()
            changes.clear()


async def test_a_silent_broker_is_left_and_found_again(mortal_broker: LocalBroker, admin: BrokerAdmin) -> None:
    requester = Requester(access_to(mortal_broker), "test")
    async with running(requester), asyncio.timeout(PATIENCE_SECONDS):
        await requester.wait_until_connected()
        mortal_broker.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(MessagingError):
                await requester.request("simyard.worker.none", "none", Request.LOG, {}, timeout_seconds=3600)
        finally:
            mortal_broker.send_signal(signal.SIGCONT)
        await requester.wait_until_connected()
