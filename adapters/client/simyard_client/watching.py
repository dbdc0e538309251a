# SPDX-License-Identifier: Apache-2.0
"""Lists and watches of objects.

A watch of Kubernetes ends now and then: after a time, when its connection is lost, or because its version is too old.
:func:`watch` therefore begins with a list, and continues at the version of the last event. Only if the API server does
not know this version any more, it lists the objects again; the snapshot then shows also what was deleted meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simyard_client.errors import ConnectionFailedError, RequestError, UnavailableError
from simyard_client.paths import Json

if TYPE_CHECKING:
    from simyard_client.api import Api

PAGE = 500
WATCH_SECONDS = 300
"""Time after which the API server ends a watch, which then begins again."""
_GONE = 410
_PAUSE_SECONDS = 1.0


@dataclass(frozen=True)
class Snapshot:
    """All objects at one moment, by name; ``began`` is the time (``time.monotonic``) at which the list began."""

    items: Mapping[str, Json]
    began: float


@dataclass(frozen=True)
class Change:
    """An object after a change, or before its deletion."""

    item: Json
    deleted: bool


async def list_items(api: Api, path: str, query: Mapping[str, str] | None = None) -> tuple[list[Json], str]:
    """Return the objects of a path, which are requested in pages, and the version of the list."""
    items: list[Json] = []
    asked = {**(query or {}), "limit": str(PAGE)}
    while True:
        page = await api.get(path, asked)
        items += page["items"]
        following = page["metadata"].get("continue")
        if not following:
            return items, str(page["metadata"].get("resourceVersion") or "")
        asked["continue"] = following


async def watch(api: Api, path: str, *, name: str = "", labels: str = "") -> AsyncGenerator[Snapshot | Change, None]:
    """Yield a snapshot of the objects, and then each change, until the caller stops.

    Args:
        api: The API server.
        path: The path of the objects of a kind.
        name: The name of a single object.
        labels: A label selector.
    """
    query = {"labelSelector": labels} if labels else {}
    if name:
        query["fieldSelector"] = f"metadata.name={name}"
    while True:
        began = time.monotonic()
        items, version = await list_items(api, path, query)
        yield Snapshot({item["metadata"]["name"]: item for item in items}, began)
        del items
        following = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(WATCH_SECONDS), **query}
        while version:
            try:
                async for line in api.stream(
                    path, following | {"resourceVersion": version}, seconds=WATCH_SECONDS + 30
                ):
                    event = _read_event(line)
                    if event is None or event["type"] == "ERROR":
                        code = (event or {}).get("object", {}).get("code")
                        version = "" if code == _GONE else version
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        yield Change(event["object"], event["type"] == "DELETED")
            except (ConnectionFailedError, UnavailableError):
                await asyncio.sleep(_PAUSE_SECONDS)
            except RequestError as error:
                if error.status == _GONE:
                    break
                if error.status < 500 and error.status != 429:
                    raise
                await asyncio.sleep(_PAUSE_SECONDS)


def _read_event(line: bytes) -> dict[str, Any] | None:
    """Return an event; None for the rest of an answer that was cut off."""
    try:
        event: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return event
