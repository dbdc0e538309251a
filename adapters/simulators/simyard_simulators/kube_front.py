# SPDX-License-Identifier: Apache-2.0
"""Runs a reverse proxy in front of a real API server, with switches for the faults of API servers and networks."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus

import aiohttp
import yaml
from aiohttp import web

from simyard_sites.kubernetes.client import Json

LOOPBACK = "127.0.0.1"
_HOP_BY_HOP = frozenset({"connection", "content-encoding", "content-length", "host", "keep-alive", "transfer-encoding"})
_BODY_BYTES = 2**26
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class KubeFront:
    """A proxy that forwards requests with the caller's own token.

    The switches affect the resource with the name ``plural``. The proxy answers requests for the paths in ``routes``
    itself, for example those of an aggregated API. It serves HTTP without TLS, only on loopback.

    Attributes:
        sent_bytes: The size of the bodies of all answers.
        lose: The number of coming creations and deletions whose answers the proxy will lose. throttle: The number of
        coming creations that the proxy will refuse as too many, with ``retry_after_seconds`` unless it is None.
    """

    def __init__(
        self, server: str, authority: str, plural: str, routes: tuple[tuple[str, str, Handler], ...] = ()
    ) -> None:
        self.sent_bytes = 0
        self.lose = 0
        self.throttle = 0
        self.retry_after_seconds: float | None = None
        self._server = server
        self._tls = ssl.create_default_context(cafile=authority)
        self._plural = plural
        self._refusal: tuple[HTTPStatus, str, str] | None = None
        self._expired: set[str] = set()
        self._blind = False
        self._watches: dict[int, web.Request] = {}
        self._asking: set[asyncio.Future[aiohttp.ClientResponse]] = set()
        application = web.Application(client_max_size=_BODY_BYTES)
        for method, path, handler in routes:
            application.router.add_route(method, path, self._checked(handler))
        application.router.add_route("*", "/{path:.*}", self._checked(self._forward))
        self._runner = web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True)
        self._site: web.TCPSite | None = None
        self._port = 0
        self._session: aiohttp.ClientSession | None = None

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[KubeFront]:
        """Serve while the block runs."""
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=0)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as self._session:
            await self._runner.setup()
            await self._listen()
            try:
                yield self
            finally:
                await self._runner.cleanup()
                await asyncio.gather(*self._asking, return_exceptions=True)

    @property
    def connections(self) -> int:
        """The number of connections that callers hold open."""
        return len(self._runner.server.connections) if self._runner.server is not None else 0

    def kubeconfig(self, token: str) -> str:
        """Return a kubeconfig with the address of the proxy."""
        return yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "front",
                "contexts": [{"name": "front", "context": {"cluster": "front", "user": "front"}}],
                "clusters": [{"name": "front", "cluster": {"server": f"http://{LOOPBACK}:{self._port}"}}],
                "users": [{"name": "front", "user": {"token": token}}],
            }
        )

    def expire(self, token: str) -> None:
        """Refuse the token from now on."""
        self._expired.add(token)
        self.cut_watches()

    def cut_watches(self) -> None:
        """Break the connections of all watches."""
        for request in self._watches.values():
            if request.transport is not None:
                request.transport.abort()

    @contextmanager
    def refusing(self, status: HTTPStatus, reason: str, message: str) -> Iterator[None]:
        """Refuse creations with this error while the block runs."""
        self._refusal = (status, reason, message)
        try:
            yield
        finally:
            self._refusal = None

    @asynccontextmanager
    async def blind(self) -> AsyncIterator[None]:
        """Break the connections of all watches, and refuse lists and watches while the block runs."""
        self._blind = True
        self.cut_watches()
        try:
            yield
        finally:
            self._blind = False

    @asynccontextmanager
    async def unreachable(self) -> AsyncIterator[None]:
        """Close all connections, and accept no new ones while the block runs."""
        if self._site is not None:
            await self._site.stop()
        for connection in self._runner.server.connections if self._runner.server is not None else ():
            if connection.transport is not None:
                connection.transport.abort()
        try:
            yield
        finally:
            await self._listen()

    async def _listen(self) -> None:
        self._site = web.TCPSite(self._runner, LOOPBACK, self._port, reuse_address=True)
        await self._site.start()
        self._port = self._runner.addresses[0][1]

    def _checked(self, handler: Handler) -> Handler:
        async def check(request: web.Request) -> web.StreamResponse:
            if request.headers.get("Authorization", "").removeprefix("Bearer ") in self._expired:
                return refusal(HTTPStatus.UNAUTHORIZED, "Unauthorized", "Unauthorized")
            creates = request.method == "POST" and request.path.endswith(f"/{self._plural}")
            if creates and self._refusal is not None:
                return refusal(*self._refusal)
            if creates and self.throttle > 0:
                self.throttle -= 1
                answer = refusal(HTTPStatus.TOO_MANY_REQUESTS, "TooManyRequests", "too many requests")
                if self.retry_after_seconds is not None:
                    answer.headers["Retry-After"] = str(round(self.retry_after_seconds))
                return answer
            lists = request.method == "GET" and request.path.endswith(f"/{self._plural}")
            if lists and self._blind:
                return refusal(HTTPStatus.SERVICE_UNAVAILABLE, "ServiceUnavailable", "nothing can be listed now")
            return await handler(request)

        return check

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        # A client that disconnects does not undo its request: only the wait for the answer is cancelled.
        asking = asyncio.ensure_future(self._ask(request, body))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)
        try:
            answer = await asyncio.shield(asking)
        except asyncio.CancelledError:
            asking.add_done_callback(_drop)
            raise
        try:
            if self.lose > 0 and f"/{self._plural}" in request.path and request.method in ("POST", "DELETE"):
                self.lose -= 1
                await answer.read()
                if request.transport is not None:
                    request.transport.abort()
            return await self._pass_on(request, answer)
        finally:
            _hang_up(answer)

    async def _ask(self, request: web.Request, body: bytes) -> aiohttp.ClientResponse:
        if self._session is None:
            raise AssertionError("serving() has begun")
        headers = {key: value for key, value in request.headers.items() if key.lower() not in _HOP_BY_HOP}
        return await self._session.request(
            request.method, self._server + request.path_qs, headers=headers, data=body or None, allow_redirects=False
        )

    async def _pass_on(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        passed = {key: value for key, value in answer.headers.items() if key.lower() not in _HOP_BY_HOP}
        if encoding := answer.headers.get("Content-Encoding"):
            passed["Content-Encoding"] = encoding
        response = web.StreamResponse(status=answer.status, headers=passed)
        if "watch" in request.query:
            self._watches[id(request)] = request
        try:
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                self.sent_bytes += len(chunk)
                await response.write(chunk)
            await response.write_eof()
        except (ConnectionError, aiohttp.ClientError):
            pass  # The client or the server has disconnected.
        finally:
            self._watches.pop(id(request), None)
        return response


def _drop(asking: asyncio.Future[aiohttp.ClientResponse]) -> None:
    if not asking.cancelled() and asking.exception() is None:
        _hang_up(asking.result())


def _hang_up(answer: aiohttp.ClientResponse) -> None:
    """Close an answer's connection: normally if the answer is complete, otherwise at once, without an end of TLS."""
    if answer.connection is not None and answer.connection.transport is not None:
        answer.connection.transport.abort()
    answer.close()


def refusal(status: HTTPStatus, reason: str, message: str) -> web.Response:
    """Return a ``metav1.Status`` like an API server's."""
    body: Json = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": reason,
        "message": message,
        "code": int(status),
    }
    return web.Response(status=status, body=json.dumps(body).encode(), content_type="application/json")
