# SPDX-License-Identifier: Apache-2.0
"""Lists the objects of a kind again, to find an object by its uid.

A path contains the uid of an object, but the API server finds objects by name.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from simyard.frontend.changes.storing import translate_api_errors
from simyard.kube.cache import Cache
from simyard_sites.kubernetes.client import KubeClient

SPACING_SECONDS = 1.0


class Relisting:
    """A reader of lists from the API server: one at a time, and at most one list of a kind per second.

    Requests for paths that do not exist therefore cost a bounded number of lists.
    """

    def __init__(self, client: KubeClient, namespace: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._namespace = namespace
        self._clock = clock
        self._next: dict[str, float] = {}
        self._under_way: dict[str, asyncio.Task[None]] = {}

    async def read(self, cache: Cache[Any]) -> None:
        """List a kind into its cache, unless it was listed within the last second.

        Raises:
            OcciError: 503 or 504, the API server did not answer.
        """
        kind = cache.resource.kind
        task = self._under_way.get(kind)
        if task is None:
            if self._clock() < self._next.get(kind, 0.0):
                return
            self._next[kind] = self._clock() + SPACING_SECONDS
            task = self._under_way[kind] = asyncio.create_task(self._read(cache), name=f"list {kind}")
            task.add_done_callback(lambda done: self._ended(kind, done))
        await asyncio.shield(task)

    def _ended(self, kind: str, task: asyncio.Task[None]) -> None:
        del self._under_way[kind]
        if not task.cancelled():
            task.exception()  # each waiting request raises the error

    async def _read(self, cache: Cache[Any]) -> None:
        async with translate_api_errors(cache.resource.kind):
            raw, _ = await self._client.list_all(cache.resource, self._namespace)
        for item in raw:
            cache.learn(item)
