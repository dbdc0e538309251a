# SPDX-License-Identifier: Apache-2.0
"""Serves OCCI over HTTP: reads requests, checks their limits, calls the handlers, and sends the responses."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable

from aiohttp import hdrs, web

from simyard.frontend.budget import BodyBudget, SendingBudget
from simyard.frontend.entities.targets import Collection, find_target
from simyard.frontend.exchange import (
    ALLOW,
    MAX_BODY_BYTES,
    METHODS,
    Identity,
    OcciRequest,
    OcciResponse,
    parse_target,
)
from simyard.frontend.handlers import Handlers, list_allowed_methods, make_error_response
from simyard.frontend.health import Health
from simyard.frontend.http.answers import MAX_JOINED_BYTES, Answer
from simyard.frontend.http.connection import TEXT, Connection, Limits
from simyard.frontend.http.head import MAX_KEPT_HEAD_BYTES, Head
from simyard.frontend.identity import CHALLENGES, Authorization
from simyard.frontend.metrics import IN_FLIGHT, Transport, count_request
from simyard.occi.errors import OcciError, quote_input
from simyard.occi.model import Model
from simyard.occi.standard import STANDARD

PREFLIGHT = (
    ("Access-Control-Allow-Methods", ALLOW[1]),
    (
        "Access-Control-Allow-Headers",
        "Accept, Authorization, Cache-Control, Category, Content-Type, Idempotency-Key, If-Match, If-None-Match, Link,"
        " X-OCCI-Attribute, X-OCCI-Location",
    ),
    ("Access-Control-Max-Age", "600"),
)
EXPOSED = (
    "Access-Control-Expose-Headers",
    "Accept, Age, Allow, Category, ETag, Link, Location, Server, X-OCCI-Attribute, X-OCCI-Location",
)
"""The response headers that a script in a browser may read."""

_HEALTH = frozenset({"/healthz", "/readyz"})
_READING = frozenset({"GET", "HEAD"})
_CONTENT = frozenset({"category", "content-type", "link", "x-occi-attribute", "x-occi-location"})
_STANDARD = Model(STANDARD)
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

Identify = Callable[[Authorization], Awaitable[Identity]]
"""A function that returns the user behind an ``Authorization`` header. It raises OcciError 401 or 503."""


class HttpFrontend:
    """The server of all requests over HTTP."""

    def __init__(
        self,
        handlers: Handlers,
        identify: Identify,
        health: Health,
        *,
        endpoint: str = "",
        cors_origins: frozenset[str] = frozenset(),
        max_in_flight: int = 1000,
        limits: Limits | None = None,
        bodies: BodyBudget | None = None,
    ) -> None:
        """Create the handler.

        ``endpoint`` is the beginning of absolute URIs; if it is "", they begin with ``https://`` and the request's
        Host. ``bodies`` is the memory for bodies of requests.
        """
        self._handlers = handlers
        self._identify = identify
        self._health = health
        self._endpoint = endpoint.rstrip("/")
        self._cors_origins = cors_origins
        self._max_in_flight = max_in_flight
        self._limits = limits or Limits()
        self._in_flight = 0
        self._bodies = bodies or BodyBudget()
        self._sending = SendingBudget()
        IN_FLIGHT.labels(Transport.HTTP.value).set_function(lambda: self._in_flight)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        started = time.perf_counter()
        try:
            response = await self._respond(request)
            if len(response.body) > MAX_JOINED_BYTES:
                self._sending.check(response.body)
        except OcciError as error:
            response = _refusal_response(error, request)
        headers = [("Content-Type", response.content_type), *response.headers]
        if hdrs.ORIGIN in request.headers:
            headers += self._cors_headers(request.headers[hdrs.ORIGIN])
        count_request(Transport.HTTP, request.method, response.status, time.perf_counter() - started)
        answer = Answer(response.status, headers, response.body, self._sending)
        if self._health.stopping:
            answer.force_close()
        return answer

    async def _respond(self, request: web.BaseRequest) -> OcciResponse:
        target = request.raw_path
        if target in _HEALTH:
            return self._report(request, target)
        if request.method == "OPTIONS":
            return OcciResponse(200, b"", TEXT[1], (_allow_header(target), *PREFLIGHT))
        head = self._parse_head(request)
        identity = await self._identify(head.authorization)
        if request.method not in METHODS:
            raise OcciError(405, f"{quote_input(request.method)} is not served; use {ALLOW[1]}")
        if not target.startswith("/"):
            target = str(request.rel_url)
        path, query = parse_target(target, "the request's target")
        occi_request = OcciRequest(request.method, path, query, head.lines, b"", identity, head.base, first=head.first)
        if not request.body_exists:
            return await self._handle(request, occi_request)
        chunks: list[bytes] = []
        try:
            await self._read_body(request, identity.user, chunks)
            occi_request.body = b"".join(chunks)
            return await self._handle(request, occi_request)
        finally:
            self._bodies.release(identity.user, sum(map(len, chunks)))

    async def _handle(self, request: web.BaseRequest, occi_request: OcciRequest) -> OcciResponse:
        """Return the response to a request that has arrived completely.

        Only such requests count for the maximum number.
        """
        if self._in_flight >= self._max_in_flight:
            raise OcciError(503, f"{self._max_in_flight} requests are being answered already; try again")
        occi_request.key = _idempotency_key(request, occi_request)
        self._in_flight += 1
        try:
            return await self._handlers.handle(occi_request)
        finally:
            self._in_flight -= 1

    def _report(self, request: web.BaseRequest, target: str) -> OcciResponse:
        if request.method not in ("GET", "HEAD"):
            raise OcciError(405, f"{quote_input(request.method)} is not served under {target}")
        good, text = self._health.report() if target == "/readyz" else (True, "ok\n")
        return OcciResponse(200 if good else 503, text.encode(), TEXT[1])

    def _parse_head(self, request: web.BaseRequest) -> Head:
        connection = request.protocol
        assert isinstance(connection, Connection), "the Listener makes all connections"
        head = connection.head
        if head is None or head.raw != request.raw_headers:
            head = Head(request, self._endpoint, self._limits.head_bytes)
            connection.head = head if head.size <= MAX_KEPT_HEAD_BYTES else None
        return head

    async def _read_body(self, request: web.BaseRequest, user: str, chunks: list[bytes]) -> None:
        """Read the body into ``chunks``, and reserve memory of the user for it, which the caller releases."""
        if request.headers.get(hdrs.CONTENT_ENCODING, "identity").lower() != "identity":
            raise OcciError(400, "Content-Encoding: send the body without an encoding")
        too_large = OcciError(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
        if (request.content_length or 0) > MAX_BODY_BYTES:
            raise too_large
        if request.headers.get(hdrs.EXPECT, "").lower() == "100-continue":
            await request.writer.write(_CONTINUE)
            request.writer.output_size = 0
        size = 0
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                async for chunk in request.content.iter_any():
                    size += len(chunk)
                    if size > MAX_BODY_BYTES:
                        raise too_large
                    self._bodies.reserve(user, len(chunk))
                    chunks.append(chunk)
        except TimeoutError:
            raise OcciError(400, f"the body did not end within {self._limits.body_seconds:.0f} s") from None
        except (ConnectionError, web.RequestPayloadError) as error:
            raise OcciError(400, "the body ended too early, or its chunks are malformed") from error

    def _cors_headers(self, origin: str) -> list[tuple[str, str]]:
        """Return the CORS headers.

        Scripts of all origins may send tokens; only listed origins may use browser credentials.
        """
        if origin in self._cors_origins:
            allowed = [("Access-Control-Allow-Origin", origin), ("Access-Control-Allow-Credentials", "true")]
            return [*allowed, ("Vary", "Origin"), EXPOSED]
        return [("Access-Control-Allow-Origin", "*"), *([("Vary", "Origin")] if self._cors_origins else []), EXPOSED]


def _idempotency_key(request: web.BaseRequest, occi_request: OcciRequest) -> str:
    """Return the key of a request: a digest of the user, the request and its ``Idempotency-Key``; "" without one."""
    if request.method in _READING or (given := request.headers.get("Idempotency-Key")) is None:
        return ""
    sent = [item for item in occi_request.headers if item[0] in _CONTENT]
    body = hashlib.sha256(occi_request.body).hexdigest()
    identifying_parts = (occi_request.identity.user, given, request.method, request.raw_path, sent, body)
    return hashlib.sha256(repr(identifying_parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _allow_header(target: str) -> tuple[str, str]:
    """Return the Allow header of a target. It depends only on the standard, so clients need no authentication."""
    if target in _HEALTH:
        return "Allow", "GET, HEAD"
    path = target.partition("?")[0]
    if not path.startswith("/"):
        return ALLOW
    known = find_target(path, _STANDARD)
    if isinstance(known, Collection) and known.category is None and path != "/":
        return ALLOW  # the location of a mixin, or no location
    return "Allow", ", ".join(list_allowed_methods(known))


def _refusal_response(error: OcciError, request: web.BaseRequest) -> OcciResponse:
    refused = make_error_response(error, request.headers.get(hdrs.ACCEPT))
    more: tuple[tuple[str, str], ...] = ()
    if error.status == 405:
        more = (_allow_header(request.raw_path),)
    elif error.status == 401:
        more = CHALLENGES
    return OcciResponse(refused.status, refused.body, refused.content_type, refused.headers + more)
