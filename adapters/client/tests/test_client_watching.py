# SPDX-License-Identifier: Apache-2.0
"""A watch loses no change, whichever way it ends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import web
from fake_server import FakeServer, make_status

from simyard_client.api import Api
from simyard_client.kubeconfig import Access, Cluster, User
from simyard_client.watching import Change, Snapshot, watch


def item(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version)}}


class Script:
    """An API server with a list and a series of watches, each of which is a list of events."""

    def __init__(self, server: FakeServer, lists: list[list[Any]], watches: list[Any]) -> None:
        self.lists, self.watches = lists, watches
        self.versions: list[str] = []
        server.answer = self.answer

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.json_response({"metadata": {"resourceVersion": "10"}, "items": self.lists.pop(0)})
        self.versions.append(request.query["resourceVersion"])
        events = self.watches.pop(0)
        if isinstance(events, web.Response):
            return events
        return web.Response(text="".join(json.dumps(event) + "\n" for event in events))


async def collect(server: FakeServer, count: int) -> list[Any]:
    api = Api(Access(Cluster(server.url), User()), patience_seconds=5)
    found: list[Any] = []
    try:
        async for event in watch(api, "/things", labels="a=b"):
            found.append(
                sorted(event.items) if isinstance(event, Snapshot) else (event.item["metadata"]["name"], event.deleted)
            )
            assert isinstance(event, (Snapshot, Change))
            if len(found) == count:
                break
    finally:
        await api.aclose()
    return found


async def test_a_watch_that_ends_continues_at_its_last_version(server: FakeServer) -> None:
    script = Script(
        server,
        [[item("a", 1)]],
        [
            [{"type": "ADDED", "object": item("b", 11)}, {"type": "BOOKMARK", "object": item("", 15)}],
            [{"type": "DELETED", "object": item("a", 16)}],
        ],
    )
    assert await collect(server, 3) == [["a"], ("b", False), ("a", True)]
    assert script.versions == ["10", "15"]


@pytest.mark.parametrize(
    "gone",
    [make_status(410, "Expired"), [{"type": "ERROR", "object": {"code": 410}}]],
)
async def test_a_version_that_is_too_old_begins_with_a_new_snapshot(server: FakeServer, gone: Any) -> None:
    Script(server, [[item("a", 1)], [item("b", 12)]], [gone])
    assert await collect(server, 2) == [["a"], ["b"]]
