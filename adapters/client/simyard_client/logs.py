# SPDX-License-Identifier: Apache-2.0
"""Logs of workers, and of actions while they run and after their workers are gone.

The first lines of an action are in the file store, in parts. Its worker has the lines after them. A reader takes the
stored parts first, and then asks the worker for the lines after their last byte. The API cleans the lines of a worker,
so their bytes cannot be counted here; they are counted as lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from simyard_client.connection import Connection
from simyard_client.display import make_printable
from simyard_client.errors import SimyardError
from simyard_client.files import read_bytes
from simyard_client.paths import SERVICE_ACTIONS, WORKERS, Json, build_path, build_subresource_path, is_finished
from simyard_client.streams import iterate

FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 8.0
"""Times before a follower looks again for an action without a worker, or whose worker does not answer."""
FOLLOW_SECONDS = 3_700.0
"""Time for one request of a log; the API ends a follower after one hour."""


async def read_worker_log(
    connection: Connection, worker: str, *, tail: int | None = None, follow: bool = False
) -> AsyncIterator[str]:
    """Yield the last lines of a worker, and with ``follow`` further lines until the worker ends."""
    query = ({"tailLines": str(tail)} if tail else {}) | _ask_to_follow(follow)
    path = build_subresource_path(WORKERS, connection.namespace, worker, "log")
    async for line in connection.api.stream(path, query, seconds=FOLLOW_SECONDS):
        yield _decode(line)


class ActionLog:
    """The log of a ServiceAction, as far as it was read."""

    def __init__(
        self, connection: Connection, name: str, *, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    ) -> None:
        """Begin with nothing read."""
        self._connection = connection
        self._sleep = sleep
        self._name = name
        self._invocation = ""
        self._stored = 0
        """The number of bytes of the stored parts that were read."""
        self._seen = 0
        """The number of lines after these bytes that were read from the worker."""

    async def read(self, *, follow: bool = False) -> AsyncIterator[str]:
        """Yield the lines that there are, and with ``follow`` further lines until the action ends.

        The action may get another worker meanwhile; then the lines of the new run follow.
        """
        pause = FIRST_PAUSE_SECONDS
        while True:
            path = build_path(SERVICE_ACTIONS, self._connection.namespace, self._name)
            action: Json = await self._connection.api.get(path)
            finished = is_finished(action)
            with contextlib.suppress(*((SimyardError,) if follow else ())):  # the worker may be back soon
                async for line in self._read(action, follow=follow):
                    pause = FIRST_PAUSE_SECONDS
                    yield line
            if finished or not follow:
                return
            await self._sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    async def _read(self, action: Json, *, follow: bool) -> AsyncIterator[str]:
        status = action.get("status") or {}
        parts = status.get("log") or []
        uid, attempts = str(action["metadata"]["uid"]), int(status.get("attempts") or 0)
        invocation = uid if attempts <= 1 else f"{uid}.{attempts}"  # as the platform names it
        repeated = parts and sum(part.get("bytes") or 0 for part in parts) < self._stored
        if invocation != self._invocation or repeated:  # another run of the action has another log
            self._invocation, self._stored, self._seen = invocation, 0, 0
        async for line in self._read_parts(parts):
            yield line
        if not status.get("worker"):
            return
        try:
            async for line in self._read_worker(status["worker"], invocation, follow and not is_finished(action)):
                yield line
        except SimyardError:
            if not is_finished(action):  # else the stored parts are the log
                raise

    async def _read_worker(self, worker: str, invocation: str, follow: bool) -> AsyncIterator[str]:
        query = {"invocation": invocation, "after": str(self._stored)}
        path = build_subresource_path(WORKERS, self._connection.namespace, worker, "log")
        number = 0
        async for text in self._connection.api.stream(path, query | _ask_to_follow(follow), seconds=FOLLOW_SECONDS):
            number += 1
            if number > self._seen and text.endswith(b"\n"):  # else the answer was cut in the middle of the line
                self._seen = number
                yield _decode(text)

    async def _read_parts(self, parts: list[Any]) -> AsyncIterator[str]:
        end = 0
        for part in parts:
            start, end = end, end + int(part.get("bytes") or 0)
            if end <= self._stored:
                continue
            content = await asyncio.to_thread(read_bytes, self._connection, part["file"])
            for line in io.BytesIO(content[self._stored - start :]):
                if self._seen:
                    self._seen -= 1
                else:
                    yield _decode(line)
            self._stored = end


def read_action_log(connection: Connection, name: str) -> str:
    """Return the log of a ServiceAction, as far as it is kept."""
    return "".join(iterate(connection, ActionLog(connection, name).read()))


def _ask_to_follow(follow: bool) -> dict[str, str]:
    return {"follow": "true"} if follow else {}


def _decode(line: bytes) -> str:
    """Return a line without characters that control a terminal."""
    text = line.decode(errors="replace")
    return make_printable(text.rstrip("\r\n"), kept="\t") + ("\n" if text.endswith("\n") else "")
