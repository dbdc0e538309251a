# SPDX-License-Identifier: Apache-2.0
"""Objects that the operator creates at the broker for frontends and their clients."""

import contextlib
import secrets
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from amqp_frontends import ENDPOINT, QUEUE, Vhost

from simyard.fleet.frontends.occi_broker import OcciBroker
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.connection import open_channel
from simyard.messaging.credentials import make_master_key
from simyard.messaging.occi_topology import (
    build_client_user_spec,
    build_request_queue_spec,
    name_clients_vhost,
)
from simyard.messaging.topology import QueueKind, QueueSpec


@pytest.fixture
async def occi(vhost: Vhost) -> AsyncIterator[OcciBroker]:
    """Return the topology of an installation with a user of the test's own, because all tests share the broker."""
    user = f"frontend-{secrets.token_hex(8)}"
    main = vhost.access.enter_vhost(vhost.access.vhost.removesuffix("-occi"))
    async with contextlib.aclosing(BrokerAdmin(main)) as admin:
        await admin.ensure_vhost()
        broker = OcciBroker(main, admin, clients=True, endpoints=[ENDPOINT], user=user)
        assert broker.vhost == vhost.access.vhost
        try:
            yield broker
        finally:
            await broker.aclose()
            await admin.delete_user(user)
            await admin.delete_vhost()


async def test_frontends_can_work_with_what_their_secret_says(vhost: Vhost, occi: OcciBroker) -> None:
    key = make_master_key()
    content = await occi.prepare(key)
    assert await occi.prepare(key) == content
    assert content["occi_vhost"] == vhost.access.vhost
    main = vhost.access.as_user(content["username"], content["password"]).enter_vhost(content["vhost"])
    async with open_channel(main.enter_vhost(content["occi_vhost"]), "a test") as link:
        await link.channel.queue_declare(QUEUE, passive=True)
        await link.channel.basic_get(QUEUE)
    async with open_channel(main, "a test") as link:
        await link.channel.queue_declare("simyard.reply.a-test", exclusive=True)


async def test_a_queue_of_another_kind_stays_as_it_is(vhost: Vhost, occi: OcciBroker) -> None:
    other = "https://other/"
    await vhost.admin.ensure_queues([build_request_queue_spec(other, QueueKind.QUORUM)])
    await occi.ensure_queue(other)
    assert set(await occi.list_queues()) == {QUEUE, "amqp.occi.https://other/"}
    for _ in range(2):
        await occi.remove_queue(other)
    assert set(await occi.list_queues()) == {QUEUE}


async def test_a_queue_with_other_arguments_stays_and_is_told_of(
    vhost: Vhost, occi: OcciBroker, caplog: pytest.LogCaptureFixture
) -> None:
    other = "https://other/"
    earlier = build_request_queue_spec(other, QueueKind.CLASSIC)
    arguments = {**earlier.arguments, "x-max-length": 1}
    await vhost.admin.ensure_queues([replace(earlier, arguments=arguments)])
    await occi.ensure_queue(other)
    assert "amqp.occi.https://other/ is not as this version declares it" in caplog.text


async def test_of_many_queues_only_the_shared_ones_are_told(vhost: Vhost, occi: OcciBroker) -> None:
    await vhost.admin.ensure_queues([QueueSpec(f"reply.amqp.occi.{n}", QueueKind.CLASSIC, {}) for n in range(3)])
    await vhost.admin.ensure_queues([QueueSpec(f"amqpxocci.{n}", QueueKind.CLASSIC, {}) for n in range(3)])
    endpoints = [f"https://beam-{n}/" for n in range(4)]
    for endpoint in endpoints:
        await occi.ensure_queue(endpoint)
    found = await occi.list_queues()
    assert set(found) == {f"amqp.occi.{endpoint}" for endpoint in (*endpoints, ENDPOINT)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("simyard.messaging.admin.PAGE", 2)
        assert set(await occi.list_queues()) == set(found)


async def test_where_clients_may_not_speak_amqp_nothing_is_made_for_them(vhost: Vhost, occi: OcciBroker) -> None:
    async with contextlib.aclosing(BrokerAdmin(vhost.access)) as admin:
        without = OcciBroker(vhost.access, admin, clients=False, endpoints=())
        content = await without.prepare(make_master_key())
        assert "occi_vhost" not in content
        await without.ensure_queue(ENDPOINT)
        assert not await without.list_queues()


@pytest.mark.parametrize(
    ("vhost_name", "clients"), [("simyard", "simyard-occi"), ("/", "simyard-occi"), ("a", "a-occi")]
)
def test_the_clients_vhost_is_named_after_the_installations(
    vhost_name: str, clients: str, queue_kind: QueueKind
) -> None:
    assert name_clients_vhost(vhost_name) == clients


def test_the_document_says_what_a_tenants_user_may() -> None:
    document = (Path(__file__).resolve().parents[3] / "docs" / "occi-amqp.md").read_text()
    spec = build_client_user_spec("acme")
    assert f"'{spec.configure}' '{spec.write}' '{spec.read}'" in document
    added = "|occi\\.amqp\\.service\\.acme(\\.[^.]+)?"
    assert f"`{added}`" in document
    assert build_client_user_spec("acme", serves=True).read == spec.read.replace(")$", f"{added})$")
