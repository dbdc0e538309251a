# SPDX-License-Identifier: Apache-2.0
"""Cloud4E's unchanged client and service adapters of 2014, with two replicas of a frontend."""

import json
from typing import Any

import pytest
from aiormq.abc import DeliveredMessage
from amqp_frontends import ENDPOINT, TOKEN, Vhost, until
from cloud4e_client import adapter_of, as_json
from rocci_client import JSON, rocci_client_of
from whole_frontends import ADMINISTRATOR, frontend

from simyard.frontend.exchange import OcciRequest
from simyard.frontend.handlers import Handlers
from simyard.frontend.objects import Objects
from simyard.messaging.topology import FRONTENDS_EXCHANGE, ExchangeSpec, PlatformSpec
from simyard_dev.controlplane import ControlPlane

AMQPLINK = "http://schemas.ogf.org/occi/infrastructure#amqplink"
PROPERTIES = {"type": "string", "required": False, "mutable": True, "pattern": ".*"}
SOLVE = {
    "scheme": "http://cloud4e/beam/action#",
    "term": "solve",
    "title": "Solve",
    "attributes": {"cloud4e": {"length": PROPERTIES, "material": PROPERTIES}},
}
BEAM = {
    "scheme": "http://cloud4e/service#",
    "term": "beam",
    "title": "Beam",
    "location": "/mixins/beam/",
    "attributes": {"cloud4e": {"load": PROPERTIES}},
    "actions": [SOLVE],
}
REGISTRATION = {"mixins": [BEAM], "actions": [SOLVE]}


def link_to(queue: str, compute: str) -> dict[str, Any]:
    """``Link#as_json``."""
    return {
        "kind": AMQPLINK,
        "mixins": ["http://cloud4e/service#beam"],
        "attributes": {"occi": {"core": {"id": "beam-7"}, "amqplink": {"queue": queue}}},
        "rel": "http://schemas.ogf.org/occi/core#resource",
        "source": compute,
        "target": "http://cloud4e/beam",
    }


async def shown(objects: Objects, path: str) -> dict[str, Any]:
    headers = (("accept", JSON),)
    response = await Handlers(objects).handle(OcciRequest("GET", path, {}, headers, b"", ADMINISTRATOR, "https://h"))
    assert response.status == 200
    return dict(json.loads(response.body))


@pytest.mark.parametrize("media_type", ["text/plain", JSON])
async def test_a_client_of_2014_registers_describes_triggers_and_deletes(
    control_plane: ControlPlane, vhost: Vhost, compute: tuple[str, str], media_type: str
) -> None:
    namespace, path = compute
    async with (
        frontend(control_plane, vhost, namespace),
        adapter_of(vhost.url(vhost.service)) as adapter,
        rocci_client_of(vhost.url(vhost.service), ENDPOINT, media_type, TOKEN) as client,
        rocci_client_of(vhost.url(vhost.service), ENDPOINT, JSON, TOKEN) as json_client,
    ):
        await client.register_mixin(REGISTRATION)
        assert client.last_response_status == 200
        model = await client.get("/-/")
        assert "cloud4e.load" in model and "beam" in model
        (listed,) = await client.list("compute")
        assert listed == f"{ENDPOINT}{path.lstrip('/')}"
        assert "compute" in await client.describe(listed)
        link = await json_client.create("amqplink", {"links": [link_to(adapter.queue, path)]})
        assert (link, json_client.last_response_status) == (f"{ENDPOINT}amqplink/beam-7", 201)
        assert "beam" in await client.describe(listed)

        await client.trigger(link, SOLVE, {"cloud4e.length": "2.5", "cloud4e.material": "steel"})
        message = await adapter.called()
        parameters = {"cloud4e.length": "2.5", "cloud4e.material": "steel"}
        assert message.header.properties.headers == {
            "path_info": "/amqplink/beam-7?action=solve&cloud4e.length=2.5&cloud4e.material=steel"
        }
        assert json.loads(message.body)["actions"][0]["attributes"] == parameters

        await client.delete(link)
        await client.unregister_mixin(REGISTRATION)
        assert "cloud4e.load" not in await client.get("/-/")
        await client.delete(listed)
        assert await client.list("compute") == [""]


async def test_the_attributes_of_an_adapter_of_2014_are_the_same_and_the_newest_on_every_replica(
    control_plane: ControlPlane, vhost: Vhost, compute: tuple[str, str]
) -> None:
    """The client asks for no fresh values: a client of 2014 cannot."""
    namespace, path = compute
    told = {"load": "0"}

    async def reply(message: DeliveredMessage) -> tuple[bytes, dict[str, Any]]:
        return as_json({**link_to(adapter.queue, path), "attributes": {"cloud4e": dict(told)}}), {}

    async def load(replica: Objects) -> str:
        return str((await shown(replica, "/amqplink/beam-7"))["attributes"]["cloud4e.load"])

    await vhost.admin.ensure_platform(PlatformSpec((ExchangeSpec(FRONTENDS_EXCHANGE, "direct"),), ()))
    async with (
        frontend(control_plane, vhost, namespace, vhost.access) as one,
        frontend(control_plane, vhost, namespace, vhost.access) as other,
        adapter_of(vhost.url(vhost.service), reply) as adapter,
        rocci_client_of(vhost.url(vhost.service), ENDPOINT, JSON, TOKEN) as client,
    ):
        await until(lambda: one.replicas.known == other.replicas.known == 1)
        await client.register_mixin(REGISTRATION)
        await client.create("amqplink", {"links": [link_to(adapter.queue, path)]})
        for number in range(1, 4):
            told["load"] = str(number)
            seen: list[str] = []
            while str(number) not in seen:  # an adapter is asked again after a second
                seen += [await load(replica) for replica in (one, other)]
            assert seen == sorted(seen)  # no replica shows an older value after another one showed a newer
            assert await load(other) == await load(one) == str(number)
