# SPDX-License-Identifier: Apache-2.0
"""Create history before a measurement: Workers that were created and deleted, and finished ServiceActions.

To save time, these Workers have no machines, and the actions are copies of one finished action. For the frontends, this
makes no difference: each Worker is created, listed in full, and deleted, and each ServiceAction is complete.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator

import aiohttp
import uvloop

from kube_api import wait_until
from simyard.api import names
from simyard.api.base import Json
from simyard_bench.limit import request
from simyard_bench.occi.cases import ACTION
from simyard_bench.workload import NAMESPACE
from simyard_bench.world import World
from simyard_dev.errors import SetupError

PORTION = 5_000
"""Maximum number of these Workers that exist at the same time."""
CONCURRENCY = 32
_DELETE_SECONDS = 300
_REQUEST_SECONDS = 60
_LABEL = "bench.simyard.dev/finished"
_NAMESPACE = f"/apis/{names.API_VERSION}/namespaces/{NAMESPACE}"
_WORKERS = f"{_NAMESPACE}/{names.WORKERS.plural}"
_ACTIONS = f"{_NAMESPACE}/{names.SERVICE_ACTIONS.plural}"


def make_and_delete_workers(world: World, example: Json, count: int, look: Callable[[], None]) -> None:
    """Create Workers like the example and delete them; ``look`` lists them meanwhile. The operator must not run.

    Raises:
        SetupError: the API server refused a request.
    """
    metadata = {name: value for name, value in example["metadata"].items() if name in ("namespace", "labels")}
    body = {
        **{name: example[name] for name in ("apiVersion", "kind", "spec")},
        "metadata": {**metadata, "labels": {**metadata["labels"], _LABEL: ""}},
    }
    for first in range(0, count, PORTION):
        portion = range(first, min(first + PORTION, count))
        uvloop.run(_all(world, [f"finished-{number}" for number in portion], _WORKERS, body, None))
        look()
        uvloop.run(_delete(world))


def keep_actions(world: World, worker: str, count: int) -> None:
    """Run one ServiceAction, and store copies of it until there are ``count``.

    Raises:
        SetupError: the API server refused a request.
        TimeoutError: the action did not finish.
    """
    manifest: Json = {
        "apiVersion": names.SERVICE_ACTIONS.api_version,
        "kind": names.SERVICE_ACTIONS.kind,
        "metadata": {"name": "finished", "namespace": NAMESPACE},
        "spec": {"target": {"kind": names.WORKERS.kind, "name": worker}, "action": ACTION},
    }
    api = world.api
    api.install([manifest])
    wait_until(lambda: "finishedTime" in api.get(manifest).body.get("status", {}))
    done = api.get(manifest).body
    wanted = [f"finished-{number}" for number in range(count - 1)]
    uvloop.run(_all(world, wanted, _ACTIONS, manifest, {"status": done["status"]}))


async def _all(world: World, wanted: list[str], collection: str, body: Json, status: Json | None) -> None:
    async def make(work: Iterator[str]) -> None:
        for name in work:
            named = copy.copy(body)
            named["metadata"] = {**body["metadata"], "name": name}
            await request(session, "POST", collection, named, "application/json")
            if status is not None:
                path = f"{collection}/{name}/status"
                await request(session, "PATCH", path, status, "application/merge-patch+json")

    async with _session(world, _REQUEST_SECONDS) as session, asyncio.TaskGroup() as group:
        work = iter(wanted)
        for _ in range(CONCURRENCY):
            group.create_task(make(work))


async def _delete(world: World) -> None:
    async with (
        _session(world, _DELETE_SECONDS) as session,
        session.delete(_WORKERS, params={"labelSelector": _LABEL}) as response,
    ):
        if response.status >= 300:
            raise SetupError(f"DELETE {_WORKERS}: {response.status} {await response.text()}")
        await response.read()


def _session(world: World, seconds: float) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(limit=CONCURRENCY, ssl=world.administrator, keepalive_timeout=60)
    return aiohttp.ClientSession(
        world.environment.control_plane.server,
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=seconds),
    )
