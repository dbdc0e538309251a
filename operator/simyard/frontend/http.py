"""OCCI over HTTP: what the transport itself decides, and the handlers' answers."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable

from aiohttp import hdrs, web

from simyard.frontend.answers import Answer
from simyard.frontend.connection import TEXT, Limits
from simyard.frontend.exchange import (
    MOST_BODY_BYTES,
    Identity,
    OcciRequest,
    OcciResponse,
    path_and_query,
)
from simyard.frontend.handlers import Handlers, refusal
from simyard.frontend.health import Health
from simyard.frontend.identity import CHALLENGES
from simyard.frontend.metrics import IN_FLIGHT, Transport, answered
from simyard.occi.errors import OcciError, shown

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS")
ALLOW = ("Allow", ", ".join(METHODS))
PREFLIGHT = (
    ("Access-Control-Allow-Methods", ALLOW[1]),
    (
        "Access-Control-Allow-Headers",
        "Accept, Authorization, Cache-Control, Category, Content-Type, Link, X-OCCI-Attribute, X-OCCI-Location",
    ),
    ("Access-Control-Max-Age", "600"),
)
EXPOSED = (
    "Access-Control-Expose-Headers",
    "Accept, Age, Allow, Category, Link, Location, Server, X-OCCI-Attribute, X-OCCI-Location",
)
"""The response headers that a script in a browser may read."""

_HOST = re.compile(r"(?:[A-Za-z0-9._~-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?", re.ASCII)
_HEALTH = frozenset({"/healthz", "/readyz"})
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

Identify = Callable[[str | None], Awaitable[Identity]]
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
        IN_FLIGHT.labels(Transport.HTTP.value).set_function(lambda: self._in_flight)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        started = time.perf_counter()
        self._in_flight += 1
        try:
            response = await self._respond(request)
        except OcciError as error:
            response = _refusal(error, request)
        finally:
            self._in_flight -= 1
        headers = [("Content-Type", response.content_type), *response.headers]
        if hdrs.ORIGIN in request.headers:
            headers += self._cors(request.headers[hdrs.ORIGIN])
        answered(Transport.HTTP, request.method, response.status, time.perf_counter() - started)
        answer = Answer(response.status, headers, response.body)
        if self._health.stopping:
            answer.force_close()
        return answer

    async def _respond(self, request: web.BaseRequest) -> OcciResponse:
        target = request.raw_path
        if target in _HEALTH:
            return self._report(request, target)
        if request.method == "OPTIONS":
            return OcciResponse(200, b"", TEXT[1], (ALLOW, *PREFLIGHT))
        headers = self._headers(request)
        if self._in_flight > self._max_in_flight:
            message = f"{self._max_in_flight} requests are being answered already; try again"
            raise OcciError(503, message)
        identity = await self._identify(request.headers.get(hdrs.AUTHORIZATION))
        if request.method not in METHODS:
            raise OcciError(405, f"{shown(request.method)} is not served; {ALLOW[1]} are")
        if not target.startswith("/"):
            target = str(request.rel_url)
        path, query = path_and_query(target, "the request's target")
        body = await self._body(request) if request.body_exists else b""
        return await self._handlers.handle(
            OcciRequest(request.method, path, query, headers, body, identity, self._base(request))
        )

    def _report(self, request: web.BaseRequest, target: str) -> OcciResponse:
        if request.method not in ("GET", "HEAD"):
            raise OcciError(405, f"{shown(request.method)} is not served under {target}")
        good, text = self._health.report() if target == "/readyz" else (True, "ok\n")
        return OcciResponse(200 if good else 503, text.encode(), TEXT[1])

    def _headers(self, request: web.BaseRequest) -> list[tuple[str, str]]:
        """The request's headers with names in lower case.

        Raises:
            OcciError: 400, one is not UTF-8, or is there twice that must not be, or all are too long.
        """
        headers = [(name.lower(), value) for name, value in request.headers.items()]
        authorizations = size = 0
        for name, value in headers:
            size += len(name) + len(value)
            if name == "authorization":
                authorizations += 1
            if not value.isascii() and not _is_utf8(value):
                raise OcciError(400, f"{name}: the value is not UTF-8")
        if authorizations > 1:
            raise OcciError(400, "Authorization: it is there twice")
        if size > self._limits.head_bytes:
            raise OcciError(400, f"the headers are longer than {self._limits.head_bytes} bytes")
        return headers

    def _base(self, request: web.BaseRequest) -> str:
        if self._endpoint:
            return self._endpoint
        host = request.headers.get(hdrs.HOST, "")
        if not _HOST.fullmatch(host):
            raise OcciError(400, f"Host: {shown(host)} is no host and port")
        return f"https://{host}"

    async def _body(self, request: web.BaseRequest) -> bytes:
        if request.headers.get(hdrs.CONTENT_ENCODING, "identity").lower() != "identity":
            raise OcciError(400, "Content-Encoding: send the body as it is")
        too_large = OcciError(413, f"the body is larger than {MOST_BODY_BYTES} bytes")
        if (request.content_length or 0) > MOST_BODY_BYTES:
            raise too_large
        if request.headers.get(hdrs.EXPECT, "").lower() == "100-continue":
            await request.writer.write(_CONTINUE)
            request.writer.output_size = 0
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                async for chunk in request.content.iter_any():
                    size += len(chunk)
                    if size > MOST_BODY_BYTES:
                        raise too_large
                    chunks.append(chunk)
        except TimeoutError:
            raise OcciError(400, f"the body did not end within {self._limits.body_seconds:.0f} s") from None
        except (ConnectionError, web.RequestPayloadError) as error:
            raise OcciError(400, "the body ended too early, or its chunks are malformed") from error
        return b"".join(chunks)

    def _cors(self, origin: str) -> list[tuple[str, str]]:
        """For scripts in browsers. They may all come, with a token; with what the browser itself keeps, only some."""
        if origin in self._cors_origins:
            allowed = [("Access-Control-Allow-Origin", origin), ("Access-Control-Allow-Credentials", "true")]
            return [*allowed, ("Vary", "Origin"), EXPOSED]
        return [("Access-Control-Allow-Origin", "*"), *([("Vary", "Origin")] if self._cors_origins else []), EXPOSED]


def _is_utf8(value: str) -> bool:
    """Whether aiohttp, which lets other bytes through as surrogates, had to."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refusal(error: OcciError, request: web.BaseRequest) -> OcciResponse:
    refused = refusal(error, request.headers.get(hdrs.ACCEPT))
    more: tuple[tuple[str, str], ...] = ()
    if error.status == 401:
        more = CHALLENGES
    elif error.status == 503:
        more = (("Retry-After", "1"),)
    return OcciResponse(refused.status, refused.body, refused.content_type, refused.headers + more)
