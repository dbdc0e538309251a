# SPDX-License-Identifier: Apache-2.0
"""Changes of objects, followed without end."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

import pytest

from simyard_sites.kubernetes.changes import follow_changes
from simyard_sites.kubernetes.client import KubeClient, WatchEvent
from simyard_sites.kubernetes.errors import ApiError, ExpiredError, UnavailableError
from simyard_sites.kubernetes.resource import Resource

PODS = Resource("", "v1", "pods", "Pod")


class Server:
    """An API server whose watches answer with one script after the other."""

    def __init__(self, *watches: list[WatchEvent | ApiError]) -> None:
        self.watches = list(watches)
        self.versions: list[str] = []

    async def watch(self, *_: object, resource_version: str, fields: str) -> AsyncGenerator[WatchEvent, None]:
        self.versions.append(resource_version)
        for step in self.watches.pop(0):
            if isinstance(step, ApiError):
                raise step
            yield step


def event(kind: str, version: int) -> WatchEvent:
    return WatchEvent(kind, {"metadata": {"resourceVersion": str(version)}})


async def follow(server: Server, count: int) -> list[Any]:
    seen: list[Any] = []
    async with aclosing(follow_changes(cast("KubeClient", server), PODS)) as events:
        async for item in events:
            seen.append(f"{item.type} {item.object['metadata']['resourceVersion']}")
            if len(seen) == count:
                break
    return seen


@pytest.mark.parametrize("end", [[], [UnavailableError(0, "", "the connection broke")]])
async def test_a_watch_continues_after_the_last_event(end: list[WatchEvent | ApiError]) -> None:
    server = Server([event("ADDED", 1), event("BOOKMARK", 5), *end], [event("DELETED", 6)])
    assert await follow(server, 2) == ["ADDED 1", "DELETED 6"]
    assert server.versions == ["", "5"]


async def test_a_version_that_is_too_old_brings_the_present_objects_again() -> None:
    server = Server([event("ADDED", 1)], [ExpiredError(410, "Expired", "too old")], [event("ADDED", 1)])
    assert await follow(server, 2) == ["ADDED 1", "ADDED 1"]
    assert server.versions == ["", "1", ""]
