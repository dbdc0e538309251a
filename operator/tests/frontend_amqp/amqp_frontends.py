# SPDX-License-Identifier: Apache-2.0
"""Frontends without a backend, on a virtual host of the test's own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from cloud4e_client import Cloud4eClient, client_of

from simyard.frontend.amqp.consumer import AmqpServer
from simyard.frontend.exchange import Identity, OcciRequest, OcciResponse
from simyard.messaging.access import BrokerAccess
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.connection import open_channel
from simyard.occi.errors import OcciError

ENDPOINT = "https://127.0.0.1:8443/"
QUEUE = "amqp.occi.https://127.0.0.1:8443/"
TOKEN = "a token"
PASSWORD = "a password of the test's"


@dataclass
class Vhost:
    """Access to the broker for a test; every user has a name of the test's own."""

    admin: BrokerAdmin
    access: BrokerAccess
    frontend: BrokerAccess
    client: BrokerAccess
    service: BrokerAccess

    def url(self, access: BrokerAccess) -> str:
        return str(access.build_amqp_url("a test"))

    def connect(self) -> AbstractAsyncContextManager[Cloud4eClient]:
        return client_of(self.url(self.client), QUEUE, TOKEN)


async def identify(token: str) -> Identity:
    """Return the one user, who has one token."""
    if token != TOKEN:
        raise OcciError(401, "the token is nobody's")
    return Identity("alice", "1", (), ())


Answerer = Callable[[OcciRequest], Awaitable[OcciResponse]]


@dataclass
class Frontend:
    """A frontend without a backend: it records its requests, and answers as the test tells it."""

    answer: Answerer
    requests: list[OcciRequest] = field(default_factory=list)
    server: AmqpServer = field(init=False)

    def __post_init__(self) -> None:
        self.server = AmqpServer(ENDPOINT, self.handle, identify)

    async def handle(self, request: OcciRequest) -> OcciResponse:
        self.requests.append(request)
        return await self.answer(request)


async def echo(request: OcciRequest) -> OcciResponse:
    """Answer with the content of the request."""
    return OcciResponse(200, f"{request.method} {request.path}".encode(), "text/plain; charset=utf-8")


async def until(check: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(240):
        while True:
            if check():
                return
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def serving(vhost: Vhost, answer: Answerer = echo) -> AsyncIterator[Frontend]:
    """Run a frontend that serves the queue; at the end of the block it ends without closing its connections."""
    frontend = Frontend(answer)
    task = asyncio.create_task(frontend.server.run(vhost.frontend))
    try:
        await until(lambda: frontend.server.connected)
        yield frontend
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def dead_letters(vhost: Vhost, count: int) -> list[bytes]:
    """Wait for this number of dead letters, and return their bodies."""
    async with open_channel(vhost.access, "a test") as link, asyncio.timeout(240):
        found: list[bytes] = []
        while len(found) < count:
            letter = await link.channel.basic_get("simyard.dead.requests", no_ack=True)
            if letter.message_count is None:
                await asyncio.sleep(0.02)
            else:
                found.append(letter.body)
        return found
