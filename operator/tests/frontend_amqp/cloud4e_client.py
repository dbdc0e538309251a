# SPDX-License-Identifier: Apache-2.0
"""A client and a service adapter of the Cloud4E binding, written from its description without code of Simyard."""

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import aiormq
from aiormq.abc import AbstractChannel, DeliveredMessage

Properties = aiormq.spec.Basic.Properties
PATIENCE_SECONDS = 240.0


@dataclass(frozen=True)
class Answer:
    """A response, as it was on the wire."""

    status: int
    body: bytes
    content_type: str
    correlation_id: str
    headers: dict[str, Any]

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def is_error(self) -> bool:
        return self.headers.get("is_error", False) is True

    @classmethod
    def of(cls, message: DeliveredMessage) -> "Answer":
        properties = message.header.properties
        headers = dict(properties.headers or {})
        return cls(
            headers["status_code"],
            message.body,
            properties.content_type or "",
            properties.correlation_id or "",
            headers,
        )


class Cloud4eClient:
    """A client with one connection, one exclusive reply queue, and a message id for each request."""

    def __init__(self, channel: AbstractChannel, queue: str, replies: str, token: str) -> None:
        self.channel = channel
        self.queue = queue
        self.replies = replies
        self.token = token
        self.answers: asyncio.Queue[Answer] = asyncio.Queue()

    async def send(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        message_id: str | None = None,
        content_type: str = "text/plain",
        accept: str = "text/plain",
        reply_to: str | None = None,
        **headers: Any,
    ) -> str:
        """Send a request, and return its message id."""
        message_id = uuid.uuid4().hex if message_id is None else message_id
        auth = {"type": "basic", "username": "somebody", "password": self.token}
        properties = Properties(
            message_type=method,
            content_type=content_type,
            reply_to=self.replies if reply_to is None else reply_to,
            message_id=message_id,
            headers={"path_info": path, "accept": accept, "auth": auth, **headers},
        )
        await self.publish(body, properties)
        return message_id

    async def publish(self, body: bytes, properties: Properties) -> None:
        """Publish any message to the shared queue."""
        await self.channel.basic_publish(body, routing_key=self.queue, properties=properties)

    async def answer(self) -> Answer:
        """Return the next response."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.answers.get()

    async def call(self, method: str, path: str, body: bytes = b"", **options: Any) -> Answer:
        """Send a request, and return its response."""
        message_id = await self.send(method, path, body, **options)
        answer = await self.answer()
        assert answer.correlation_id == message_id
        return answer


@contextlib.asynccontextmanager
async def client_of(url: str, queue: str, token: str = "a token", ssl: Any = None) -> AsyncIterator[Cloud4eClient]:
    """Run a client of the frontends that share a queue."""
    connection = aiormq.Connection(url, context=ssl)
    await connection.connect()
    try:
        channel = await connection.channel()
        declared = await channel.queue_declare("", exclusive=True)
        client = Cloud4eClient(channel, queue, declared.queue or "", token)

        async def receive(message: DeliveredMessage) -> None:
            client.answers.put_nowait(Answer.of(message))

        await channel.basic_consume(client.replies, receive, no_ack=True)
        yield client
    finally:
        await connection.close()


@dataclass(frozen=True)
class Adapter:
    """A service adapter with the messages of its queue."""

    queue: str
    messages: "asyncio.Queue[DeliveredMessage]"

    async def next(self) -> DeliveredMessage:
        """Return the next message."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.messages.get()

    async def called(self) -> DeliveredMessage:
        """Return the next action, and skip requests for attributes."""
        while (message := await self.next()).body == b"update_link":
            pass
        return message


Reply = Callable[[DeliveredMessage], Awaitable[tuple[bytes, dict[str, Any]] | None]]


@contextlib.asynccontextmanager
async def adapter_of(url: str, reply: Reply | None = None, ssl: Any = None) -> AsyncIterator[Adapter]:
    """Run a service adapter that answers messages with a reply queue, if it has a reply."""
    connection = aiormq.Connection(url, context=ssl)
    await connection.connect()
    try:
        channel = await connection.channel()
        adapter = Adapter(f"occi.amqp.service.{connection.url.user}.{uuid.uuid4()}", asyncio.Queue())
        await channel.queue_declare(adapter.queue, auto_delete=True)

        async def receive(message: DeliveredMessage) -> None:
            adapter.messages.put_nowait(message)
            asked = message.header.properties
            if reply is not None and asked.reply_to and (made := await reply(message)) is not None:
                body, headers = made
                properties = Properties(correlation_id=asked.message_id, headers=headers)
                await channel.basic_publish(body, routing_key=asked.reply_to, properties=properties)

        await channel.basic_consume(adapter.queue, receive, no_ack=True)
        yield adapter
    finally:
        await connection.close()


def as_json(value: Any) -> bytes:
    """Return a JSON document."""
    return json.dumps(value).encode()
