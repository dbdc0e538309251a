# SPDX-License-Identifier: Apache-2.0
"""Measure the yardstick ``limit``: the writes that the API server can store, sent by a client that does nothing else.

The client creates as many Workers as the start did, with the account of the operator, and patches the status of each
twice. A platform that shows both the request for a worker and its readiness needs at least these writes. The client is
bare aiohttp with raw JSON and keep-alive; the best of several concurrencies counts.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import orjson
import uvloop
import yaml

from simyard.api import names
from simyard.api.base import Json
from simyard_bench.workload import NAME, NAMESPACE
from simyard_bench.world import World
from simyard_dev.errors import SetupError
from simyard_dev.progress import say, step

CONCURRENCIES = (16, 32, 64)
_REQUEST_SECONDS = 60
_DELETE_SECONDS = 600
_METADATA = ("namespace", "labels", "annotations", "ownerReferences")
_LATE = ("adapterVersion", "attributes", "attributesTime")
_LAST_STAGE = "registered"
_COLLECTION = f"/apis/{names.API_VERSION}/namespaces/{NAMESPACE}/{names.WORKERS.plural}"


@dataclass(frozen=True)
class Writing:
    """The writes for one worker: the bodies of a create and of two patches of its status."""

    create: Json
    starting: Json
    ready: Json

    @classmethod
    def like(cls, worker: Json) -> Writing:
        """Return writes as large as for a started Worker: same labels, annotations, owners, spec and status."""
        metadata = {name: worker["metadata"][name] for name in _METADATA if name in worker["metadata"]}
        status = dict(worker["status"])
        stages = {name: time for name, time in status["stages"].items() if name != _LAST_STAGE}
        conditions = [{**condition, "status": "False"} for condition in status["conditions"]]
        late = {name: status.pop(name) for name in _LATE if name in status}
        registered = {_LAST_STAGE: worker["status"]["stages"][_LAST_STAGE]}
        return cls(
            {name: worker[name] for name in ("apiVersion", "kind", "spec")} | {"metadata": metadata},
            {"status": status | {"stages": stages, "conditions": conditions}},
            {"status": late | {"stages": registered, "conditions": status["conditions"]}},
        )


def limit(world: World, kubeconfig: Path, example: Json, n: int) -> tuple[float, int]:
    """Return the seconds for ``n`` workers like the example, and the concurrency with the shortest time.

    The operator must not run.

    Raises:
        SetupError: the API server refused a write.
    """
    assert not world.platform.operator.is_alive(), "the operator would start machines for these Workers"
    with step(f"limit, {n} workers"):
        found = uvloop.run(_best(kubeconfig, Writing.like(example), n))
    say(f"limit {found[0]:.2f} s, {3 * n / found[0]:.0f} writes per second with {found[1]} concurrent requests")
    return found


async def _best(kubeconfig: Path, writing: Writing, n: int) -> tuple[float, int]:
    server, token, context = _access(kubeconfig)
    results = []
    for concurrency in CONCURRENCIES:
        connector = aiohttp.TCPConnector(limit=concurrency, ssl=context, keepalive_timeout=60)
        async with aiohttp.ClientSession(
            server,
            connector=connector,
            headers={"Authorization": f"Bearer {token}"},
            timeout=aiohttp.ClientTimeout(total=_REQUEST_SECONDS),
        ) as session:
            began = time.monotonic()
            work = iter(range(n))
            async with asyncio.TaskGroup() as group:
                for _ in range(concurrency):
                    group.create_task(_write(session, writing, work))
            results.append((round(time.monotonic() - began, 3), concurrency))
            await _clean_up(session)
    return min(results)


async def _write(session: aiohttp.ClientSession, writing: Writing, work: Iterator[int]) -> None:
    for number in work:
        name = f"{NAME}-{number}"
        created = {**writing.create, "metadata": {**writing.create["metadata"], "name": name}}
        await request(session, "POST", _COLLECTION, created, "application/json")
        for patch in (writing.starting, writing.ready):
            await request(session, "PATCH", f"{_COLLECTION}/{name}/status", patch, "application/merge-patch+json")


async def _clean_up(session: aiohttp.ClientSession) -> None:
    """Delete all Workers, outside of the measured time."""
    async with asyncio.timeout(_DELETE_SECONDS):
        while True:
            timeout = aiohttp.ClientTimeout(total=_DELETE_SECONDS)
            async with session.get(_COLLECTION, params={"limit": "500"}, timeout=timeout) as response:
                items = orjson.loads(await response.read())["items"]
            if not items:
                return
            left = iter([item["metadata"]["name"] for item in items])
            async with asyncio.TaskGroup() as group:
                for _ in range(CONCURRENCIES[0]):
                    group.create_task(_delete(session, left))


async def _delete(session: aiohttp.ClientSession, left: Iterator[str]) -> None:
    for name in left:
        async with session.delete(f"{_COLLECTION}/{name}") as response:
            await response.read()


async def request(session: aiohttp.ClientSession, method: str, path: str, body: Json, media: str) -> None:
    """Send one request to the API server.

    Raises:
        SetupError: the API server refused it.
    """
    headers = {"Content-Type": media}
    async with session.request(method, path, data=orjson.dumps(body), headers=headers) as response:
        answer = await response.read()
        if response.status >= 300:
            raise SetupError(
                f"{method} {path} was refused with {response.status}: {answer.decode(errors='replace')[:500]}"
            )


def _access(kubeconfig: Path) -> tuple[str, str, ssl.SSLContext]:
    """Return server, bearer token and TLS context of a kubeconfig that :mod:`simyard_dev.kubeconfig` wrote."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster = config["clusters"][0]["cluster"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    return (
        str(cluster["server"]),
        str(config["users"][0]["user"]["token"]),
        ssl.create_default_context(cadata=authority),
    )
