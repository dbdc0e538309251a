"""Frontends without anything behind them, on a clients' virtual host of the test's own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from cloud4e_client import Cloud4eClient, client_of

from simyard.frontend.amqp import AmqpServer
from simyard.frontend.exchange import Identity, OcciRequest, OcciResponse
from simyard.messaging.access import BrokerAccess
from simyard.messaging.admin import BrokerAdmin
from simyard.messaging.connection import open_link
from simyard.occi.errors import OcciError

ENDPOINT = "https://127.0.0.1:8443/"
QUEUE = "amqp.occi.https://127.0.0.1:8443/"
TOKEN = "a token"
PASSWORD = "a password of the test's"


@dataclass
class Vhost:
    """What a test has at the broker; every user's name is the test's own."""

    admin: BrokerAdmin
    access: BrokerAccess
    frontend: BrokerAccess
    client: BrokerAccess
    service: BrokerAccess

    def url(self, access: BrokerAccess) -> str:
        return str(access.amqp_url("a test"))

    def connect(self) -> AbstractAsyncContextManager[Cloud4eClient]:
        return client_of(self.url(self.client), QUEUE, TOKEN)


async def identify(token: str) -> Identity:
    """One user, by one token."""
    if token != TOKEN:
        raise OcciError(401, "the token is nobody's")
    return Identity("alice", "1", (), ())


Answerer = Callable[[OcciRequest], Awaitable[OcciResponse]]


@dataclass
class Frontend:
    """A frontend without anything behind it: it says what it is asked, and answers as it is told."""

    answer: Answerer
    requests: list[OcciRequest] = field(default_factory=list)
    server: AmqpServer = field(init=False)

    def __post_init__(self) -> None:
        self.server = AmqpServer(ENDPOINT, self.handle, identify)

    async def handle(self, request: OcciRequest) -> OcciResponse:
        self.requests.append(request)
        return await self.answer(request)


async def echo(request: OcciRequest) -> OcciResponse:
    """Says what was asked."""
    return OcciResponse(200, f"{request.method} {request.path}".encode(), "text/plain; charset=utf-8")


async def until(check: Callable[[], bool]) -> None:
    """Wait until it is so."""
    async with asyncio.timeout(30):
        while True:
            if check():
                return
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def serving(vhost: Vhost, answer: Answerer = echo) -> AsyncIterator[Frontend]:
    """A frontend that serves the queue; when the block ends it is gone without a farewell."""
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
    """The bodies of so many dead letters, taken out; waits for them."""
    async with open_link(vhost.access, "a test") as link, asyncio.timeout(30):
        found: list[bytes] = []
        while len(found) < count:
            letter = await link.channel.basic_get("simyard.dead.requests", no_ack=True)
            if letter.message_count is None:
                await asyncio.sleep(0.02)
            else:
                found.append(letter.body)
        return found
