# SPDX-License-Identifier: Apache-2.0
"""Requests to the Kubernetes API of one cluster, with errors as exceptions, and with the repetitions that are safe.

A request is repeated only if the API server did nothing: no connection was made, it answered 429, or 503 with
``Retry-After``. A request that changes nothing, or that is marked as ``repeatable``, is also repeated after a lost
connection and after other answers of 5xx. Everything else may have been carried out, so it is never repeated
(docs/actions.md). Each request has a deadline, and so have its repetitions together.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import ssl
import time
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from simyard_client.credentials import Credential, Credentials, make_context
from simyard_client.errors import (
    ActionError,
    ConnectionFailedError,
    FileError,
    NoAnswerError,
    RequestError,
    SimyardError,
    make_request_error,
)
from simyard_client.kubeconfig import Access, Cluster
from simyard_client.paths import Json

REQUEST_SECONDS = 60.0
"""Time for one request; kube-apiserver itself ends requests after 60 s."""
CONNECT_SECONDS = 15.0
DOWNLOAD_SECONDS = 120.0
DOWNLOAD_ATTEMPTS = 4
MAX_CONNECTIONS = 300
MAX_LINE_BYTES = 16 * 1024 * 1024
_MAX_PAUSE_SECONDS = 8.0
_MERGE_PATCH = "application/merge-patch+json"
_LOST = (aiohttp.ClientError, asyncio.TimeoutError, ConnectionError)


class Api:
    """The connections to one API server. An instance belongs to one event loop."""

    def __init__(self, access: Access, *, patience_seconds: float) -> None:
        """Begin; the first request connects."""
        self.namespace = access.namespace
        self._cluster = access.cluster
        self._credentials = Credentials(access)
        self._patience_seconds = patience_seconds
        self._proxy = find_proxy(access.cluster)
        self._session: aiohttp.ClientSession | None = None
        self._reached = False
        """The API server has answered before, so a failed connection is worth another attempt."""

    async def aclose(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        """Return the JSON of a path."""
        return await self.request("GET", path, query=query, repeatable=True)

    async def create(self, path: str, body: Json, *, repeatable: bool = False) -> Json:
        """Send a new object, and return it as the API server stored it."""
        answer: Json = await self.request("POST", path, body=body, repeatable=repeatable)
        return answer

    async def patch(self, path: str, change: Json) -> Json:
        """Change fields of an object with a merge patch, and return the object."""
        answer: Json = await self.request("PATCH", path, body=change, content_type=_MERGE_PATCH, repeatable=True)
        return answer

    async def delete(self, path: str) -> None:
        """Delete an object."""
        await self.request("DELETE", path, repeatable=True)

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Json | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        repeatable: bool = False,
        calls_action: bool = False,
        patience_seconds: float | None = None,
    ) -> Any:
        """Send a request, and return the JSON of the answer.

        Args:
            method: The HTTP method.
            path: The path, from the root of the API server.
            body: The body.
            query: The query.
            content_type: The media type of the body.
            repeatable: A second run of the request does no harm.
            calls_action: The request calls an action; errors then have the classes of actions.
            patience_seconds: The time for which the request is repeated.

        Raises:
            SimyardError: The class tells the reason; see :mod:`simyard_client.errors`.
        """
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json"} | ({"Content-Type": content_type} if data is not None else {})
        patience = self._patience_seconds if patience_seconds is None else patience_seconds
        end = time.monotonic() + patience
        failures = 0
        while True:
            try:
                async with self._send(method, path, query, headers, data, REQUEST_SECONDS) as response:
                    text = await response.read()
                    if response.status < 300:
                        return json.loads(text) if text else {}
                    retry_after = _read_seconds(response.headers.get("Retry-After"))
                    raise make_request_error(response.status, text, retry_after, calls_action=calls_action)
            except SimyardError as error:
                pause = _choose_pause(error, failures, repeatable)
                hopeless = isinstance(error, ConnectionFailedError) and not self._reached
                if pause is None or hopeless or time.monotonic() + pause > end:
                    raise
            except _LOST as error:
                pause = _draw_pause(failures)
                if not repeatable or time.monotonic() + pause > end:
                    raise _make_lost_error(error, calls_action) from error
            failures += 1
            await asyncio.sleep(pause)

    async def stream(
        self, path: str, query: Mapping[str, str] | None = None, *, seconds: float | None = None
    ) -> AsyncIterator[bytes]:
        """Yield the lines of an answer as they come, with their line feeds.

        A line without a line feed at the end is the rest of an answer that was cut off.

        Raises:
            SimyardError: The API server refused the request.
            ConnectionFailedError: The connection was lost.
        """
        try:
            async with self._send("GET", path, query, {}, None, seconds) as response:
                if response.status >= 300:
                    raise make_request_error(response.status, await response.read(), None, calls_action=False)
                rest = b""
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n") if b"\n" in chunk else (rest + chunk,)
                    for line in lines:
                        yield line + b"\n"
                    if len(rest) > MAX_LINE_BYTES:
                        raise RequestError(f"{path}: a line is longer than {MAX_LINE_BYTES} bytes")
                if rest:
                    yield rest
        except _LOST as error:
            raise ConnectionFailedError(f"the connection to {self._cluster.server} was lost: {error!r}") from error

    @contextlib.asynccontextmanager
    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        headers: Mapping[str, str],
        data: bytes | None,
        seconds: float | None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request, and yield the response; after an answer of 401, send it again with renewed credentials."""
        credential = await self._credentials.get()
        try:
            response = await self._open(credential, method, path, query, headers, data, seconds)
            if response.status == 401 and (renewed := await self._credentials.get(credential)) != credential:
                response.release()
                response = await self._open(renewed, method, path, query, headers, data, seconds)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise ConnectionFailedError(f"cannot connect to the API server: {error}") from error
        self._reached = True
        async with response:
            yield response

    async def _open(
        self,
        credential: Credential,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        headers: Mapping[str, str],
        data: bytes | None,
        seconds: float | None,
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS), cookie_jar=aiohttp.DummyCookieJar()
            )
        return await self._session.request(
            method,
            self._cluster.server + path,
            params=query,
            data=data,
            headers=[*headers.items(), *self._credentials.make_headers(credential)],
            timeout=aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS),
            ssl=self._credentials.get_context(credential),
            server_hostname=self._cluster.tls_server_name or None,
            proxy=self._proxy,
            allow_redirects=False,
        )


async def download(requests: Sequence[Json], authority: str) -> AsyncGenerator[bytes, None]:
    """Yield the contents of several small files, one after the other.

    Args:
        requests: The requests that the platform has signed.
        authority: The certificates (PEM) that signed that of the file store; empty for those of the system.

    Raises:
        FileError: The file store refused a request, or cannot be reached. The message has no URL, which is a secret.
    """
    trust = make_context(Cluster("", authority), Credential())
    timeout = aiohttp.ClientTimeout(total=DOWNLOAD_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session:
        for request in requests:
            yield await _download(session, request, trust)


async def _download(session: aiohttp.ClientSession, request: Json, trust: ssl.SSLContext) -> bytes:
    problem = ""
    for failures in range(DOWNLOAD_ATTEMPTS):
        try:
            url = URL(request["url"], encoded=True)  # each change of the URL would break its signature
            async with session.get(url, headers=request.get("headers") or {}, ssl=trust) as response:
                if response.status == 200:
                    return await response.read()
                problem = f"HTTP {response.status}"
                if response.status < 500:
                    break
        except (aiohttp.ClientError, asyncio.TimeoutError) as error:
            problem = type(error).__name__
        await asyncio.sleep(_draw_pause(failures))
    raise FileError(f"the file store does not answer a download: {problem}; try again")


def find_proxy(cluster: Cluster) -> str | None:
    """Return the URL of the HTTP proxy of a cluster: that of the kubeconfig, or that of the environment."""
    if cluster.proxy_url:
        return cluster.proxy_url
    parts = urlsplit(cluster.server)
    if not parts.hostname or urllib.request.proxy_bypass(parts.hostname):
        return None
    return urllib.request.getproxies().get(parts.scheme)


def _choose_pause(error: SimyardError, failures: int, repeatable: bool) -> float | None:
    """Return the time before the request is repeated; None if it must not be repeated."""
    if error.status in (429, 503) and error.retry_after is not None:
        return max(error.retry_after, _draw_pause(failures))
    if error.status == 429 or isinstance(error, ConnectionFailedError):
        return _draw_pause(failures)
    if isinstance(error, ActionError):  # the worker has failed the action, or has run it for 30 s
        repeatable &= isinstance(error, NoAnswerError) and error.status != 504
    if repeatable and error.status >= 500:
        return _draw_pause(failures)
    return None


def _draw_pause(failures: int) -> float:
    """Return a random time that grows with the number of failures, so that clients do not repeat at one moment."""
    return random.uniform(0.5, 1.0) * min(_MAX_PAUSE_SECONDS, 0.2 * 2.0 ** min(failures, 10))  # noqa: S311


def _read_seconds(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return 1.0  # a date, which Kubernetes does not send


def _make_lost_error(error: BaseException, calls_action: bool) -> SimyardError:
    said = str(error) or type(error).__name__
    if calls_action:
        return NoAnswerError(f"the connection broke before the answer came, so the action may have run: {said}")
    return RequestError(f"the connection broke before the answer came, so the request may have been done: {said}")
