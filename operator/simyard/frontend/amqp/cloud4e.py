# SPDX-License-Identifier: Apache-2.0
"""The service side of the Cloud4E binding: foreign service adapters.

An amqplink contains the name of an adapter's queue.

The frontend forwards an action on such a link to this queue; if the queue has no consumer, the client gets 503 at once.
When a client wants fresh values, the frontend asks the adapter for the attributes of the link. The backend calls
:meth:`ServiceAdapters.invoke` for an action on an amqplink that a client has created, and :meth:`ServiceAdapters.pull`
when it refreshes such a link. An adapter registers with ordinary OCCI requests (``POST /-/`` with its mixin, ``POST
/amqplink/``), or with a single request (:mod:`simyard.frontend.amqp.registration`).
"""

from __future__ import annotations

import asyncio
import dataclasses
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

from simyard.frontend.backend import Invocation
from simyard.frontend.exchange import PHRASES
from simyard.guest.messages import read_foreign_error, read_foreign_result
from simyard.guest.reading import RefusedError, check_body
from simyard.guest.text import make_printable_value
from simyard.messaging.access import BrokerAccess
from simyard.messaging.connection import CLOSE_SECONDS, BrokerChannel, stay_connected, translate_errors
from simyard.messaging.errors import MessagingError
from simyard.messaging.metrics import CONNECTED
from simyard.messaging.occi_topology import PULL_SUFFIX, SERVICE_QUEUES_PREFIX
from simyard.messaging.topology import REPLY_QUEUES_PREFIX
from simyard.occi.errors import OcciError, quote_input
from simyard.occi.model import Draft, Model, Value
from simyard.occi.negotiation import Rendering
from simyard.occi.parsing import parse
from simyard_adapter.declarations import Json
from simyard_adapter.limits import MAX_ATTRIBUTES_BYTES, MAX_ENVELOPE_BYTES

ACTION_SECONDS = 30.0
"""Time limit for the reply to an action. An action that no adapter reads expires in the queue after the same time."""
PULL_QUEUE_ARGUMENTS = {"x-expires": 60_000, "x-message-ttl": 5_000, "x-max-length": 100}
MAX_LINK_BYTES = MAX_ATTRIBUTES_BYTES + MAX_ENVELOPE_BYTES
"""Maximum size of a link as its adapter describes it."""
JSON = Rendering.JSON.value
Properties = spec.Basic.Properties


class ServiceAdapters:
    """The frontend's connection to foreign service adapters. It is open while ``run`` runs.

    ``action_seconds`` is the time limit for the reply to an action.
    """

    def __init__(self, action_seconds: float = ACTION_SECONDS) -> None:
        self._action_seconds = action_seconds
        self._link: BrokerChannel | None = None
        self._replies = ""
        self._pending: dict[str, asyncio.Future[DeliveredMessage | None]] = {}
        self._pulls: dict[str, asyncio.Task[bytes | None]] = {}

    @property
    def connected(self) -> bool:
        """True if requests can be sent to adapters."""
        return self._link is not None

    async def run(self, access: BrokerAccess) -> NoReturn:
        """Keep a connection until cancelled. ``access`` is the access to the clients' virtual host."""
        await stay_connected(access, "frontend services", self._serve, confirms=True)

    async def invoke(self, queue: str, path: str, invocation: Invocation) -> Mapping[str, Value] | None:
        """Forward an action to the queue of a link.

        The id of the message is the idempotency key, so an adapter can recognise a repeated message. A client that
        waits gets the result; Cloud4E's own adapters never return a result.

        Args:
            queue: the queue of the link, ``occi.amqplink.queue``.
            path: the path of the link.
            invocation: the action, its parameters, and whether the client waits.

        Returns:
            The result, a JSON object. If the client does not wait: None, as soon as the action is in the adapter's
            queue.

        Raises:
            OcciError: 503, no adapter consumes the queue, and nothing was done; 504, the adapter did not answer;
                otherwise the error in the adapter's answer.
        """
        action, attributes = invocation.action, invocation.attributes
        query = urlencode(
            {"action": action.term, **{name: _text(value) for name, value in attributes.items()}}, quote_via=quote
        )
        forwarded: dict[str, object] = {"term": action.term, "scheme": action.scheme}
        if attributes:
            forwarded["attributes"] = dict(attributes)
        message_id = invocation.key or uuid.uuid4().hex
        properties = Properties(
            message_type="post",
            content_type=JSON,
            message_id=message_id,
            expiration=str(round(self._action_seconds * 1000)),
            headers={"path_info": f"{path}?{query}"},
        )
        body = orjson.dumps({"actions": [forwarded]})
        async with _time_limit(f"the service adapter of {path} did not answer", self._action_seconds):
            await self._ensure_consumer(queue, path)
            if not invocation.wait:
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
            raise OcciError(
                504,
                f"the connection to the broker was lost; the service adapter of {path} may have carried out the action",
            )
        return _result(delivered, path)

    async def pull(self, queue: str, model: Model, *, timeout_seconds: float) -> Draft | None:
        """Return the link as its adapter reports it; None if the adapter is absent or does not answer in time.

        Simultaneous calls for the same queue share one request to its adapter.
        """
        task = self._pulls.get(queue)
        if task is None:
            task = self._pulls[queue] = asyncio.create_task(self._ask(queue, timeout_seconds), name=f"pull {queue}")
            task.add_done_callback(lambda _: self._pulls.pop(queue))
        body = await asyncio.shield(task)
        if body is None:
            return None
        try:
            check_body(body, MAX_LINK_BYTES)
            draft = parse(Rendering.JSON, (), body, model)
        except (RefusedError, OcciError):
            return None
        if not draft.kind:
            return None
        safe = {name: make_printable_value(value) for name, value in draft.attributes.items()}
        return dataclasses.replace(draft, attributes=_drop_nulls(safe))

    async def _ask(self, queue: str, timeout_seconds: float) -> bytes | None:
        """Send ``update_link`` to the queue, and return the answer from the reply queue, as Cloud4E's server did.

        The name of the reply queue is fixed. If two frontends ask at the same time, each may receive the answer to the
        other. Both answers have the same content.
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
                    return await answer
        except (OcciError, MessagingError, TimeoutError):
            return None

    async def _ensure_consumer(self, queue: str, path: str) -> None:
        """Raise an error unless an adapter consumes the queue.

        Raises:
            OcciError: 503, no consumer; 400, the name is not one of a service adapter's queue.
        """
        if not queue.startswith(SERVICE_QUEUES_PREFIX):
            raise OcciError(
                400, f"{path}: occi.amqplink.queue {quote_input(queue)} does not begin with {SERVICE_QUEUES_PREFIX}"
            )
        async with self._channel() as channel:
            try:
                consumers = (await channel.queue_declare(queue, passive=True)).consumer_count
            except ChannelNotFoundEntity:
                consumers = 0
        if not consumers:
            raise _adapter_absent(path)

    async def _send(self, queue: str, path: str, body: bytes, properties: Properties) -> None:
        if self._link is None:
            raise _no_broker()
        try:
            with translate_errors():
                try:
                    await self._link.channel.basic_publish(
                        body, routing_key=queue, properties=properties, mandatory=True
                    )
                except PublishError:
                    raise _adapter_absent(path) from None
                except DeliveryError:
                    raise OcciError(
                        503, f"the queue of the service adapter of {path} is full; try again later"
                    ) from None
        except MessagingError as error:
            raise OcciError(503, f"the message broker does not accept the message now; try again: {error}") from None

    @asynccontextmanager
    async def _channel(self) -> AsyncIterator[AbstractChannel]:
        """Open a separate channel for an operation after whose failure the broker closes the channel."""
        if self._link is None:
            raise _no_broker()
        try:
            with translate_errors():
                channel = await self._link.channel.connection.channel(publisher_confirms=False)
                try:
                    yield channel
                finally:
                    if not channel.is_closed:
                        with suppress(TimeoutError):
                            async with asyncio.timeout(CLOSE_SECONDS):
                                await channel.close()
        except MessagingError as error:
            raise OcciError(503, f"the message broker does not answer now; try again: {error}") from None

    async def _serve(self, link: BrokerChannel) -> None:
        queue = f"{REPLY_QUEUES_PREFIX}services-{secrets.token_hex(8)}"
        await link.channel.queue_declare(queue, exclusive=True)
        await link.channel.basic_consume(queue, self._receive, no_ack=True)
        self._replies, self._link = queue, link
        try:
            CONNECTED.labels("frontend services").set(1)
            await link.wait_until_lost()
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
    """Return the body of an adapter's reply, parsed as JSON.

    The headers ``status_code`` and ``is_error`` of the reply have the same meaning as in a response of this frontend.

    Raises:
        OcciError: the reply is an error, or :mod:`simyard.guest` refuses it.
    """
    headers = delivered.header.properties.headers or {}
    status = headers.get("status_code")
    if headers.get("is_error") or (isinstance(status, int) and status >= 400):
        code = status if isinstance(status, int) and status >= 400 and status in PHRASES else 502
        raise OcciError(code, f"{path}: {read_foreign_error(delivered.body)}")
    try:
        return _drop_nulls(read_foreign_result(delivered.body))
    except RefusedError as refused:
        raise OcciError(502, f"{path}: the reply of its service adapter was refused: {refused.problem}") from None


def _drop_nulls(values: Mapping[str, Json]) -> dict[str, Value]:
    """Return the values without null, which OCCI does not have."""
    return {name: value for name, value in values.items() if value is not None}


@asynccontextmanager
async def _time_limit(what: str, seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise OcciError(504, f"{what} within {seconds:g} s") from None


def _adapter_absent(path: str) -> OcciError:
    return OcciError(503, f"the service adapter of {path} is not connected: its queue has no consumer")


def _no_broker() -> OcciError:
    return OcciError(503, "there is no connection to the message broker now; nothing was sent; try again")
