# SPDX-License-Identifier: Apache-2.0
"""Stored calls: large results, failures with their log, cancellation, and one watch for a batch."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

import pytest
from aiohttp import web
from fake_server import INTERFACE, FakeServer, make_status

import simyard_client
from simyard_client import Client


class Platform:
    """ServiceActions that end as ``ends`` says, as soon as they exist; None keeps an action running."""

    def __init__(self, server: FakeServer, ends: list[dict[str, Any] | None]) -> None:
        self.url = server.url
        self.ends = ends
        self.items: dict[str, dict[str, Any]] = {}
        self.contents: dict[str, bytes] = {}
        self.watches = 0
        self.changed = asyncio.Event()
        server.answer = self.answer

    def store(self, content: bytes) -> dict[str, str]:
        address = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self.contents[address] = content
        return {"file": address, "bytes": str(len(content))}

    def end(self, name: str, status: dict[str, Any]) -> None:
        kind = "Failed" if "failure" in status else "Complete"
        self.items[name]["status"] = {**status, "worker": "w", "conditions": [{"type": kind, "status": "True"}]}
        self.changed.set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        name = request.path.rpartition("/")[2]
        if "/files/" in request.path:
            download = {"method": "GET", "url": f"{self.url}/store/{name}?x=y"}
            return web.json_response({"spec": {"bytes": 1}, "status": {"download": download}})
        if request.path.startswith("/store/"):
            return web.Response(body=self.contents[name])
        if name == "log":
            return make_status(404, "NotFound")  # the worker is gone
        if request.method == "POST":
            return self.create(await request.json())
        if request.method == "PATCH":
            assert await request.json() == {"spec": {"cancel": True}}
            self.end(name, {"failure": {"reason": "Cancelled", "message": "by a user"}})
            return web.json_response(self.items[name])
        if "watch" in request.query:
            return await self.watch(request)
        if request.path.startswith("/apis/subresources"):
            return web.json_response({"service": "beam", "interface": INTERFACE})
        if name in self.items:
            return web.json_response(self.items[name])
        return web.json_response({"metadata": {"resourceVersion": "0"}, "items": list(self.items.values())})

    def create(self, item: dict[str, Any]) -> web.Response:
        name = item["metadata"]["name"]
        if name in self.items:
            return make_status(409, "AlreadyExists")
        item["metadata"] |= {"uid": name, "resourceVersion": "1"}
        self.items[name] = item
        status = self.ends[int(name.rpartition("-")[2])]
        if status is not None:
            self.end(name, status)
        return web.json_response(item)

    async def watch(self, request: web.Request) -> web.StreamResponse:
        """Send all objects after each change, until the client goes."""
        self.watches += 1
        assert request.query["labelSelector"].startswith("simyard.dev/batch=")
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            for item in self.items.values():
                await response.write(json.dumps({"type": "MODIFIED", "object": item}).encode() + b"\n")
            self.changed.clear()
            await self.changed.wait()


def test_one_watch_follows_all_calls_of_a_batch(server: FakeServer, client: Client) -> None:
    platform = Platform(server, [{"result": {"twice": n}, "runMilliseconds": 500} for n in range(50)])
    batch = client.pool("beams").map("solve", [{"length": n} for n in range(50)], durable=True)
    found = list(batch.results(timeout=240))
    assert [(result.twice, result.seconds, result.units) for result in found] == [
        (n, 0.5, {"twice": "mm"}) for n in range(50)
    ]
    assert len(platform.items) == 50
    assert platform.watches <= 2
    again = client.batch(batch.id)
    assert [result.twice for result in again.results(timeout=240)] == list(range(50))


def test_a_large_result_is_read_from_the_file_store(server: FakeServer, client: Client) -> None:
    platform = Platform(server, [])
    content = platform.store(json.dumps({"twice": 8, "field": [1, 2]}).encode())
    platform.ends = [{"result": {"mesh": {"file": content["file"]}}, "resultFile": content}]
    future = client.pool("beams").submit("solve", length=4, durable=True)
    assert future.result(240).field == [1, 2]
    result = client.action(future.action).result(240)
    assert (result.twice, result.mesh.address) == (8, content["file"])


def test_a_failed_action_has_its_log(server: FakeServer, client: Client) -> None:
    platform = Platform(server, [])
    log = platform.store(b"*ERROR: no mesh\n")
    failure = {"reason": "ActionFailed", "message": "no mesh"}
    platform.ends = [{"failure": failure, "log": [{"file": log["file"], "bytes": int(log["bytes"])}]}]
    future = client.pool("beams").submit("solve", durable=True)
    with pytest.raises(simyard_client.ActionFailedError, match="no mesh") as caught:
        future.result(240)
    assert caught.value.log() == "*ERROR: no mesh\n"
    assert (caught.value.worker, caught.value.action) == ("w", future.action)


def test_a_stored_call_is_cancelled_at_the_platform(server: FakeServer, client: Client) -> None:
    Platform(server, [None])
    future = client.pool("beams").submit("solve", durable=True)
    assert not future.cancel()
    with pytest.raises(simyard_client.CancelledError, match="by a user"):
        future.result(240)
