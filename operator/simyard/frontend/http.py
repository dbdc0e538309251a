"""OCCI over HTTP: what the transport itself decides, and the handlers' answers."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable

from aiohttp import hdrs, web

from simyard.frontend.answers import MOST_JOINED_BYTES, Answer
from simyard.frontend.budget import BodyBudget, SendingBudget
from simyard.frontend.connection import TEXT, Connection, Limits
from simyard.frontend.exchange import (
    ALLOW,
    METHODS,
    MOST_BODY_BYTES,
    Identity,
    OcciRequest,
    OcciResponse,
    path_and_query,
)
from simyard.frontend.handlers import Handlers, allowed, refusal
from simyard.frontend.head import MOST_KEPT_HEAD_BYTES, Head
from simyard.frontend.health import Health
from simyard.frontend.identity import CHALLENGES, Authorization
from simyard.frontend.metrics import IN_FLIGHT, Transport, answered
from simyard.frontend.targets import Collection, target_of
from simyard.occi.errors import OcciError, shown
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
"""The user behind an ``Authorization`` header; raises OcciError 401 or 503."""


class HttpFrontend:
    """The handler of all requests over HTTP."""

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
    ) -> None:
        """``endpoint``: what absolute URIs begin with; ``https://`` and the request's Host when it is ""."""
        self._handlers = handlers
        self._identify = identify
        self._health = health
        self._endpoint = endpoint.rstrip("/")
        self._cors_origins = cors_origins
        self._max_in_flight = max_in_flight
        self._limits = limits or Limits()
        self._in_flight = 0
        self._bodies = BodyBudget()
        self._sending = SendingBudget()
        IN_FLIGHT.labels(Transport.HTTP.value).set_function(lambda: self._in_flight)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        started = time.perf_counter()
        try:
            response = await self._respond(request)
            if len(response.body) > MOST_JOINED_BYTES:
                self._sending.check(response.body)
        except OcciError as error:
            response = _refusal(error, request)
        headers = [("Content-Type", response.content_type), *response.headers]
        if hdrs.ORIGIN in request.headers:
            headers += self._cors(request.headers[hdrs.ORIGIN])
        answered(Transport.HTTP, request.method, response.status, time.perf_counter() - started)
        answer = Answer(response.status, headers, response.body, self._sending)
        if self._health.stopping:
            answer.force_close()
        return answer

    async def _respond(self, request: web.BaseRequest) -> OcciResponse:
        target = request.raw_path
        if target in _HEALTH:
            return self._report(request, target)
        if request.method == "OPTIONS":
            return OcciResponse(200, b"", TEXT[1], (_allow(target), *PREFLIGHT))
        head = self._head(request)
        identity = await self._identify(head.authorization)
        if request.method not in METHODS:
            raise OcciError(405, f"{shown(request.method)} is not served; {ALLOW[1]} are")
        if not target.startswith("/"):
            target = str(request.rel_url)
        path, query = path_and_query(target, "the request's target")
        asked = OcciRequest(request.method, path, query, head.lines, b"", identity, head.base, first=head.first)
        if not request.body_exists:
            return await self._handle(request, asked)
        chunks: list[bytes] = []
        try:
            await self._read(request, identity.user, chunks)
            asked.body = b"".join(chunks)
            return await self._handle(request, asked)
        finally:
            self._bodies.give_back(identity.user, sum(map(len, chunks)))

    async def _handle(self, request: web.BaseRequest, asked: OcciRequest) -> OcciResponse:
        """Answer a request that is here as a whole: before that, it takes nobody's place."""
        if self._in_flight >= self._max_in_flight:
            raise OcciError(503, f"{self._max_in_flight} requests are being answered already; try again")
        asked.key = _key(request, asked)
        self._in_flight += 1
        try:
            return await self._handlers.handle(asked)
        finally:
            self._in_flight -= 1

    def _report(self, request: web.BaseRequest, target: str) -> OcciResponse:
        if request.method not in ("GET", "HEAD"):
            raise OcciError(405, f"{shown(request.method)} is not served under {target}")
        good, text = self._health.report() if target == "/readyz" else (True, "ok\n")
        return OcciResponse(200 if good else 503, text.encode(), TEXT[1])

    def _head(self, request: web.BaseRequest) -> Head:
        connection = request.protocol
        assert isinstance(connection, Connection), "of the Listener"
        head = connection.head
        if head is None or head.raw != request.raw_headers:
            head = Head(request, self._endpoint, self._limits.head_bytes)
            connection.head = head if head.size <= MOST_KEPT_HEAD_BYTES else None
        return head

    async def _read(self, request: web.BaseRequest, user: str, chunks: list[bytes]) -> None:
        """The body, in pieces; what is in ``chunks`` counts as held by the user, also after an error."""
        if request.headers.get(hdrs.CONTENT_ENCODING, "identity").lower() != "identity":
            raise OcciError(400, "Content-Encoding: send the body as it is")
        too_large = OcciError(413, f"the body is larger than {MOST_BODY_BYTES} bytes")
        if (request.content_length or 0) > MOST_BODY_BYTES:
            raise too_large
        if request.headers.get(hdrs.EXPECT, "").lower() == "100-continue":
            await request.writer.write(_CONTINUE)
            request.writer.output_size = 0
        size = 0
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                async for chunk in request.content.iter_any():
                    size += len(chunk)
                    if size > MOST_BODY_BYTES:
                        raise too_large
                    self._bodies.take(user, len(chunk))
                    chunks.append(chunk)
        except TimeoutError:
            raise OcciError(400, f"the body did not end within {self._limits.body_seconds:.0f} s") from None
        except (ConnectionError, web.RequestPayloadError) as error:
            raise OcciError(400, "the body ended too early, or its chunks are malformed") from error

    def _cors(self, origin: str) -> list[tuple[str, str]]:
        """For scripts in browsers. They may all come, with a token; with what the browser itself keeps, only some."""
        if origin in self._cors_origins:
            allowed = [("Access-Control-Allow-Origin", origin), ("Access-Control-Allow-Credentials", "true")]
            return [*allowed, ("Vary", "Origin"), EXPOSED]
        return [("Access-Control-Allow-Origin", "*"), *([("Vary", "Origin")] if self._cors_origins else []), EXPOSED]


def _key(request: web.BaseRequest, asked: OcciRequest) -> str:
    """The same for a request that its sender repeats with the same ``Idempotency-Key``."""
    if request.method in _READING or (given := request.headers.get("Idempotency-Key")) is None:
        return ""
    sent, body = [item for item in asked.headers if item[0] in _CONTENT], hashlib.sha256(asked.body).hexdigest()
    told_apart = (asked.identity.user, given, request.method, request.raw_path, sent, body)
    return hashlib.sha256(repr(told_apart).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _allow(target: str) -> tuple[str, str]:
    """The methods of a target, by its shape and the standard's own kinds: who asks for them need not say who it is."""
    if target in _HEALTH:
        return "Allow", "GET, HEAD"
    path = target.partition("?")[0]
    if not path.startswith("/"):
        return ALLOW
    known = target_of(path, _STANDARD)
    if isinstance(known, Collection) and known.category is None and path != "/":
        return ALLOW  # the location of a mixin, or none
    return "Allow", ", ".join(allowed(known))


def _refusal(error: OcciError, request: web.BaseRequest) -> OcciResponse:
    refused = refusal(error, request.headers.get(hdrs.ACCEPT))
    more: tuple[tuple[str, str], ...] = ()
    if error.status == 405:
        more = (_allow(request.raw_path),)
    elif error.status == 401:
        more = CHALLENGES
    return OcciResponse(refused.status, refused.body, refused.content_type, refused.headers + more)
