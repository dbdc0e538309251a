# SPDX-License-Identifier: Apache-2.0
"""The service side of the Cloud4E binding, with an adapter that shares no code with Simyard."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

import pytest
from amqp_frontends import Vhost, until
from cloud4e_client import Adapter, Reply, adapter_of, as_json

from simyard.frontend.amqp.cloud4e import MAX_LINK_BYTES, ServiceAdapters
from simyard.frontend.backend import Invocation
from simyard.frontend.exchange import Identity
from simyard.guest.reading import MAX_CONTAINERS
from simyard.messaging.connection import open_channel
from simyard.occi.errors import OcciError
from simyard.occi.model import Action, Model
from simyard.occi.standard import STANDARD
from simyard_adapter.limits import MAX_DEPTH, MAX_RESULT_BYTES

SOLVE = Action("http://cloud4e/beam/action#", "solve")
PATH = "/amqplink/7"
ALICE = Identity("alice", "", (), ())
MODEL = Model(STANDARD)
LINK = "http://schemas.ogf.org/occi/infrastructure#amqplink"
TITLE = "\x1b]0;owned\x07"
"""Renames the window of a terminal that prints it."""


@contextlib.asynccontextmanager
async def speaking(vhost: Vhost, **settings: float) -> AsyncIterator[ServiceAdapters]:
    services = ServiceAdapters(**settings)
    task = asyncio.create_task(services.run(vhost.frontend))
    try:
        await until(lambda: services.connected)
        yield services
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def adapter(vhost: Vhost, reply: Reply | None = None) -> AbstractAsyncContextManager[Adapter]:
    return adapter_of(vhost.url(vhost.service), reply)


async def test_an_action_arrives_as_cloud4e_has_it(vhost: Vhost) -> None:
    async with speaking(vhost) as services, adapter(vhost) as service:
        values = {"cloud4e.load": 12.5, "cloud4e.name": "a b&c", "cloud4e.fine": True}
        assert await services.invoke(service.queue, PATH, Invocation(ALICE, SOLVE, values, wait=False)) is None
        message = await service.next()
    properties = message.header.properties
    assert properties.message_type == "post"
    assert properties.content_type == "application/occi+json"
    assert properties.headers == {
        "path_info": f"{PATH}?action=solve&cloud4e.load=12.5&cloud4e.name=a%20b%26c&cloud4e.fine=true"
    }
    assert not properties.reply_to
    (action,) = json.loads(message.body)["actions"]
    assert action == {"term": "solve", "scheme": "http://cloud4e/beam/action#", "attributes": values}


@pytest.mark.parametrize("wait", [True, False])
async def test_an_adapter_that_is_not_there_is_a_503_at_once(vhost: Vhost, wait: bool) -> None:
    async with speaking(vhost) as services:
        async with adapter(vhost) as service:
            pass
        await until_absent(vhost, service.queue)
        with pytest.raises(OcciError, match="not connected") as refusal:
            await services.invoke(service.queue, PATH, Invocation(ALICE, SOLVE, {}, wait=wait))
        assert refusal.value.status == 503
        async with open_channel(vhost.access, "a test") as link:  # a queue without a consumer
            await link.channel.queue_declare(service.queue, exclusive=False, durable=True)
            with pytest.raises(OcciError, match="not connected"):
                await services.invoke(service.queue, PATH, Invocation(ALICE, SOLVE, {}, wait=wait))
            assert (await link.channel.queue_declare(service.queue, passive=True)).message_count == 0


async def until_absent(vhost: Vhost, queue: str) -> None:
    async with asyncio.timeout(240):
        while True:
            if queue not in await vhost.admin.list_queues(queue):
                return
            await asyncio.sleep(0.02)


async def test_who_waits_gets_the_result(vhost: Vhost) -> None:
    async def reply(message: Any) -> tuple[bytes, dict[str, Any]]:
        return b'{"deflection": 1.5}', {"status_code": 200}

    async with speaking(vhost) as services, adapter(vhost, reply) as service:
        assert await services.invoke(service.queue, PATH, Invocation(ALICE, SOLVE, {}, wait=True, key="k")) == {
            "deflection": 1.5
        }
        assert (await service.next()).header.properties.message_id == "k"


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"no licence", {"status_code": 409, "is_error": True}, 409),
        (b"broken", {"is_error": True}, 502),
        (b"", {"status_code": 9999, "is_error": True}, 502),
        (b"", {"status_code": 420}, 502),
        (b"", {"status_code": 200, "is_error": True}, 502),
        (b"not JSON", {}, 502),
        (b"[1]", {}, 502),
        (b"\xff", {"is_error": True, "status_code": "x"}, 502),
    ],
)
async def test_an_error_of_the_adapter_is_the_error(
    vhost: Vhost, body: bytes, headers: dict[str, Any], status: int
) -> None:
    async def reply(message: Any) -> tuple[bytes, dict[str, Any]]:
        return body, headers

    async with speaking(vhost) as services, adapter(vhost, reply) as service:
        with pytest.raises(OcciError) as refusal:
            await services.invoke(service.queue, PATH, Invocation(ALICE, SOLVE, {}, wait=True))
    assert refusal.value.status == status


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b'{"a": ' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}", "nested deeper than 32 levels"),
        (b'{"a": [' + b"[]," * MAX_CONTAINERS + b"[]]}", "more than 50000 arrays and objects"),
        (b'{"a": "' + b"x" * MAX_RESULT_BYTES + b'"}', "at most 1048576 are read"),
    ],
    ids=["depth", "number", "length"],
)
async def test_a_result_beyond_the_limits_of_workers_is_a_502(vhost: Vhost, body: bytes, problem: str) -> None:
    async def reply(message: Any) -> tuple[bytes, dict[str, Any]]:
        return body, {"status_code": 200}

    async with speaking(vhost) as services, adapter(vhost, reply) as service:
        with pytest.raises(OcciError, match=problem) as refusal:
            await services.invoke(service.queue, PATH, Invocation(ALICE, SOLVE, {}, wait=True))
    assert refusal.value.status == 502


async def test_a_terminal_obeys_neither_results_nor_errors_nor_attributes(vhost: Vhost) -> None:
    replies = {
        "solve": (as_json({f"na{TITLE}me": [f"va{TITLE}lue", {"k\u202e": "\x07"}]}), {"status_code": 200}),
        "melt": (f"too{TITLE} hot".encode(), {"status_code": 409}),
        "": (as_json({"kind": LINK, "id": "7", "attributes": {"cloud4e.name": f"be{TITLE}am"}}), {}),
    }

    async def reply(message: Any) -> tuple[bytes, dict[str, Any]]:
        path = (message.header.properties.headers or {}).get("path_info", "")
        return replies[path.partition("=")[2]]

    async with speaking(vhost) as services, adapter(vhost, reply) as service:
        result = await services.invoke(service.queue, PATH, Invocation(ALICE, SOLVE, {}, wait=True))
        assert result == {"name": ["value", {"k": ""}]}
        with pytest.raises(OcciError, match=f"^{PATH}: too hot$"):
            await services.invoke(service.queue, PATH, Invocation(ALICE, replace(SOLVE, term="melt"), {}, wait=True))
        draft = await services.pull(service.queue, MODEL, timeout_seconds=10)
    assert draft is not None
    assert draft.attributes["cloud4e.name"] == "beam"


async def test_an_adapter_that_does_not_answer_is_a_504(vhost: Vhost) -> None:
    async with speaking(vhost, action_seconds=0.2) as services, adapter(vhost) as service:
        with pytest.raises(OcciError) as refusal:
            await services.invoke(service.queue, PATH, Invocation(ALICE, SOLVE, {}, wait=True))
    assert refusal.value.status == 504


@pytest.mark.parametrize("queue", ["amqp.occi.https://127.0.0.1:8443/", "amq.gen-1", "simyard.dead.requests", ""])
async def test_nothing_is_forwarded_to_what_is_no_queue_of_an_adapter(vhost: Vhost, queue: str) -> None:
    async with speaking(vhost) as services:
        with pytest.raises(OcciError) as refusal:
            await services.invoke(queue, PATH, Invocation(ALICE, SOLVE, {}, wait=False))
    assert refusal.value.status == 400


async def test_attributes_are_pulled_by_update_link(vhost: Vhost) -> None:
    link = {
        "kind": LINK,
        "attributes": {"occi": {"core": {"id": "7"}, "amqplink": {"queue": "q"}}, "cloud4e": {"load": "12"}},
        "source": "/compute/1",
        "target": "/compute/1",
    }

    async def reply(message: Any) -> tuple[bytes, dict[str, Any]]:
        return json.dumps(link).encode(), {}

    async with speaking(vhost) as services, adapter(vhost, reply) as service:
        drafts = await asyncio.gather(
            *(services.pull(service.queue, MODEL, timeout_seconds=10) for _ in range(3)),
        )
        message = await service.next()
        assert message.body == b"update_link"
        assert message.header.properties.reply_to == f"{service.queue}-reply"
        assert service.messages.empty()
    for draft in drafts:
        assert draft is not None
        assert draft.attributes["cloud4e.load"] == "12"


async def test_two_frontends_may_pull_at_once(vhost: Vhost) -> None:
    async def reply(message: Any) -> tuple[bytes, dict[str, Any]]:
        return b'{"kind": "http://schemas.ogf.org/occi/infrastructure#amqplink", "id": "7"}', {}

    async with speaking(vhost) as one, speaking(vhost) as other, adapter(vhost, reply) as service:
        pulls = (services.pull(service.queue, MODEL, timeout_seconds=10) for services in (one, other))
        assert all(draft is not None for draft in await asyncio.gather(*pulls))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[",
        b'{"kind": 7}',
        as_json({"kind": LINK, "attributes": {"cloud4e": {"many": [[]] * MAX_CONTAINERS}}}),
        as_json({"kind": LINK, "attributes": {"cloud4e": {"large": "x" * MAX_LINK_BYTES}}}),
    ],
    ids=len,
)
async def test_what_cannot_be_read_is_as_no_answer(vhost: Vhost, body: bytes) -> None:
    async def reply(message: Any) -> tuple[bytes, dict[str, Any]]:
        return body, {}

    async with speaking(vhost) as services, adapter(vhost, reply) as service:
        assert await services.pull(service.queue, MODEL, timeout_seconds=10) is None


async def test_who_does_not_answer_or_is_not_there_has_no_news(vhost: Vhost) -> None:
    async with speaking(vhost) as services:
        async with adapter(vhost) as service:
            assert await services.pull(service.queue, MODEL, timeout_seconds=0.2) is None
        assert await services.pull("occi.amqp.service.nobody", MODEL, timeout_seconds=30) is None
