"""What the operator makes at the broker for frontends and their clients."""

import contextlib
import secrets
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from amqp_frontends import ENDPOINT, QUEUE, Vhost

from simyard.fleet import occi_broker
from simyard.fleet.occi_broker import OcciBroker
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.connection import open_link
from simyard.messaging.credentials import new_master_key
from simyard.messaging.occi_topology import (
    client_user_spec,
    clients_vhost,
    frontend_clients_user_spec,
    request_queue_spec,
)
from simyard.messaging.topology import QueueKind, QueueSpec, frontend_user_spec


@pytest.fixture
async def occi(vhost: Vhost, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OcciBroker]:
    """For an installation of the test's own, with a user of its own: all tests share the broker."""
    user = f"frontend-{secrets.token_hex(8)}"
    main = vhost.access.in_vhost(vhost.access.vhost.removesuffix("-occi"))
    monkeypatch.setattr(occi_broker, "FRONTEND_USER", user)
    for spec in (frontend_user_spec, frontend_clients_user_spec):
        monkeypatch.setattr(occi_broker, spec.__name__, lambda spec=spec: replace(spec(), name=user))
    async with contextlib.aclosing(BrokerAdmin(main)) as admin:
        await admin.ensure_vhost()
        broker = OcciBroker(main, admin, clients=True, endpoints=[ENDPOINT])
        assert broker.vhost == vhost.access.vhost
        try:
            yield broker
        finally:
            await broker.aclose()
            await admin.delete_user(user)
            await admin.delete_vhost()


async def test_frontends_can_work_with_what_their_secret_says(vhost: Vhost, occi: OcciBroker) -> None:
    key = new_master_key()
    content = await occi.prepare(key)
    assert await occi.prepare(key) == content
    assert content["occi_vhost"] == vhost.access.vhost
    main = vhost.access.as_user(content["username"], content["password"]).in_vhost(content["vhost"])
    async with open_link(main.in_vhost(content["occi_vhost"]), "a test") as link:
        await link.channel.queue_declare(QUEUE, passive=True)
        await link.channel.basic_get(QUEUE)
    async with open_link(main, "a test") as link:
        await link.channel.queue_declare("simyard.reply.a-test", exclusive=True)


async def test_a_queue_of_another_kind_stays_as_it_is(vhost: Vhost, occi: OcciBroker) -> None:
    other = "https://other/"
    await vhost.admin.ensure_queues([request_queue_spec(other, QueueKind.QUORUM)])
    await occi.ensure_queue(other)
    assert set(await occi.queues()) == {QUEUE, "amqp.occi.https://other/"}
    for _ in range(2):
        await occi.remove_queue(other)
    assert set(await occi.queues()) == {QUEUE}


async def test_a_queue_with_other_arguments_stays_and_is_told_of(
    vhost: Vhost, occi: OcciBroker, caplog: pytest.LogCaptureFixture
) -> None:
    other = "https://other/"
    earlier = request_queue_spec(other, QueueKind.CLASSIC)
    arguments = {**earlier.arguments, "x-max-length": 1}
    await vhost.admin.ensure_queues([replace(earlier, arguments=arguments)])
    await occi.ensure_queue(other)
    assert "amqp.occi.https://other/ is not as this version makes it" in caplog.text


async def test_of_many_queues_only_the_shared_ones_are_told(vhost: Vhost, occi: OcciBroker) -> None:
    await vhost.admin.ensure_queues([QueueSpec(f"reply.amqp.occi.{n}", QueueKind.CLASSIC, {}) for n in range(3)])
    await vhost.admin.ensure_queues([QueueSpec(f"amqpxocci.{n}", QueueKind.CLASSIC, {}) for n in range(3)])
    endpoints = [f"https://beam-{n}/" for n in range(4)]
    for endpoint in endpoints:
        await occi.ensure_queue(endpoint)
    found = await occi.queues()
    assert set(found) == {f"amqp.occi.{endpoint}" for endpoint in (*endpoints, ENDPOINT)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("simyard.messaging.admin.PAGE", 2)
        assert set(await occi.queues()) == set(found)


async def test_where_clients_may_not_speak_amqp_nothing_is_made_for_them(vhost: Vhost, occi: OcciBroker) -> None:
    async with contextlib.aclosing(BrokerAdmin(vhost.access)) as admin:
        without = OcciBroker(vhost.access, admin, clients=False, endpoints=())
        content = await without.prepare(new_master_key())
        assert "occi_vhost" not in content
        await without.ensure_queue(ENDPOINT)
        assert not await without.queues()


@pytest.mark.parametrize(
    ("vhost_name", "clients"), [("simyard", "simyard-occi"), ("/", "simyard-occi"), ("a", "a-occi")]
)
def test_the_clients_vhost_is_named_after_the_installations(
    vhost_name: str, clients: str, queue_kind: QueueKind
) -> None:
    assert clients_vhost(vhost_name) == clients


def test_the_document_says_what_a_tenants_user_may() -> None:
    document = (Path(__file__).resolve().parents[3] / "docs" / "occi-amqp.md").read_text()
    spec = client_user_spec("acme")
    assert f"'{spec.configure}' '{spec.write}' '{spec.read}'" in document
    added = "|occi\\.amqp\\.service\\.acme(\\.[^.]+)?"
    assert f"`{added}`" in document
    assert client_user_spec("acme", serves=True).read == spec.read.replace(")$", f"{added})$")
