# SPDX-License-Identifier: Apache-2.0
"""The shared queue on a real broker: requests, responses, and that no request is lost or carried out twice."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from aiormq import spec
from amqp_frontends import PASSWORD, QUEUE, TOKEN, Frontend, Vhost, dead_letters, echo, serving, until
from cloud4e_client import Cloud4eClient
from pamqp import encode

from simyard.frontend.amqp import consumer as amqp
from simyard.frontend.exchange import OcciRequest, OcciResponse
from simyard.messaging.connection import open_channel
from simyard.messaging.occi_topology import build_frontend_clients_user_spec
from simyard.messaging.topology import QueueKind

on_both_kinds_of_queue = pytest.mark.parametrize("queue_kind", list(QueueKind), indirect=True)
AUTH = {"type": "basic", "username": "x", "password": TOKEN}
MORE_THAN_MOST = b"x" * (1024 * 1024 + 1)


async def still_serves(client: Cloud4eClient) -> None:
    answer = await client.call("get", "/still")
    assert (answer.status, answer.body) == (200, b"GET /still")


async def settled(vhost: Vhost) -> None:
    """Wait until the queue has neither ready nor unacknowledged messages."""
    async with open_channel(vhost.access, "a test") as link, asyncio.timeout(240):
        while True:
            if not (await link.channel.queue_declare(QUEUE, passive=True)).message_count:
                return
            await asyncio.sleep(0.02)


@on_both_kinds_of_queue
async def test_a_response_is_on_the_wire_as_cloud4e_has_it(vhost: Vhost) -> None:
    async with serving(vhost), vhost.connect() as client:
        answer = await client.call("get", "/compute/?page=1", message_id="1")
    assert answer.correlation_id == "1"
    assert answer.headers == {"status_code": 200, "path_info": "/compute/"}
    assert answer.content_type == "text/plain"
    assert answer.body == b"GET /compute/"


@pytest.mark.parametrize("method", ["get", "post", "put", "delete", "DELETE"])
async def test_the_type_is_the_method_and_path_info_is_path_and_query(vhost: Vhost, method: str) -> None:
    async with serving(vhost) as frontend, vhost.connect() as client:
        await client.call(method, "/compute/a%20b?action=start&method=hot%26cold", b"body")
    (request,) = frontend.requests
    assert (request.method, request.path, request.body) == (method.upper(), "/compute/a b", b"body")
    assert request.query == {"action": "start", "method": "hot&cold"}
    assert request.base == "https://127.0.0.1:8443"
    assert request.identity.user == "alice"
    assert request.get_header("content-type") == "text/plain"
    assert request.get_header("accept") == "text/plain"


async def test_what_text_occi_has_in_headers_comes_and_goes_in_headers(vhost: Vhost) -> None:
    async def answer(request: OcciRequest) -> OcciResponse:
        headers = (("X-OCCI-Attribute", "a=1"), ("X-OCCI-Attribute", "b=2"), ("Category", "c"), ("Server", "s"))
        return OcciResponse(200, b"OK", "text/occi", headers)

    sent = {"CATEGORY": "x, y", "X_OCCI_ATTRIBUTE": ["a=1", "b=2"], "X_OCCI_LOCATION": "/z", "LINK": "l"}
    async with serving(vhost, answer) as frontend, vhost.connect() as client:
        got = await client.call("post", "/compute/", content_type="text/occi", **sent)
    request = frontend.requests[0]
    assert [value for name, value in request.headers if name == "x-occi-attribute"] == ["a=1", "b=2"]
    assert request.get_header("category") == "x, y"
    assert request.get_header("x-occi-location") == "/z"
    assert request.get_header("link") == "l"
    assert got.headers == {
        "status_code": 200, "path_info": "/compute/", "X_OCCI_ATTRIBUTE": "a=1, b=2", "CATEGORY": "c",
    }  # fmt: skip


async def test_headers_that_no_message_can_hold_are_refused_and_not_sent(vhost: Vhost) -> None:
    async def answer(request: OcciRequest) -> OcciResponse:
        return OcciResponse(200, b"OK", "text/occi", (("X-OCCI-Location", "x" * 200_000),))

    async with serving(vhost, answer), vhost.connect() as client:
        assert (await client.call("get", "/compute/")).status == 413


@pytest.mark.parametrize(
    ("status", "changes", "body"),
    [
        (400, {"message_type": "head"}, b""),
        (400, {"message_type": None}, b""),
        (400, {"headers": {"auth": AUTH}}, b""),
        (400, {"headers": None}, b""),
        (400, {"headers": {"path_info": 7, "auth": AUTH}}, b""),
        (400, {"headers": {"path_info": "/%ff", "auth": AUTH}}, b""),
        (400, {"headers": {"path_info": "/?a=%ff", "auth": AUTH}}, b""),
        (400, {"headers": {"path_info": "/" + "x" * 10_000, "auth": AUTH}}, b""),
        (400, {"headers": {"path_info": "/", "auth": {"type": "digest"}}}, b""),
        (400, {"headers": {"path_info": "/", "accept": {"a": 1}, "auth": AUTH}}, b""),
        (400, {"headers": {"path_info": "/", "CATEGORY": [1, True, None], "auth": AUTH}}, b""),
        (400, {"headers": {"path_info": "/", "CATEGORY": "a\r\nX: b", "auth": AUTH}}, b""),
        (413, {"headers": {"path_info": "/", "CATEGORY": "x" * 70_000, "auth": AUTH}}, b""),
        (413, {}, MORE_THAN_MOST),
        (401, {"headers": {"path_info": "/"}}, b""),
        (401, {"headers": {"path_info": "/", "auth": "basic"}}, b""),
        (401, {"headers": {"path_info": "/", "auth": {"type": "basic", "password": 7}}}, b""),
        (401, {"headers": {"path_info": "/", "auth": AUTH | {"password": "wrong"}}}, b""),
        (401, {"headers": {"path_info": "/", "X-AUTH-TOKEN": "wrong"}}, b""),
    ],
)
async def test_a_bad_request_gets_a_reason_and_reaches_no_handler(
    vhost: Vhost, status: int, changes: dict[str, Any], body: bytes
) -> None:
    async with serving(vhost) as frontend, vhost.connect() as client:
        good = {"message_type": "get", "headers": {"path_info": "/", "auth": AUTH}}
        await client.publish(body, spec.Basic.Properties(reply_to=client.replies, message_id="m", **(good | changes)))
        answer = await client.answer()
        assert answer.status == status
        assert answer.is_error
        assert answer.correlation_id == "m"
        assert answer.content_type == "text/plain"
        assert answer.body
        assert TOKEN not in answer.text
        assert not frontend.requests
        await still_serves(client)


async def test_a_refusal_is_json_where_json_was_asked_for(vhost: Vhost) -> None:
    async with serving(vhost), vhost.connect() as client:
        answer = await client.call("patch", "/", accept="application/occi+json")
    assert answer.content_type == "application/occi+json"


async def test_the_token_may_come_in_a_header_of_its_own(vhost: Vhost) -> None:
    async with serving(vhost), vhost.connect() as client:
        headers: Any = {"path_info": "/still", "X-AUTH-TOKEN": TOKEN}
        await client.publish(
            b"", spec.Basic.Properties(message_type="get", reply_to=client.replies, message_id="m", headers=headers)
        )
        assert (await client.answer()).status == 200


class Raw(spec.Basic.Properties):
    """Properties with an encoding that no client would produce."""

    flags_word: int
    encoded: bytes

    @classmethod
    def of(cls, flags: int, encoded: bytes) -> "Raw":
        made = cls()
        cls.flags_word, cls.encoded = flags, encoded
        return made

    def marshal(self) -> bytes:
        return struct.pack(">H", self.flags_word) + self.encoded


def table(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def nested(depth: int) -> bytes:
    content = b""
    for _ in range(depth):
        content = b"\x01aF" + table(content)
    return table(content)


HEADERS, REPLY_TO, MESSAGE_ID, TIMESTAMP, TYPE = 0x2000, 0x0200, 0x0080, 0x0040, 0x0020
UNREADABLE = {
    "nothing at all": (0, b""),
    "a message id that is not UTF-8": (MESSAGE_ID, b"\x03\xff\xfe\xfd"),
    "a reply_to that is not UTF-8": (REPLY_TO, b"\x03\xff\xfe\xfd"),
    "a time beyond all calendars": (TIMESTAMP, struct.pack(">Q", 2**63 - 1)),
    "the name of a header that is not UTF-8": (HEADERS, table(b"\x02\xff\xfeS\x00\x00\x00\x01a")),
    "headers nested too deep": (HEADERS, nested(2000)),
}


@on_both_kinds_of_queue
@pytest.mark.parametrize("properties", UNREADABLE.values(), ids=UNREADABLE)
async def test_a_message_that_nobody_can_answer_goes_to_the_dead_letters(
    vhost: Vhost, properties: tuple[int, bytes]
) -> None:
    async with serving(vhost) as frontend, vhost.connect() as client:
        await client.publish(b"unreadable", Raw.of(*properties))
        assert await dead_letters(vhost, 1) == [b"unreadable"]
        await still_serves(client)
        assert [request.path for request in frontend.requests] == ["/still"]


@on_both_kinds_of_queue
@pytest.mark.parametrize("reply_to", ["nobody", "amq.rabbitmq.reply-to.bogus", "amq.rabbitmq.reply-to", QUEUE])
async def test_a_reply_queue_that_is_gone_costs_nothing(vhost: Vhost, reply_to: str) -> None:
    async with serving(vhost) as frontend, vhost.connect() as client:
        properties = spec.Basic.Properties(
            message_type="post", reply_to=reply_to, message_id="m", headers={"path_info": "/gone", "auth": AUTH}
        )
        if reply_to == "amq.rabbitmq.reply-to":  # the broker asks for a consumer of it first
            with pytest.raises(Exception, match="fast reply consumer"):
                await client.publish(b"", properties)
            return
        await client.publish(b"", properties)
        await still_serves(client)
        await settled(vhost)
        assert [request.path for request in frontend.requests] == ["/gone", "/still"]


async def test_a_request_without_reply_to_is_carried_out(vhost: Vhost) -> None:
    async with serving(vhost) as frontend, vhost.connect() as client:
        await client.send("post", "/compute/", reply_to="")
        await still_serves(client)
        assert [request.path for request in frontend.requests] == ["/compute/", "/still"]


async def test_direct_reply_to_is_answered(vhost: Vhost) -> None:
    async with serving(vhost), vhost.connect() as client:
        arrived: asyncio.Queue[bytes] = asyncio.Queue()

        async def receive(message: Any) -> None:
            arrived.put_nowait(message.body)

        await client.channel.basic_consume("amq.rabbitmq.reply-to", receive, no_ack=True)
        await client.send("get", "/direct", reply_to="amq.rabbitmq.reply-to")
        async with asyncio.timeout(240):
            assert await arrived.get() == b"GET /direct"


async def test_an_error_of_ours_is_a_500_that_tells_nothing(vhost: Vhost, caplog: pytest.LogCaptureFixture) -> None:
    async def fail(request: OcciRequest) -> OcciResponse:
        raise RuntimeError("a secret")

    async with serving(vhost, fail), vhost.connect() as client:
        answer = await client.call("get", "/")
    assert answer.status == 500
    assert "secret" not in answer.text
    assert "a secret" in caplog.text


async def test_a_repeated_request_is_carried_out_once_and_answered_twice(vhost: Vhost) -> None:
    async with serving(vhost) as frontend, vhost.connect() as client:
        for _ in range(2):
            await client.call("post", "/compute/", b"x", message_id="0123456789abcdef")
        assert len(frontend.requests) == 1
        assert frontend.requests[0].key
        await client.call("post", "/compute/", b"y", message_id="0123456789abcdef")
        await client.call("post", "/compute/", b"x", message_id="fedcba9876543210")
        assert len({request.key for request in frontend.requests}) == 3


async def test_message_ids_that_are_counters_belong_to_their_reply_queue(vhost: Vhost) -> None:
    async with serving(vhost) as frontend, vhost.connect() as one, vhost.connect() as other:
        for client in (one, other, one):
            await client.call("post", "/compute/", message_id="1")
    assert len(frontend.requests) == 2


async def test_a_refused_request_may_be_repeated(vhost: Vhost) -> None:
    answers = iter([OcciResponse(503, b"no", "text/plain"), OcciResponse(201, b"yes", "text/plain")])

    async def answer(request: OcciRequest) -> OcciResponse:
        return next(answers)

    async with serving(vhost, answer), vhost.connect() as client:
        statuses = [(await client.call("post", "/", message_id="0123456789abcdef")).status for _ in range(2)]
    assert statuses == [503, 201]


Hang = Callable[[OcciRequest], Awaitable[OcciResponse]]


def hanging() -> tuple[Hang, asyncio.Event, asyncio.Event]:
    """Return a handler that does not answer, an event that it was asked, and an event that lets it answer."""
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def hang(request: OcciRequest) -> OcciResponse:
        asked.set()
        await go_on.wait()
        return await echo(request)

    return hang, asked, go_on


async def killed_in_the_middle(vhost: Vhost, client: Cloud4eClient, answer: Hang, *send: Any, **how: Any) -> Frontend:
    """Send a request to a frontend that is killed while it carries it out, and return the frontend that got it next."""
    hang, asked, _ = hanging()
    async with serving(vhost, hang) as killed:
        await client.send(*send, **how)
        async with asyncio.timeout(240):
            await asked.wait()
    assert len(killed.requests) == 1
    async with serving(vhost, answer) as survivor:
        client.answers.put_nowait(await client.answer())
    assert [request.key for request in survivor.requests] == [request.key for request in killed.requests]
    return survivor


@on_both_kinds_of_queue
async def test_another_frontend_answers_for_one_that_was_killed_and_knows_the_request_by_its_key(vhost: Vhost) -> None:
    async with vhost.connect() as client:
        survivor = await killed_in_the_middle(vhost, client, echo, "post", "/compute/")
        assert survivor.requests[0].key
        assert (await client.answer()).body == b"POST /compute/"


@on_both_kinds_of_queue
async def test_a_post_that_cannot_be_told_from_another_is_not_done_twice(vhost: Vhost) -> None:
    hang, asked, _ = hanging()
    async with vhost.connect() as client:
        async with serving(vhost, hang):
            # (the client would give it a message id)
            headers = encode.field_table({"path_info": "/", "auth": AUTH})
            fields = headers + encode.short_string(client.replies) + encode.short_string("post")
            await client.publish(b"", Raw.of(HEADERS | REPLY_TO | TYPE, fields))
            async with asyncio.timeout(240):
                await asked.wait()
        async with serving(vhost) as survivor:
            answer = await client.answer()
    assert answer.status == 504
    assert not survivor.requests


@on_both_kinds_of_queue
async def test_a_delete_whose_first_frontend_was_killed_after_it_had_deleted_is_no_404(vhost: Vhost) -> None:
    async def gone(request: OcciRequest) -> OcciResponse:
        return OcciResponse(404, b"gone", "text/plain")

    async with vhost.connect() as client:
        await killed_in_the_middle(vhost, client, gone, "delete", "/compute/1")
        assert (await client.answer()).status == 200
        async with serving(vhost, gone):
            assert (await client.call("delete", "/compute/1")).status == 404


@on_both_kinds_of_queue
async def test_who_drains_finishes_what_was_begun_and_takes_nothing_new(vhost: Vhost) -> None:
    hang, asked, go_on = hanging()
    async with vhost.connect() as client, serving(vhost, hang) as old:
        await client.send("get", "/old")
        async with asyncio.timeout(240):
            await asked.wait()
        draining = asyncio.create_task(old.server.drain())
        await until(lambda: not old.server.connected)
        async with serving(vhost):
            await client.call("get", "/new")
            assert not draining.done()
            go_on.set()
            assert (await client.answer()).body == b"GET /old"
            async with asyncio.timeout(240):
                await draining
    assert [request.path for request in old.requests] == ["/old"]


@on_both_kinds_of_queue
async def test_two_frontends_share_the_work(vhost: Vhost) -> None:
    hang, _, go_on = hanging()
    async with serving(vhost, hang) as one, serving(vhost, hang) as other, vhost.connect() as client:
        for number in range(2 * amqp.PREFETCH):
            await client.send("get", f"/{number}")
        await until(lambda: len(one.requests) + len(other.requests) == 2 * amqp.MAX_REQUESTS_AT_ONCE)
        assert len(one.requests) == amqp.MAX_REQUESTS_AT_ONCE
        go_on.set()
        assert len({(await client.answer()).body for _ in range(2 * amqp.PREFETCH)}) == 2 * amqp.PREFETCH


@on_both_kinds_of_queue
async def test_it_serves_again_after_its_connections_were_cut(vhost: Vhost) -> None:
    async with serving(vhost) as frontend, vhost.connect() as client:
        await vhost.admin.delete_user(vhost.frontend.username)  # the broker cuts them
        await until(lambda: not frontend.server.connected)
        await client.send("get", "/later")
        await vhost.admin.ensure_user(
            replace(build_frontend_clients_user_spec(), name=vhost.frontend.username), PASSWORD
        )
        assert (await client.answer()).body == b"GET /later"


@on_both_kinds_of_queue
async def test_a_request_that_nobody_takes_expires_into_the_dead_letters(vhost: Vhost) -> None:
    async with vhost.connect() as client:
        properties = spec.Basic.Properties(message_type="get", expiration="1")
        await client.publish(b"late", properties)
        assert await dead_letters(vhost, 1) == [b"late"]
