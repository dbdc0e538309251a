# SPDX-License-Identifier: Apache-2.0
"""Logins: their names and passwords; all logins of a user have the same rights at the broker."""

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

from simyard.messaging.access import BrokerAccess
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.connection import open_channel
from simyard.messaging.credentials import (
    MasterKeys,
    derive_password,
    list_former_logins,
    make_login,
    make_master_key,
    parse_login,
)
from simyard.messaging.events import read_received_event
from simyard.messaging.topology import OPERATOR_QUEUE, build_apiserver_user_spec, build_worker_user_spec
from simyard.serving.broker import BrokerClient
from simyard.serving.directory import Destination
from simyard_adapter.wire import EVENTS_EXCHANGE, Event, Request, make_event_key, parse_identity

NUMBERS = st.integers(min_value=1, max_value=10**9)
GENERATIONS = st.integers(min_value=0, max_value=10**9)


@given(NUMBERS, GENERATIONS)
def test_a_login_says_its_user_its_key_and_its_generation(number: int, generation: int) -> None:
    login = make_login("pool-1", number, generation)
    assert (parse_identity(login), parse_login(login)) == ("pool-1", (number, generation))


def test_the_first_login_is_the_user_itself() -> None:
    assert make_login("pool-1", 1, 0) == "pool-1"
    assert make_login("pool-1", 2, 5) == "pool-1~2.5"


@pytest.mark.parametrize("login", ["pool-1~", "pool-1~2", "pool-1~0.1", "pool-1~1.01", "pool-1~1.1~1", "pool-1~x"])
def test_a_suffix_that_nobody_made_is_refused(login: str) -> None:
    with pytest.raises(ValueError, match="has no login"):
        parse_login(login)


def test_passwords_are_of_the_key_with_the_number_of_the_login() -> None:
    old, new = make_master_key(), make_master_key()
    keys = MasterKeys(new, 2, old)
    assert keys.derive_password("pool-1") == derive_password(old, "pool-1")
    assert keys.derive_password("pool-1~2.0") == derive_password(new, "pool-1~2.0")
    with pytest.raises(ValueError, match="not kept"):
        replace(keys, previous=b"").derive_password("pool-1")
    with pytest.raises(ValueError, match="not kept"):
        keys.derive_password("pool-1~3.0")
    assert old.hex() not in repr(keys)


def test_what_workers_may_still_use_depends_on_what_changed() -> None:
    first, second = MasterKeys(b"a"), MasterKeys(b"b", 2, b"a")
    assert list(list_former_logins("u", first, 0, changed_lately=False)) == []
    assert list(list_former_logins("u", first, 3, changed_lately=False)) == []
    assert list(list_former_logins("u", first, 1, changed_lately=True)) == ["u"]
    assert list(list_former_logins("u", second, 0, changed_lately=False)) == ["u"]
    assert list(list_former_logins("u", second, 3, changed_lately=True)) == ["u~2.2", "u~1.3", "u~1.2"]


async def test_another_login_of_a_user_may_do_the_same_and_counts_as_the_user(
    admin: BrokerAdmin, access: BrokerAccess, make_worker: MakeWorker
) -> None:
    worker, other = await make_worker("one"), await make_worker("two")
    login = make_login(worker.user, 1, 1)
    await admin.ensure_user(build_worker_user_spec(login), PASSWORD)
    try:
        async with open_channel(worker.access.as_user(login, PASSWORD), "worker", confirms=True) as link:
            sender = spec.Basic.Properties(user_id=login)
            key = make_event_key(Event.DRAINED, worker.user, WORKER_UID)
            await link.channel.basic_publish(b"{}", exchange=EVENTS_EXCHANGE, routing_key=key, properties=sender)
            async with open_channel(access, "operator") as own:
                event = read_received_event(await own.channel.basic_get(OPERATOR_QUEUE), 0.0)
            assert (event.user, event.worker_uid) == (worker.user, WORKER_UID)
            await link.channel.basic_get(worker.queue)
        async with open_channel(worker.access.as_user(login, PASSWORD), "worker") as link:
            with pytest.raises(Exception, match="refused"):
                await link.channel.basic_get(other.queue)
    finally:
        await admin.delete_user(login)


async def test_a_new_password_fails_no_request_and_is_used_from_the_next_connection_on(
    admin: BrokerAdmin, access: BrokerAccess, make_worker: MakeWorker
) -> None:
    worker = await make_worker("one")
    name = f"apiserver-{secrets.token_hex(4)}"
    user = replace(build_apiserver_user_spec(), name=name)
    await admin.ensure_user(user, "first")
    broker = BrokerClient(lambda event: None)
    broker.set_access(access.as_user(name, "first"))
    destination = Destination(worker.queue, worker.user)

    async def is_connected(wanted: bool) -> None:
        async with asyncio.timeout(240):
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
            broker.set_access(access.as_user(name, "second"))
            await worker.reply(link, request, b'{"log": "begun before"}')
            assert (await asked).log == "begun before"

            await admin.delete_user(name)  # the broker closes its connections
            await is_connected(False)
            await admin.ensure_user(user, "second")
            await is_connected(True)
            asked = asyncio.create_task(broker.request(destination, Request.LOG, {}, timeout_seconds=30))
            await worker.reply(link, await received.get(), b'{"log": "begun after"}')
            assert (await asked).log == "begun after"
    finally:
        await admin.delete_user(name)


def test_the_end_of_a_rotation_is_the_beginning_of_the_one_that_was_asked_for_meanwhile() -> None:
    assert MasterKeys(b"b", 2, b"a").end_rotation() == MasterKeys(b"b", 2)
    assert MasterKeys(b"b", 2, b"a", b"c").end_rotation() == MasterKeys(b"c", 3, b"b")
    assert MasterKeys(b"b", 2, b"a", b"c").end_rotation().end_rotation() == MasterKeys(b"c", 3)
    assert b"following" not in repr(MasterKeys(b"b", 2, b"a", b"following")).encode()
