"""The service side of the Cloud4E binding: foreign service adapters, which an amqplink names a queue of.

An action on such a link is forwarded to its queue, and an adapter that is not there is an immediate 503; the attributes
of a link are pulled when somebody wants fresh ones: the backend calls :meth:`ServiceAdapters.invoke` for an action on
an amqplink that a client has made, and :meth:`ServiceAdapters.pull` when it refreshes one. An adapter registers with
the requests that OCCI has for it (``POST /-/`` with its mixin, ``POST /amqplink/``), or with one
(:mod:`simyard.frontend.registration`).
"""

from __future__ import annotations

import asyncio
import secrets
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import NoReturn
from urllib.parse import quote, urlencode

import orjson
from aiormq import spec
from aiormq.abc import AbstractChannel, DeliveredMessage
from aiormq.exceptions import ChannelNotFoundEntity, DeliveryError, PublishError

from simyard.frontend.exchange import PHRASES
from simyard.messaging.access import BrokerAccess
from simyard.messaging.connection import CLOSE_SECONDS, Link, stay_connected, translated
from simyard.messaging.errors import MessagingError
from simyard.messaging.metrics import CONNECTED
from simyard.messaging.occi_topology import PULL_SUFFIX, SERVICE_QUEUES_PREFIX
from simyard.messaging.topology import REPLY_QUEUES_PREFIX
from simyard.occi.errors import OcciError, shown
from simyard.occi.model import Action, Draft, Model, Value
from simyard.occi.negotiation import Rendering
from simyard.occi.parsing import parse

ACTION_SECONDS = 30.0
"""For an action's reply; unread, the action expires in the queue after the same time."""
PULL_QUEUE_ARGUMENTS = {"x-expires": 60_000, "x-message-ttl": 5_000, "x-max-length": 100}
MOST_REPLY_BYTES = 1024 * 1024
JSON = Rendering.JSON.value
Properties = spec.Basic.Properties


class ServiceAdapters:
    """Speaks with foreign service adapters; ``run`` must run meanwhile."""

    def __init__(self) -> None:
        self._link: Link | None = None
        self._replies = ""
        self._pending: dict[str, asyncio.Future[DeliveredMessage | None]] = {}
        self._pulls: dict[str, asyncio.Task[bytes | None]] = {}

    @property
    def connected(self) -> bool:
        """Whether adapters can be asked."""
        return self._link is not None

    async def run(self, access: BrokerAccess) -> NoReturn:
        """Keep a connection, until cancelled. ``access`` is to the clients' virtual host."""
        await stay_connected(access, "frontend services", self._serve, confirms=True)

    async def invoke(
        self, queue: str, path: str, action: Action, attributes: Mapping[str, Value], *, wait: bool, key: str = ""
    ) -> Mapping[str, Value] | None:
        """Forward an action to the queue of a link.

        Args:
            queue: of the link, its ``occi.amqplink.queue``.
            path: of the link.
            action: what is called.
            attributes: its parameters.
            wait: return the result; adapters of Cloud4E itself never give one.
            key: the message's id, for an adapter that carries out each once.

        Returns:
            The result, a JSON object; None without ``wait``, when the adapter's queue has the action.

        Raises:
            OcciError: 503, the adapter is not there, nothing was done; 504, it did not answer; or its own answer.
        """
        query = urlencode(
            {"action": action.term, **{name: _text(value) for name, value in attributes.items()}}, quote_via=quote
        )
        forwarded: dict[str, object] = {"term": action.term, "scheme": action.scheme}
        if attributes:
            forwarded["attributes"] = dict(attributes)
        message_id = key or uuid.uuid4().hex
        properties = Properties(
            message_type="post",
            content_type=JSON,
            message_id=message_id,
            expiration=str(round(ACTION_SECONDS * 1000)),
            headers={"path_info": f"{path}?{query}"},
        )
        body = orjson.dumps({"actions": [forwarded]})
        async with _deadline(f"the service adapter of {path} did not answer", ACTION_SECONDS):
            await self._ensure_consumer(queue, path)
            if not wait:
                await self._send(queue, path, body, properties)
                return None
            properties.reply_to, properties.correlation_id = self._replies, message_id
            reply = self._pending[message_id] = asyncio.get_running_loop().create_future()
            try:
                await self._send(queue, path, body, properties)
                delivered = await reply
            finally:
                self._pending.pop(message_id, None)
        if delivered is None:
            raise OcciError(504, f"the connection to the broker was lost; {path} may have carried it out")
        return _result(delivered, path)

    async def pull(self, queue: str, model: Model, *, timeout_seconds: float) -> Draft | None:
        """The link as its adapter sees it; None when the adapter is not there or does not answer in time.

        Who asks while somebody else's question is under way gets the same answer.
        """
        task = self._pulls.get(queue)
        if task is None:
            task = self._pulls[queue] = asyncio.create_task(self._ask(queue, timeout_seconds), name=f"pull {queue}")
            task.add_done_callback(lambda _: self._pulls.pop(queue))
        body = await asyncio.shield(task)
        if body is None:
            return None
        try:
            draft = parse(Rendering.JSON, (), body, model)
        except OcciError:
            return None
        return draft if draft.kind else None

    async def _ask(self, queue: str, timeout_seconds: float) -> bytes | None:
        """``update_link`` to the queue; the answer arrives on another queue, which we make (as Cloud4E's server did).

        That queue's name is fixed, so two frontends that ask at once may get each other's answer, which is the same.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._ensure_consumer(queue, queue)
                answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

                async def receive(delivered: DeliveredMessage) -> None:
                    if not answer.done():
                        answer.set_result(delivered.body)

                reply_to = queue + PULL_SUFFIX
                async with self._channel() as channel:
                    await channel.queue_declare(reply_to, durable=True, arguments={**PULL_QUEUE_ARGUMENTS})
                    await channel.basic_consume(reply_to, receive, no_ack=True)
                    properties = Properties(reply_to=reply_to, expiration=str(max(1, round(timeout_seconds * 1000))))
                    await self._send(queue, queue, b"update_link", properties)
                    body = await answer
                    return body if len(body) <= MOST_REPLY_BYTES else None
        except (OcciError, MessagingError, TimeoutError):
            return None

    async def _ensure_consumer(self, queue: str, path: str) -> None:
        """Return if somebody reads the queue.

        Raises:
            OcciError: 503, nobody does; 400, it is no queue of a service adapter.
        """
        if not queue.startswith(SERVICE_QUEUES_PREFIX):
            raise OcciError(
                400, f"{path}: occi.amqplink.queue {shown(queue)} does not begin with {SERVICE_QUEUES_PREFIX}"
            )
        async with self._channel() as channel:
            try:
                consumers = (await channel.queue_declare(queue, passive=True)).consumer_count
            except ChannelNotFoundEntity:
                consumers = 0
        if not consumers:
            raise _absent(path)

    async def _send(self, queue: str, path: str, body: bytes, properties: Properties) -> None:
        if self._link is None:
            raise _no_broker()
        try:
            with translated():
                try:
                    await self._link.channel.basic_publish(
                        body, routing_key=queue, properties=properties, mandatory=True
                    )
                except PublishError:
                    raise _absent(path) from None
                except DeliveryError:
                    raise OcciError(503, f"the queue of {path} is full; try again later") from None
        except MessagingError as error:
            raise OcciError(503, f"the message broker does not take it now: {error}") from None

    @asynccontextmanager
    async def _channel(self) -> AsyncIterator[AbstractChannel]:
        """A channel for what the broker may answer by closing it."""
        if self._link is None:
            raise _no_broker()
        try:
            with translated():
                channel = await self._link.channel.connection.channel(publisher_confirms=False)
                try:
                    yield channel
                finally:
                    if not channel.is_closed:
                        with suppress(TimeoutError):
                            async with asyncio.timeout(CLOSE_SECONDS):
                                await channel.close()
        except MessagingError as error:
            raise OcciError(503, f"the message broker does not answer now: {error}") from None

    async def _serve(self, link: Link) -> None:
        queue = f"{REPLY_QUEUES_PREFIX}services-{secrets.token_hex(8)}"
        await link.channel.queue_declare(queue, exclusive=True)
        await link.channel.basic_consume(queue, self._receive, no_ack=True)
        self._replies, self._link = queue, link
        try:
            CONNECTED.labels("frontend services").set(1)
            await link.until_lost()
        finally:
            self._link = None
            for reply in self._pending.values():
                if not reply.done():
                    reply.set_result(None)

    async def _receive(self, delivered: DeliveredMessage) -> None:
        reply = self._pending.get(delivered.header.properties.correlation_id or "")
        if reply is not None and not reply.done():
            reply.set_result(delivered)


def _text(value: Value) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _result(delivered: DeliveredMessage, path: str) -> Mapping[str, Value]:
    """The body of a reply; ``status_code`` and ``is_error`` as in our own responses.

    Raises:
        OcciError: the reply says that it failed, or is no JSON object.
    """
    headers = delivered.header.properties.headers or {}
    status = headers.get("status_code")
    if headers.get("is_error") or (isinstance(status, int) and status >= 400):
        code = status if isinstance(status, int) and status >= 400 and status in PHRASES else 502
        raise OcciError(code, f"{path}: {delivered.body[:500].decode(errors='replace')}")
    if not delivered.body:
        return {}
    try:
        body = orjson.loads(delivered.body[: MOST_REPLY_BYTES + 1])
    except orjson.JSONDecodeError:
        body = None
    if not isinstance(body, dict):
        raise OcciError(502, f"{path}: the reply of its service adapter is not a JSON object")
    return body


@asynccontextmanager
async def _deadline(what: str, seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise OcciError(504, f"{what} within {seconds:g} s") from None


def _absent(path: str) -> OcciError:
    return OcciError(503, f"the service adapter of {path} is not there: nobody reads its queue")


def _no_broker() -> OcciError:
    return OcciError(503, "there is no connection to the message broker now; nothing was sent")
