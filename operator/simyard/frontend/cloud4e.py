"""The service side of the Cloud4E binding: foreign service adapters, which an amqplink names a queue of.

An action on such a link is forwarded to its queue, and an adapter that is not there is an immediate 503; the attributes
of a link are pulled when somebody wants fresh ones: the backend calls :meth:`ServiceAdapters.invoke` for an action on
an amqplink that a client has made, and :meth:`ServiceAdapters.pull` when it refreshes one. An adapter registers with
the requests that OCCI has for it (``POST /-/`` with its mixin, ``POST /amqplink/``), or with one (:func:`registering`).
"""

from __future__ import annotations

import asyncio
import secrets
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import NoReturn, TypeGuard
from urllib.parse import quote, urlencode

import orjson
from aiormq import spec
from aiormq.abc import AbstractChannel, DeliveredMessage
from aiormq.exceptions import ChannelNotFoundEntity, DeliveryError, PublishError

from simyard.frontend.exchange import OcciRequest, OcciResponse
from simyard.messaging.access import BrokerAccess
from simyard.messaging.connection import CLOSE_SECONDS, Link, stay_connected, translated
from simyard.messaging.errors import MessagingError
from simyard.messaging.metrics import CONNECTED
from simyard.messaging.occi_topology import PULL_SUFFIX, SERVICE_QUEUES_PREFIX
from simyard.messaging.topology import REPLY_QUEUES_PREFIX
from simyard.occi.errors import OcciError, shown
from simyard.occi.model import Action, Draft, Model, Value
from simyard.occi.negotiation import Rendering, choose, content_type
from simyard.occi.parsing import parse
from simyard.occi.rendering import render_locations
from simyard.occi.standard import STANDARD

ACTION_SECONDS = 30.0
"""For an action's reply; unread, the action expires in the queue after the same time."""
PULL_QUEUE_ARGUMENTS = {"x-expires": 60_000, "x-message-ttl": 5_000, "x-max-length": 100}
MOST_REPLY_BYTES = 1024 * 1024
AMQPLINKS = "/amqplink/"
JSON = Rendering.JSON.value
Properties = spec.Basic.Properties
_MODEL = Model(STANDARD)
"""Enough to find the id in a request; the handlers read it by the model as it is."""
Handle = Callable[[OcciRequest], Awaitable[OcciResponse]]


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


def registering(handle: Handle) -> Handle:
    """Handlers that take registrations as service adapters send them.

    ``POST /amqplink/`` of a link whose id is there already replaces it, as an adapter does that starts again. And one
    message may be a whole registration: a JSON document of ``mixins`` and ``actions`` (definitions, as for ``POST
    /-/``) and ``links``, each with an ``id``: the mixins are defined, then every link is created or replaced. Sent
    again, it changes nothing. The answer is that of the last request, or of the first that is refused.
    """

    async def handle_registration(request: OcciRequest) -> OcciResponse:
        if request.method != "POST" or request.path != AMQPLINKS or request.query:
            return await handle(request)
        if parts := _parts(request):
            for part in parts:
                response = await handle(part)
                if response.status >= 400:
                    break
            return response
        if (path := _path_asked_for(request)) and await _is_there(handle, request, path):
            rendering = choose(request.header("accept"))
            response = await handle(_replacing(request, path))
            return response if response.status >= 400 else _located(request, path, rendering)
        return await handle(request)

    return handle_registration


def _path_asked_for(request: OcciRequest) -> str:
    """The path of the one link in a request, by its id; empty without."""
    try:
        draft = parse(content_type(request.header("content-type")), request.headers, request.body, _MODEL)
    except OcciError:  # the handlers say what is wrong
        return ""
    asked_for = draft.attributes.get("occi.core.id")
    return AMQPLINKS + asked_for if _is_id(asked_for) and not draft.members else ""


async def _is_there(handle: Handle, request: OcciRequest, path: str) -> bool:
    return (await handle(replace(request, method="GET", path=path, headers=(), body=b"", key=""))).status == 200


def _replacing(request: OcciRequest, path: str) -> OcciRequest:
    headers = tuple(header for header in request.headers if header[0] != "accept")
    return replace(request, method="PUT", path=path, headers=headers)


def _located(request: OcciRequest, path: str, rendering: Rendering) -> OcciResponse:
    """What a creation answers, for a link that was there."""
    rendered = render_locations([path], rendering, request.base)
    headers = (*rendered.headers, ("Location", request.base + path))
    return OcciResponse(200, rendered.body, rendered.content_type, headers)


def _parts(request: OcciRequest) -> tuple[OcciRequest, ...]:
    """The requests of a registration; none if it is not one."""
    media_type = (request.header("content-type") or "").partition(";")[0].strip().lower()
    is_json = media_type in (JSON, "application/json")
    if not is_json:
        return ()
    try:
        document = orjson.loads(request.body)
    except orjson.JSONDecodeError:
        return ()
    if not isinstance(document, dict):
        return ()
    mixins, links = document.get("mixins"), document.get("links")
    if not _are_objects(mixins) or not _are_objects(links):
        return ()
    ids = [name for link in links if _is_id(name := link.get("id"))]
    if len(ids) < len(links):
        return ()
    definitions = {"mixins": mixins, "actions": document.get("actions") or []}
    return (
        replace(request, path="/-/", body=orjson.dumps(definitions), key=_part_key(request, "mixins")),
        *(
            replace(
                request,
                method="PUT",
                path=AMQPLINKS + name,
                body=orjson.dumps(link),
                key=_part_key(request, name),
            )
            for name, link in zip(ids, links, strict=True)
        ),
    )


def _part_key(request: OcciRequest, part: str) -> str:
    return request.key and f"{request.key}-{part}"


def _are_objects(value: object) -> TypeGuard[list[dict[str, object]]]:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _is_id(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and bool(value) and "/" not in value


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
        code = status if isinstance(status, int) and 400 <= status <= 599 else 500
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
