"""Logins: what they are called, which passwords they have, and that each of a user may do the same at the broker."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace

import pytest
from aiormq import spec
from aiormq.abc import DeliveredMessage
from hypothesis import given
from hypothesis import strategies as st
from messaging_workers import PASSWORD, WORKER_UID, MakeWorker, running

from simyard.apiserver.broker import BrokerLink
from simyard.apiserver.directory import Destination
from simyard.messaging.access import BrokerAccess
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.connection import open_link
from simyard.messaging.credentials import (
    MasterKeys,
    derive_password,
    former_logins,
    login_name,
    new_master_key,
    parse_login,
)
from simyard.messaging.events import received_event
from simyard.messaging.topology import OPERATOR_QUEUE, apiserver_user_spec, worker_user_spec
from simyard_adapter.wire import EVENTS_EXCHANGE, Event, Request, event_key, identity_of

NUMBERS = st.integers(min_value=1, max_value=10**9)
GENERATIONS = st.integers(min_value=0, max_value=10**9)


@given(NUMBERS, GENERATIONS)
def test_a_login_says_its_user_its_key_and_its_generation(number: int, generation: int) -> None:
    login = login_name("pool-1", number, generation)
    assert (identity_of(login), parse_login(login)) == ("pool-1", (number, generation))


def test_the_first_login_is_the_user_itself() -> None:
    assert login_name("pool-1", 1, 0) == "pool-1"
    assert login_name("pool-1", 2, 5) == "pool-1~2.5"


@pytest.mark.parametrize("login", ["pool-1~", "pool-1~2", "pool-1~0.1", "pool-1~1.01", "pool-1~1.1~1", "pool-1~x"])
def test_a_suffix_that_nobody_made_is_refused(login: str) -> None:
    with pytest.raises(ValueError, match="has no login"):
        parse_login(login)


def test_passwords_are_of_the_key_with_the_number_of_the_login() -> None:
    old, new = new_master_key(), new_master_key()
    keys = MasterKeys(new, 2, old)
    assert keys.password("pool-1") == derive_password(old, "pool-1")
    assert keys.password("pool-1~2.0") == derive_password(new, "pool-1~2.0")
    with pytest.raises(ValueError, match="not kept"):
        replace(keys, previous=b"").password("pool-1")
    with pytest.raises(ValueError, match="not kept"):
        keys.password("pool-1~3.0")
    assert old.hex() not in repr(keys)


def test_what_workers_may_still_use_depends_on_what_changed() -> None:
    first, second = MasterKeys(b"a"), MasterKeys(b"b", 2, b"a")
    assert list(former_logins("u", first, 0, changed_lately=False)) == []
    assert list(former_logins("u", first, 3, changed_lately=False)) == []
    assert list(former_logins("u", first, 1, changed_lately=True)) == ["u"]
    assert list(former_logins("u", second, 0, changed_lately=False)) == ["u"]
    assert list(former_logins("u", second, 3, changed_lately=True)) == ["u~2.2", "u~1.3", "u~1.2"]


async def test_another_login_of_a_user_may_do_the_same_and_counts_as_the_user(
    admin: BrokerAdmin, access: BrokerAccess, make_worker: MakeWorker
) -> None:
    worker, other = await make_worker("one"), await make_worker("two")
    login = login_name(worker.user, 1, 1)
    await admin.ensure_user(worker_user_spec(login), PASSWORD)
    try:
        async with open_link(worker.access.as_user(login, PASSWORD), "worker", confirms=True) as link:
            sender = spec.Basic.Properties(user_id=login)
            key = event_key(Event.DRAINED, worker.user, WORKER_UID)
            await link.channel.basic_publish(b"{}", exchange=EVENTS_EXCHANGE, routing_key=key, properties=sender)
            async with open_link(access, "operator") as own:
                event = received_event(await own.channel.basic_get(OPERATOR_QUEUE), 0.0)
            assert (event.user, event.worker_uid) == (worker.user, WORKER_UID)
            await link.channel.basic_get(worker.queue)
        async with open_link(worker.access.as_user(login, PASSWORD), "worker") as link:
            with pytest.raises(Exception, match="refused"):
                await link.channel.basic_get(other.queue)
    finally:
        await admin.delete_user(login)


async def test_a_new_password_fails_no_request_and_is_used_from_the_next_connection_on(
    admin: BrokerAdmin, access: BrokerAccess, make_worker: MakeWorker
) -> None:
    worker = await make_worker("one")
    name = f"apiserver-{secrets.token_hex(4)}"
    user = replace(apiserver_user_spec(), name=name)
    await admin.ensure_user(user, "first")
    broker = BrokerLink(lambda event: None)
    broker.use(access.as_user(name, "first"))
    destination = Destination(worker.queue, worker.user)

    async def is_connected(wanted: bool) -> None:
        async with asyncio.timeout(30):
            while broker.connected is not wanted:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    try:
        async with running(broker), worker.connect() as link:
            received: asyncio.Queue[DeliveredMessage] = asyncio.Queue()
            await link.channel.basic_consume(worker.queue, received.put, no_ack=True)
            await is_connected(True)
            asked = asyncio.create_task(broker.request(destination, Request.LOG, {}, timeout_seconds=30))
            request = await received.get()
            await admin.ensure_user(user, "second")
            broker.use(access.as_user(name, "second"))
            await worker.reply(link, request, b'{"log": "begun before"}')
            assert (await asked).log == "begun before"

            await admin.delete_user(name)  # the broker ends its connections
            await is_connected(False)
            await admin.ensure_user(user, "second")
            await is_connected(True)
            asked = asyncio.create_task(broker.request(destination, Request.LOG, {}, timeout_seconds=30))
            await worker.reply(link, await received.get(), b'{"log": "begun after"}')
            assert (await asked).log == "begun after"
    finally:
        await admin.delete_user(name)
