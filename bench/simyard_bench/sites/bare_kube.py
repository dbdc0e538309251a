# SPDX-License-Identifier: Apache-2.0
"""Measure the yardsticks at Kubernetes: a bare client that creates objects, and a bare watch that sees them run.

The client is bare aiohttp with raw JSON and keep-alive; the watch begins before the first object is created.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import orjson

from kube_api import read_access
from simyard.api.base import Json
from simyard_bench.limit import request
from simyard_dev.errors import SetupError
from simyard_sites.kubernetes.client import READ_BYTES, build_path
from simyard_sites.kubernetes.resource import Resource

CONCURRENCIES = (16, 32, 64)
START_SECONDS = 300.0
_REQUEST_SECONDS = 60
_POLL_SECONDS = 0.2
_OWN_METADATA = ("labels", "annotations")


@dataclass(frozen=True)
class Started:
    """The seconds until the last object was created, and until a watch showed all running; and the CPU time used."""

    seconds: float
    accepted_seconds: float
    cpu_seconds: float


@dataclass
class _Watch:
    """State of a watch: the newest version, and the running objects; ``ended`` and ``cpu`` are set when all run."""

    version: str
    n: int
    running: set[str] = field(default_factory=set)
    began: asyncio.Event = field(default_factory=asyncio.Event)
    ended: float = 0.0
    cpu: float = 0.0

    def apply_lines(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            event = orjson.loads(line)
            if event["type"] == "ERROR":
                raise SetupError(f"the watch failed: {event['object'].get('message')}")
            item = event["object"]
            self.version = item["metadata"]["resourceVersion"]
            if (item.get("status") or {}).get("phase") == "Running":
                self.running.add(item["metadata"]["name"])
        if len(self.running) == self.n:
            self.ended, self.cpu = time.monotonic(), time.process_time()


class BareKube:
    """The objects of one kind in a namespace."""

    def __init__(self, session: aiohttp.ClientSession, resource: Resource, namespace: str) -> None:
        self._session = session
        self._collection = build_path(resource, namespace)

    async def create(self, example: Json, n: int, concurrency: int) -> Started:
        """Create ``n`` objects like the example and measure until all run.

        Raises:
            SetupError: the API server refused one, or not all ran in time.
        """
        work = iter(range(n))
        accepted = 0.0

        async def make() -> None:
            nonlocal accepted
            async with asyncio.TaskGroup() as group:
                for _ in range(concurrency):
                    group.create_task(self._create(example, work))
            accepted = time.monotonic()

        return await self._measured(make, n, lambda: accepted)

    async def scale(self, path: str, n: int) -> Started:
        """Set the replicas of the object at ``path`` to ``n``, and measure until all objects of its controller run.

        Raises:
            SetupError: the API server refused it, or not all objects ran in time.
        """
        asked = time.monotonic()
        return await self._measured(lambda: self.ask_to_scale(path, n), n, lambda: asked)

    async def ask_to_scale(self, path: str, n: int) -> None:
        """Set the replicas of the object at ``path``.

        Raises:
            SetupError: the API server refused it.
        """
        await request(self._session, "PATCH", path, {"spec": {"replicas": n}}, "application/merge-patch+json")

    async def end(self) -> None:
        """Delete all objects, and wait until none is left."""
        async with self._session.delete(self._collection, timeout=aiohttp.ClientTimeout(total=START_SECONDS)) as answer:
            await answer.read()
        await self.gone()

    async def gone(self) -> None:
        """Wait until no object is left.

        Raises:
            SetupError: objects are left after the deadline.
        """
        deadline = time.monotonic() + START_SECONDS
        while (await self._list())["items"]:
            if time.monotonic() > deadline:
                raise SetupError(f"{self._collection}: not all are gone after {START_SECONDS:.0f} s")
            await asyncio.sleep(_POLL_SECONDS)

    async def _measured(self, ask: Callable[[], Awaitable[None]], n: int, accepted: Callable[[], float]) -> Started:
        watch = _Watch((await self._list())["metadata"]["resourceVersion"], n)
        try:
            async with asyncio.timeout(START_SECONDS), asyncio.TaskGroup() as group:
                watching = group.create_task(self._watch(watch))
                await watch.began.wait()
                cpu, began = time.process_time(), time.monotonic()
                await ask()
                await watching
        except ExceptionGroup as failed:
            raise SetupError(f"{self._collection}: {_cause(failed)}") from failed
        except TimeoutError:
            raise SetupError(
                f"{self._collection}: {len(watch.running)} of {n} run after {START_SECONDS:.0f} s"
            ) from None
        return Started(watch.ended - began, accepted() - began, watch.cpu - cpu)

    async def _watch(self, watch: _Watch) -> None:
        """Watch until all objects run; the server may end a watch at any time."""
        timeout = aiohttp.ClientTimeout(total=START_SECONDS)
        while not watch.ended:
            query = {"watch": "true", "resourceVersion": watch.version, "timeoutSeconds": str(int(START_SECONDS))}
            async with self._session.get(self._collection, params=query, timeout=timeout) as answer:
                watch.began.set()
                rest = b""
                async for chunk in answer.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    watch.apply_lines(lines)
                    if watch.ended:
                        return

    async def _create(self, example: Json, work: Iterator[int]) -> None:
        for number in work:
            body = {**example, "metadata": {**example["metadata"], "name": f"bare-{number}"}}
            await request(self._session, "POST", self._collection, body, "application/json")

    async def _list(self) -> Json:
        async with self._session.get(self._collection, params={"limit": "1"}) as answer:
            found: Json = orjson.loads(await answer.read())
        return found


@asynccontextmanager
async def connect(kubeconfig: Path) -> AsyncIterator[aiohttp.ClientSession]:
    """Provide connections to the API server as its administrator, without a limit on their number."""
    server, context = read_access(kubeconfig)
    connector = aiohttp.TCPConnector(limit=0, ssl=context, keepalive_timeout=60)
    timeout = aiohttp.ClientTimeout(total=_REQUEST_SECONDS)
    async with aiohttp.ClientSession(server, connector=connector, timeout=timeout, read_bufsize=READ_BYTES) as session:
        yield session


def copy_manifest(stored: Json) -> Json:
    """Return a manifest with the labels, annotations and spec of a stored object, and without a name."""
    metadata = {name: stored["metadata"][name] for name in _OWN_METADATA if name in stored["metadata"]}
    return {"apiVersion": stored["apiVersion"], "kind": stored["kind"], "metadata": metadata, "spec": stored["spec"]}


def _cause(failed: BaseException) -> str:
    while isinstance(failed, BaseExceptionGroup):
        failed = failed.exceptions[0]
    return str(failed) or type(failed).__name__
