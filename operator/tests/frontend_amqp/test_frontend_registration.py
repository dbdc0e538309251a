# SPDX-License-Identifier: Apache-2.0
"""Registration, action and attribute pull of Cloud4E: a foreign adapter with whole frontends."""

import json
from typing import Any

from aiormq.abc import DeliveredMessage
from amqp_frontends import ENDPOINT, Vhost
from cloud4e_client import Adapter, Cloud4eClient, adapter_of, as_json
from whole_frontends import frontend

from simyard_dev.controlplane import ControlPlane

AMQPLINK = "http://schemas.ogf.org/occi/infrastructure#amqplink"
MIXIN = "http://cloud4e/service#beam"
ACTION = "http://cloud4e/beam/action#solve"
JSON = "application/occi+json"
MODEL = {
    "mixins": [
        {
            "term": "beam", "scheme": "http://cloud4e/service#", "title": "Beam", "location": "/service/beam/",
            "attributes": {"cloud4e": {"load": {"Type": "string", "Mutable": True}}}, "actions": [ACTION],
        }
    ],
    "actions": [
        {
            "term": "solve", "scheme": "http://cloud4e/beam/action#", "title": "Solve",
            "attributes": {"length": {"type": "string", "mutable": True}},
        }
    ],
}  # fmt: skip


def link_of(adapter: Adapter, compute: str) -> dict[str, Any]:
    return {
        "kind": AMQPLINK,
        "mixins": [MIXIN],
        "attributes": {"occi": {"core": {"id": "beam-7"}, "amqplink": {"queue": adapter.queue}}},
        "source": compute,
        "target": "http://cloud4e/beam",
        "rel": AMQPLINK,
    }


async def register(client: Cloud4eClient, adapter: Adapter, compute: str) -> str:
    """Send the five requests of Cloud4E's adapters, and return the path of the link."""
    model = await client.call("get", "/-/", accept=JSON)
    assert model.status == 200
    assert any(kind["term"] == "amqplink" for kind in json.loads(model.body)["kinds"])
    listing = await client.call("get", "/compute/", accept="text/uri-list")
    assert listing.text.split() == [f"{ENDPOINT}{compute.removeprefix('/')}"]
    mixin = await client.call("post", "/-/", as_json(MODEL), content_type=JSON, accept="text/plain")
    assert mixin.status == 200, mixin.text
    document = as_json({"links": [link_of(adapter, compute)]})
    made = await client.call("post", "/amqplink/", document, content_type=JSON, accept="text/uri-list")
    assert made.status in (200, 201), made.text
    described = await client.call("get", compute, accept="text/plain")
    assert described.status == 200
    path = made.text.strip().removeprefix(ENDPOINT.rstrip("/"))
    assert f'self="{path}"' in described.text
    assert MIXIN in described.text
    return path


async def test_five_requests_register_a_service_whose_action_is_called_and_whose_attributes_are_pulled(
    control_plane: ControlPlane, vhost: Vhost, compute: tuple[str, str]
) -> None:
    namespace, path = compute
    links: list[dict[str, Any]] = []

    async def reply(message: DeliveredMessage) -> tuple[bytes, dict[str, Any]]:
        values = {"attributes": {"cloud4e": {"load": "12"}}}
        return as_json({**links[0], **values} if message.body == b"update_link" else {"deflection": 1.5}), {}

    async with frontend(control_plane, vhost, namespace), vhost.connect() as client:
        async with adapter_of(vhost.url(vhost.service), reply) as adapter:
            links.append(link_of(adapter, path))
            link = await register(client, adapter, path)
            assert await register(client, adapter, path) == link  # as after its restart

            seen = await client.call("get", link, accept=JSON)
            shown = json.loads(seen.body)
            assert shown["mixins"] == [MIXIN]
            assert ACTION in json.dumps(shown["actions"])
            assert shown["source"]["location"] == path

            called = await client.call("post", f"{link}?action=solve&length=2%2C5")
            assert called.status == 200, called.text
            message = await adapter.called()
            assert message.header.properties.headers == {"path_info": f"{link}?action=solve&length=2%2C5"}
            assert json.loads(message.body)["actions"][0]["term"] == "solve"

            fresh = await client.call("get", f"{link}?fresh=true", accept=JSON)
            assert json.loads(fresh.body)["attributes"]["cloud4e.load"] == "12"

        gone = await client.call("post", f"{link}?action=solve&length=1")
        assert gone.status == 503, gone.text
        assert (await client.call("delete", link)).status == 200
        assert (await client.call("get", link)).status == 404


async def test_one_message_does_what_five_did_and_may_be_repeated(
    control_plane: ControlPlane, vhost: Vhost, compute: tuple[str, str]
) -> None:
    namespace, path = compute
    async with (
        frontend(control_plane, vhost, namespace),
        vhost.connect() as client,
        adapter_of(vhost.url(vhost.service)) as adapter,
    ):
        link = {**link_of(adapter, path), "id": "beam-7"}
        for _ in range(2):
            answer = await client.call("post", "/amqplink/", as_json({**MODEL, "links": [link]}), content_type=JSON)
            assert answer.status in (200, 201), answer.text
        seen = await client.call("get", "/amqplink/beam-7", accept=JSON)
        assert json.loads(seen.body)["attributes"]["occi.amqplink.queue"] == adapter.queue
        listing = await client.call("get", "/amqplink/", accept="text/uri-list")
        assert listing.text.count("beam-7") == 1


async def test_a_create_that_a_killed_frontend_has_done_is_not_done_again(
    control_plane: ControlPlane, vhost: Vhost, compute: tuple[str, str]
) -> None:
    """The message is delivered to another frontend, as after a kill between the write and the acknowledgement."""
    namespace, path = compute
    body = as_json({"links": [{"kind": AMQPLINK, "source": path, "target": "/a",
                               "attributes": {"occi.amqplink.queue": "occi.amqp.service.x"}}]})  # fmt: skip
    made: list[str] = []
    async with vhost.connect() as client:
        for _ in range(2):
            async with frontend(control_plane, vhost, namespace):
                answer = await client.call(
                    "post", "/amqplink/", body, content_type=JSON, message_id="0123456789abcdef0123456789abcdef"
                )
                assert answer.status == 201, answer.text
                made.append(answer.headers["location"])
    assert made[0] == made[1]
