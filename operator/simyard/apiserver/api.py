# SPDX-License-Identifier: Apache-2.0
"""The request handler of the aggregated API: it identifies and authorizes the caller, and makes the response.

If the API refuses a request, the body of the response is a ``metav1.Status``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime

import orjson
from aiohttp import hdrs, web

from simyard.api.base import Json
from simyard.api.names import FILES, STUDIES, SUBRESOURCES_API_VERSION
from simyard.apiserver.documents import accepts_json, render_documents
from simyard.apiserver.frontproxy import FrontProxy
from simyard.apiserver.metrics import DURATION, IN_FLIGHT, REQUESTS
from simyard.apiserver.routes import VERBS, Document, Route, list_verbs, parse_route
from simyard.apiserver.streams import send_texts
from simyard.serving.actions import Actions
from simyard.serving.attributes import Attributes
from simyard.serving.authorization import Authorizer
from simyard.serving.broker import BrokerClient
from simyard.serving.calls import ResourceCall
from simyard.serving.directory import Directory
from simyard.serving.files import Files
from simyard.serving.health import Health
from simyard.serving.identity import Identity
from simyard.serving.logs import FollowedLog, Logs
from simyard.serving.objects import format_time
from simyard.serving.status import CODES, StatusError, StatusReason, Subject
from simyard.serving.study_results import StudyResults

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 3 * 512 * 1024
"""Maximum size of a body: 1.5 MiB, which is etcd's default limit for an object, and so for a ServiceAction."""
REQUEST_SECONDS = 55.0
JSON_TYPE = "application/json"


@dataclass(frozen=True, slots=True)
class Services:
    """The other parts of the apiserver, as far as the request handler uses them."""

    directory: Directory
    authorizer: Authorizer
    broker: BrokerClient
    actions: Actions
    attributes: Attributes
    logs: Logs
    files: Files
    study_results: StudyResults
    health: Health


class Api:
    """The handler of all requests.

    Before the front proxy's settings are known, ``front_proxy`` is None, and the handler refuses all requests except
    those for documents.
    """

    def __init__(self, services: Services, *, max_in_flight: int) -> None:
        self.front_proxy: FrontProxy | None = None
        self._services = services
        self._max_in_flight = max_in_flight
        self._in_flight = 0
        self._documents = render_documents()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        started = time.perf_counter()
        route = parse_route(request.method, request.path)
        self._in_flight += 1
        IN_FLIGHT.set(self._in_flight)
        try:
            answer = await self._answer_or_refuse(request, route)
        finally:
            self._in_flight -= 1
            IN_FLIGHT.set(self._in_flight)
        seconds = time.perf_counter() - started
        response = await self._follow(request, answer) if isinstance(answer, FollowedLog) else answer
        labels = _labels(request.method, route)
        REQUESTS.labels(*labels, str(response.status)).inc()
        DURATION.labels(*labels).observe(seconds)
        return response

    async def _follow(self, request: web.BaseRequest, log: FollowedLog) -> web.StreamResponse:
        """Send a log while its client follows it. This can take an hour, so it does not count as a parallel request."""
        try:
            with self._services.logs.admit(log):
                return await send_texts(request, log.texts)
        except StatusError as error:
            return _refusal(error, request.method)

    async def _answer_or_refuse(self, request: web.BaseRequest, route: Route | None) -> web.Response | FollowedLog:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                return await self._answer(request, route)
        except StatusError as error:
            refusal = error
        except TimeoutError:
            refusal = StatusError(
                StatusReason.TIMEOUT, f"the request was not answered within {REQUEST_SECONDS:.0f} s; try again"
            )
        except Exception:  # for every error, the client gets a Status, and the log has the traceback
            log.exception("%s %s failed; this is a defect of Simyard", request.method, request.path)
            refusal = StatusError(StatusReason.INTERNAL_ERROR, "the apiserver failed; its log has the cause")
        return _refusal(refusal, request.method)

    async def _answer(self, request: web.BaseRequest, route: Route | None) -> web.Response | FollowedLog:
        if isinstance(route, Document):
            return self._document(request, route)
        if self._in_flight > self._max_in_flight:
            raise StatusError(
                StatusReason.TOO_MANY_REQUESTS,
                f"the apiserver already handles {self._max_in_flight} requests; try again",
                retry_after_seconds=1,
            )
        identity = None
        if self.front_proxy is not None:
            identity = self.front_proxy.read_identity(request.get_extra_info("peercert"), request.headers)
        if identity is None:
            raise StatusError(StatusReason.UNAUTHORIZED, "Unauthorized: send requests through the Kubernetes API")
        if route is None:
            raise StatusError(StatusReason.NOT_FOUND, f"nothing is served under {request.path}")
        await self._services.authorizer.check(identity, route)
        if route.verb not in (verbs := list_verbs(route)):
            raise _not_served(route, request.method, verbs)
        return await self._call(request, route, identity)

    async def _call(
        self, request: web.BaseRequest, call: ResourceCall, identity: Identity
    ) -> web.Response | FollowedLog:
        """Answer a call of a subresource that exists. The caller's permission is already checked."""
        content_type = request.headers.get(hdrs.CONTENT_TYPE, "")
        match call.verb, call.path:
            case _, ("actions", _):
                body = await _body(request)
                code, answer = await self._services.actions.call(call, request.query, body, content_type, identity)
                return _json(answer, code)
            case "update", ("attributes", _):
                return _json(await self._services.attributes.set(call, await _body(request), content_type))
            case _, ("attributes", *_):
                return _json(await self._services.attributes.read(call, request.query))
            case _, () if call.resource == FILES:
                code, answer = await self._services.files.answer(
                    call, request.query, await _body(request), content_type, identity
                )
                return _json(answer, code)
            case _, () if call.resource == STUDIES:
                return _json(await self._services.study_results.find_study(call))
            case _, ("results",):
                return _json(await self._services.study_results.list_parts(call, request.query))
            case _, ("log",):
                log = await self._services.logs.read(call, request.query)
                if isinstance(log, FollowedLog):
                    return log
                return web.Response(text=log, content_type="text/plain", charset="utf-8")
        return _json(await self._interface(call))

    async def _interface(self, call: ResourceCall) -> Json:
        """Return the interface of the target's service; users need no permission for the SimulationService itself."""
        target = await self._services.directory.find_target(call)
        service = await self._services.directory.find_service(target)
        return {
            "apiVersion": SUBRESOURCES_API_VERSION,
            "kind": call.resource.kind,
            "metadata": {
                "name": target.metadata.name,
                "namespace": target.metadata.namespace,
                "uid": target.metadata.uid,
                "creationTimestamp": format_time(target.metadata.creation_timestamp or datetime.now(UTC)),
            },
            "service": service.metadata.name,
            "interface": service.interface.to_json(),
        }

    def _document(self, request: web.BaseRequest, document: Document) -> web.Response:
        if request.method not in ("GET", "HEAD"):
            raise StatusError(StatusReason.METHOD_NOT_ALLOWED, f"{request.method} is not supported here")
        if (rendered := self._documents.get(document)) is None:
            ready, text = self._services.health.report() if document is Document.READYZ else (True, "ok\n")
            return web.Response(text=text, status=200 if ready else 503)
        if not accepts_json(request.headers.get(hdrs.ACCEPT, "")):
            raise StatusError(StatusReason.NOT_ACCEPTABLE, f"only {JSON_TYPE} is offered")
        headers = {hdrs.ETAG: rendered.etag}
        if rendered.is_known(request.headers.get(hdrs.IF_NONE_MATCH, "")):
            return web.Response(status=304, headers=headers)
        return web.Response(body=rendered.body, content_type=JSON_TYPE, headers=headers)


def _labels(method: str, route: Route | None) -> tuple[str, str, str]:
    """Return the values of the labels verb, resource and subresource; clients cannot create new values."""
    verb = VERBS.get(method, "other")
    if isinstance(route, ResourceCall):
        known = route.path[0] if route.path and route.path[0] in ("actions", "attributes", "log", "results") else ""
        return verb, route.resource.plural, known
    return verb, "document" if route else "unknown", ""


def _not_served(call: ResourceCall, method: str, verbs: tuple[str, ...]) -> StatusError:
    subject = Subject(call.resource, call.name)
    if verbs:
        return StatusError(StatusReason.METHOD_NOT_ALLOWED, f"{method} is not supported here", subject=subject)
    return StatusError(StatusReason.NOT_FOUND, f"{subject} has no subresource {call.subresource}", subject=subject)


async def _body(request: web.BaseRequest) -> bytes:
    too_large = StatusError(StatusReason.REQUEST_ENTITY_TOO_LARGE, f"the body is larger than {MAX_BODY_BYTES} bytes")
    if (request.content_length or 0) > MAX_BODY_BYTES:
        raise too_large
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in request.content.iter_any():
            size += len(chunk)
            if size > MAX_BODY_BYTES:
                raise too_large
            chunks.append(chunk)
    except (ConnectionError, web.RequestPayloadError) as error:
        raise StatusError(StatusReason.BAD_REQUEST, "the body ended too early") from error
    return b"".join(chunks)


def _json(data: Json, code: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(data), status=code, content_type=JSON_TYPE)


def _refusal(error: StatusError, method: str) -> web.Response:
    response = _json(error.to_json(), error.code)
    # If a response has this header, kubectl repeats a GET up to ten times before it shows the reason.
    if error.retry_after_seconds and (method != "GET" or error.code == CODES[StatusReason.TOO_MANY_REQUESTS]):
        response.headers[hdrs.RETRY_AFTER] = str(error.retry_after_seconds)
    return response
