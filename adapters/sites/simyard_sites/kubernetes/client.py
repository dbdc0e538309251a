# SPDX-License-Identifier: Apache-2.0
"""A client for the Kubernetes API that speaks raw JSON.

kubernetes_asyncio provides the configuration and the credentials, and renews them. Requests use its session without its
object model, which costs more CPU than the rest of a request.
"""

from __future__ import annotations

import asyncio
import enum
import os
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import orjson
from kubernetes_asyncio import client as kubernetes
from kubernetes_asyncio import config as kubernetes_config
from prometheus_client import Counter

from simyard_sites.kubernetes.errors import ApiError, UnavailableError, parse_error
from simyard_sites.kubernetes.resource import Resource

Json = dict[str, Any]
"""A raw Kubernetes object."""

REQUESTS = Counter(
    "simyard_kube_requests_total",
    "Requests to the Kubernetes API, by verb, resource and status code (0: no answer).",
    ["verb", "resource", "code"],
)
WRITE_QUERY = {"fieldManager": "simyard", "fieldValidation": "Ignore"}
"""The query of writes. The server drops unknown fields without a warning, because the search for them costs CPU."""
LIST_PAGE = 1000
MAX_ATTEMPTS = 5
READ_BYTES = 2**21
WATCH_SECONDS = 300
ACCEPT = "application/json, */*;q=0.5"
"""The value of the header Accept: JSON first, then any other type.

Some aggregated APIs answer without a body, and refuse clients that accept only JSON: KubeVirt's ``pause`` does (406).
"""
WATCH_SILENCE_SECONDS = 90
"""The time without a message after which a watch counts as broken. The server sends a bookmark about every minute."""


class PatchType(enum.StrEnum):
    """A content type of a patch."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """An event of a watch: ``ADDED``, ``MODIFIED``, ``DELETED`` or ``BOOKMARK``."""

    type: str
    object: Json


class KubeClient:
    """A client of one API server. Each request has a deadline.

    After a 429, the client retries, up to ``attempts`` in all.

    Attributes:
        kubeconfig: The kubeconfig file that the caller named; None if it named none.
        clock_skew_seconds: The time by which the server's clock is ahead, from its newest answer; None before the
            first.
        page_items: The number of objects in one page of a list.
    """

    page_items = LIST_PAGE

    def __init__(
        self,
        configuration: kubernetes.Configuration,
        *,
        request_seconds: float = 30.0,
        attempts: int = MAX_ATTEMPTS,
        kubeconfig: Path | None = None,
    ) -> None:
        self.kubeconfig = kubeconfig
        self.clock_skew_seconds: float | None = None
        self._attempts = attempts
        self._api = kubernetes.ApiClient(configuration)
        # The session of kubernetes_asyncio reads .netrc and the proxy variables again for each request.
        self._session = aiohttp.ClientSession(
            connector=self._api.rest_client.pool_manager.connector, connector_owner=False, read_bufsize=READ_BYTES
        )
        self._server_hostname: str | None = self._api.rest_client.server_hostname
        self._host = str(configuration.host).rstrip("/")
        self._proxy: str | None = self._api.rest_client.proxy or _environment_proxy(self._host)
        self._timeout = aiohttp.ClientTimeout(total=request_seconds)
        self._configuration = configuration

    @classmethod
    async def connect(
        cls, kubeconfig: Path | None = None, *, max_connections: int = 32, attempts: int = MAX_ATTEMPTS
    ) -> Self:
        """Create a client for ``kubeconfig``, ``$KUBECONFIG``, the cluster of this process, or ``~/.kube/config``."""
        configuration = kubernetes.Configuration()
        if kubeconfig is None and "KUBECONFIG" not in os.environ and "KUBERNETES_SERVICE_HOST" in os.environ:
            kubernetes_config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        elif kubeconfig is None:
            await kubernetes_config.load_config(client_configuration=configuration)
        else:
            await kubernetes_config.load_kube_config(config_file=str(kubeconfig), client_configuration=configuration)
        configuration.connection_pool_maxsize = max_connections
        return cls(configuration, attempts=attempts, kubeconfig=kubeconfig)

    @property
    def configuration(self) -> kubernetes.Configuration:
        """The address of the server and the credentials."""
        return self._configuration

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._session.close()
        await self._api.close()

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Json:
        """Return one object."""
        return await self.request("GET", build_path(resource, namespace, name), resource=resource)

    async def list_all(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        on_page: Callable[[list[Json]], None] | None = None,
    ) -> tuple[list[Json], str]:
        """Return all objects, read in pages, and the resource version of the list.

        With ``on_page``, the method passes each page to this function and returns no objects: thousands of raw objects
        take more memory than the objects that callers build from them.
        """
        items: list[Json] = []
        on_page = on_page or items.extend
        query = {"limit": str(self.page_items)}
        if labels:
            query["labelSelector"] = labels
        if fields:
            query["fieldSelector"] = fields
        while True:
            page = await self.request(
                "GET", build_path(resource, namespace), query=query, resource=resource, verb="list"
            )
            on_page(page.get("items") or [])
            more = page["metadata"].get("continue")
            if not more:
                return items, str(page["metadata"]["resourceVersion"])
            query["continue"] = more

    async def create(self, resource: Resource, body: Json, namespace: str = "") -> Json:
        """Create an object and return it as the server stored it."""
        return await self.request(
            "POST", build_path(resource, namespace), body=body, query=WRITE_QUERY, resource=resource
        )

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Json | list[Json],
        namespace: str = "",
        *,
        subresource: str = "",
        kind: PatchType = PatchType.MERGE,
    ) -> Json:
        """Change an object and return it. With ``APPLY``, also change fields that other managers own."""
        query = {**WRITE_QUERY, "force": "true"} if kind is PatchType.APPLY else WRITE_QUERY
        path = build_path(resource, namespace, name, subresource)
        return await self.request("PATCH", path, body=body, query=query, content_type=kind.value, resource=resource)

    async def replace(
        self, resource: Resource, name: str, body: Json, namespace: str = "", *, subresource: str = ""
    ) -> Json:
        """Replace an object, or its ``subresource``, and return the object. The server needs less CPU than for a patch.

        Raises:
            ConflictError: the object has another resource version than ``body``.
        """
        path = build_path(resource, namespace, name, subresource)
        return await self.request("PUT", path, body=body, query=WRITE_QUERY, resource=resource)

    async def delete(
        self, resource: Resource, name: str, namespace: str = "", *, uid: str = "", version: str = ""
    ) -> Json | None:
        """Delete an object in the background and return it if finalizers still keep it; return None if it is gone.

        With ``uid``, delete only the object with this uid; with ``version``, only this resource version of it.

        Raises:
            NotFoundError: the object does not exist.
            ConflictError: the object has another uid or another resource version.
        """
        body: Json = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        if preconditions := {key: value for key, value in (("uid", uid), ("resourceVersion", version)) if value}:
            body["preconditions"] = preconditions
        answer = await self.request("DELETE", build_path(resource, namespace, name), body=body, resource=resource)
        return answer if answer.get("kind") == resource.kind else None

    async def watch(
        self, resource: Resource, namespace: str = "", *, resource_version: str, labels: str = "", fields: str = ""
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yield the changes after a resource version until the server ends the watch (after some minutes).

        With an empty version, the present objects come first, as ``ADDED``.

        Raises:
            ExpiredError: The version is too old.
            UnavailableError: The connection broke.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        if labels:
            query["labelSelector"] = labels
        if fields:
            query["fieldSelector"] = fields
        timeout = aiohttp.ClientTimeout(sock_connect=10, sock_read=WATCH_SILENCE_SECONDS)
        asked = time.time()
        try:
            async with self._session.get(
                self._host + build_path(resource, namespace),
                params=query,
                headers=await self._headers(),
                timeout=timeout,
                server_hostname=self._server_hostname,
                proxy=self._proxy,
            ) as response:
                REQUESTS.labels("watch", resource.plural, str(response.status)).inc()
                self._note_date(response.headers.get("Date"), asked)
                if response.status != 200:
                    raise parse_error(response.status, _parse(await response.read()), None)
                async with aclosing(_lines(response.content)) as lines:
                    async for line in lines:
                        event = orjson.loads(line)
                        if event["type"] == "ERROR":
                            raise parse_error(int(event["object"].get("code") or 500), event["object"], None)
                        yield WatchEvent(event["type"], event["object"])
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnavailableError(0, "", f"watch of {resource.plural}: {_describe(error)}") from error

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Json | list[Json] | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        resource: Resource | None = None,
        verb: str = "",
    ) -> Json:
        """Send any request and return the parsed answer.

        Raises:
            ApiError: The server refused the request. A 429 (the server is busy and has done nothing) is retried first.
            UnavailableError: No answer arrived; the request may have been carried out.
        """
        label = resource.plural if resource else "other"
        for attempt in range(1, self._attempts + 1):
            try:
                return await self._send(method, path, body, query, content_type, (verb or method.lower(), label))
            except ApiError as error:
                if error.status != 429 or attempt == self._attempts:
                    raise
                await asyncio.sleep(error.retry_after_seconds or attempt)
        raise AssertionError("the last attempt returns or raises")

    async def _send(
        self,
        method: str,
        path: str,
        body: Json | list[Json] | None,
        query: Mapping[str, str] | None,
        content_type: str,
        labels: tuple[str, str],
    ) -> Json:
        headers = await self._headers()
        if body is not None:
            headers["Content-Type"] = content_type
        asked = time.time()
        try:
            async with self._session.request(
                method,
                self._host + path,
                params=query,
                data=orjson.dumps(body) if body is not None else None,
                headers=headers,
                timeout=self._timeout,
                server_hostname=self._server_hostname,
                proxy=self._proxy,
            ) as response:
                data = await response.read()
                REQUESTS.labels(*labels, str(response.status)).inc()
                self._note_date(response.headers.get("Date"), asked)
                if response.status >= 400:
                    raise parse_error(response.status, _parse(data), response.headers.get("Retry-After"))
                parsed = _parse(data)
                return parsed if isinstance(parsed, dict) else {}
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            REQUESTS.labels(*labels, "0").inc()
            raise UnavailableError(0, "", f"{method} {path}: {_describe(error)}") from error

    def _note_date(self, date: str | None, asked: float) -> None:
        if (skew := compute_clock_skew(date, asked, time.time())) is not None:
            self.clock_skew_seconds = skew

    async def _headers(self) -> dict[str, str]:
        token = await self._configuration.get_api_key_with_prefix("BearerToken")
        headers = {"Accept": ACCEPT}
        if token:
            headers["Authorization"] = token
        return headers


def compute_clock_skew(date: str | None, asked: float, answered: float) -> float | None:
    """Return the minimum number of seconds by which a server's clock is ahead, from the ``Date`` of its answer.

    The date has whole seconds, and the server set it between the request and the answer. If that explains the
    difference, the result is 0. Without a date, the result is None.
    """
    try:
        said = parsedate_to_datetime(date or "").timestamp()
    except ValueError:
        return None
    return max(0.0, said - answered) + min(0.0, said + 1.0 - asked)


def build_path(resource: Resource, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """Return the path of a resource; without ``namespace``, the path for all namespaces."""
    parts = [f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"]
    if resource.namespaced and namespace:
        parts.append(f"namespaces/{namespace}")
    parts.append(resource.plural)
    parts += [part for part in (name, subresource) if part]
    return "/".join(parts)


def _environment_proxy(host: str) -> str | None:
    """Return the proxy for a URL from the environment variables."""
    url = urlsplit(host)
    return None if proxy_bypass(url.netloc) else getproxies().get(url.scheme)


def _describe(error: Exception) -> str:
    return str(error) or type(error).__name__


def _parse(data: bytes) -> object:
    try:
        return orjson.loads(data) if data else None
    except orjson.JSONDecodeError:
        return data.decode(errors="replace")


async def _lines(stream: aiohttp.StreamReader) -> AsyncGenerator[bytes, None]:
    """Yield lines of any length (``readline`` has a limit, and an object may be longer)."""
    rest = b""
    async for chunk in stream.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line
