# SPDX-License-Identifier: Apache-2.0
"""Requests over AMQP that wait while a frontend stops or gets other credentials."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

import pytest
from amqp_frontends import ENDPOINT, Frontend, Vhost, echo, identify, serving, until

from simyard.frontend.amqp import consumer as amqp
from simyard.frontend.amqp.messages import Properties, read_request
from simyard.frontend.amqp.transport import AmqpTransport
from simyard.frontend.exchange import OcciRequest, OcciResponse
from simyard.frontend.identity import Authenticator
from simyard.messaging.occi_topology import build_frontend_clients_user_spec
from simyard.occi.errors import OcciError

ACTION = "/compute/1?action=solve&wait=true"


class Waiting:
    """A handler that answers actions when it is told to, and all other requests at once."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.begun = 0

    async def __call__(self, request: OcciRequest) -> OcciResponse:
        if "action" in request.query:
            self.begun += 1
            await self.go_on.wait()
        return await echo(request)


async def test_those_who_wait_for_results_leave_room_for_the_others(vhost: Vhost) -> None:
    waiting = Waiting()
    async with serving(vhost, waiting), vhost.connect() as one, vhost.connect() as other:
        for _ in range(amqp.MAX_ACTIONS_PER_USER):
            await one.send("post", ACTION)
        await until(lambda: waiting.begun == amqp.MAX_ACTIONS_PER_USER)
        assert (await other.call("get", "/compute/")).status == 200
        refused = await other.call("post", ACTION)
        assert refused.status == 503 and b"send this one again later" in refused.body
        waiting.go_on.set()
        for _ in range(amqp.MAX_ACTIONS_PER_USER):
            assert (await one.answer()).status == 200
        assert (await other.call("post", ACTION)).status == 200


async def test_whoever_drains_ends_its_consumer_before_it_is_idle(
    vhost: Vhost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that the broker has sent by then are answered, not cancelled and carried out by another frontend."""
    frontend = Frontend(echo)
    task = asyncio.create_task(frontend.server.run(vhost.frontend))
    await until(lambda: frontend.server.connected)
    link = frontend.server._consuming
    assert link is not None
    cancel, asked, go_on = link.channel.basic_cancel, asyncio.Event(), asyncio.Event()

    async def slow_cancel(consumer_tag: str) -> object:
        asked.set()
        await go_on.wait()
        return await cancel(consumer_tag)

    monkeypatch.setattr(link.channel, "basic_cancel", slow_cancel)
    draining = asyncio.create_task(frontend.server.drain())
    await asked.wait()
    async with vhost.connect() as client:
        assert (await client.call("get", "/late")).status == 200
        assert not draining.done()
        go_on.set()
        await draining
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_other_credentials_take_nothing_from_what_was_begun(vhost: Vhost) -> None:
    waiting = Waiting()
    transport = AmqpTransport(ENDPOINT, waiting, identify, None)
    task = asyncio.create_task(transport.run())
    try:
        transport.use_access(vhost.frontend)
        await until(lambda: transport.health_check.good and "serves" in transport.health_check.detail)
        async with vhost.connect() as client:
            await client.send("post", ACTION)
            await until(lambda: waiting.begun == 1)
            spec = replace(build_frontend_clients_user_spec(), name=vhost.frontend.username)
            await vhost.admin.ensure_user(spec, "another password")
            transport.use_access(vhost.frontend.as_user(vhost.frontend.username, "another password"))
            await until(lambda: not transport.health_check.good)
            waiting.go_on.set()
            assert (await client.answer()).status == 200
            assert (await client.call("get", "/")).status == 200
            assert waiting.begun == 1
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("auth", [None, "Basic", {"type": "basic"}, {"type": "basic", "password": 3}])
async def test_without_credentials_a_request_is_told_that_they_are_required(auth: object) -> None:
    server = amqp.AmqpServer(ENDPOINT, echo, Authenticator(None).identify_token)  # type: ignore[arg-type]
    table = {"path_info": "/compute/"} | ({"auth": auth} if auth is not None else {})
    request = read_request(Properties(message_type="get", headers=table), b"", ENDPOINT)  # type: ignore[arg-type]
    with pytest.raises(OcciError) as refused:
        await server._execute(request, redelivered=False)
    assert refused.value.status == 401 and "auth is required" in refused.value.message
