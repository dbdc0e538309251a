# SPDX-License-Identifier: Apache-2.0
"""Sync calls: requests that wait for the result of an action.

A batch of calls has a bounded number of tasks, each of which takes the next call when it has finished one. A task for
each call would cost more than the call. The bound follows the number of ready workers: a call that waits for a free
worker for more than 30 s is lost, so only few calls may wait at the platform at the same time.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simyard_client.connection import Connection
from simyard_client.errors import ClosedError, ForbiddenError, NotFoundError, SimyardError
from simyard_client.files import make_values
from simyard_client.futures import Future
from simyard_client.interface import Action
from simyard_client.paths import (
    SIMULATION_SERVICES,
    WORKER_POOLS,
    WORKERS,
    Json,
    build_path,
    build_subresource_path,
)
from simyard_client.results import Result

if TYPE_CHECKING:
    from simyard_client.api import Api

MAX_IN_FLIGHT = 256
DEFAULT_WORKERS = 8
"""Number of ready workers that is assumed if the user may not see it."""
SHORT_SECONDS = 5.0
"""Calls that take less may wait at the platform, two for each worker, so that no worker is ever without work."""
REFRESH_SECONDS = 5.0
"""Time between two looks at the number of ready workers."""
KINDS: Mapping[str, str] = {WORKERS: "Worker", WORKER_POOLS: "WorkerPool", SIMULATION_SERVICES: "SimulationService"}


@dataclass(frozen=True)
class TargetName:
    """The object on which actions are called: its resource, namespace and name."""

    plural: str
    namespace: str
    name: str

    @property
    def reference(self) -> Json:
        """The target as ``spec.target`` of a ServiceAction or a Study."""
        return {"kind": KINDS[self.plural], "name": self.name}


async def call_sync(
    connection: Connection, target: TargetName, action: Action, parameters: Mapping[str, Any]
) -> Result:
    """Call an action, and return its result.

    Raises:
        ActionError: The action has no result.
        RequestError: The request was refused.
    """
    path = build_subresource_path(target.plural, target.namespace, target.name, "actions", action.name)
    answer = await connection.api.request(
        "POST", path, body={"parameters": dict(parameters)}, repeatable=action.idempotent, calls_action=True
    )
    return Result(
        make_values(connection, answer.get("result") or {}),
        action.units,
        worker=answer.get("worker") or "",
        seconds=answer.get("seconds"),
    )


class SyncCalls:
    """The Sync calls of one batch."""

    def __init__(
        self,
        connection: Connection,
        target: TargetName,
        action: Action,
        futures: Iterable[Future],
        *,
        max_in_flight: int = MAX_IN_FLIGHT,
    ) -> None:
        """Begin with no call sent. The instance belongs to the loop of the connection."""
        self._connection = connection
        self._target = target
        self._action = action
        self._waiting = deque(futures)
        self._max_in_flight = max_in_flight
        self._limit = 1
        self._runners: set[asyncio.Task[None]] = set()
        self._mean_seconds = 0.0

    async def run(self) -> None:
        """Send all calls, and give each future its result or its error."""
        refresh = asyncio.create_task(self._refresh()) if len(self._waiting) > 1 else None
        try:
            self._add_runners()
            while self._runners:
                await asyncio.wait(self._runners, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (refresh, *self._runners):
                if task is not None:
                    task.cancel()
            for future in self._waiting:
                with contextlib.suppress(concurrent.futures.InvalidStateError):  # its owner has cancelled it
                    future.set_exception(ClosedError("the client was closed before the call was sent"))

    async def _refresh(self) -> None:
        """Adapt the limit to the number of ready workers, again and again."""
        while True:
            ready = DEFAULT_WORKERS
            with contextlib.suppress(SimyardError):
                ready = await count_ready(self._connection.api, self._target)
            calls = 2 * ready if self._mean_seconds < SHORT_SECONDS else ready
            self._limit = max(1, min(self._max_in_flight, calls))
            self._add_runners()
            await asyncio.sleep(REFRESH_SECONDS)

    def _add_runners(self) -> None:
        while len(self._runners) < min(self._limit, len(self._waiting) + len(self._runners)):
            task = asyncio.create_task(self._take_calls())
            self._runners.add(task)
            task.add_done_callback(self._runners.discard)

    async def _take_calls(self) -> None:
        while self._waiting and len(self._runners) <= self._limit:
            future = self._waiting.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = await call_sync(self._connection, self._target, self._action, future.parameters)
            except asyncio.CancelledError:
                future.set_exception(ClosedError("the client was closed during the call, so the action may have run"))
                raise
            except Exception as error:  # noqa: BLE001 - every error belongs to the owner of the future
                future.set_exception(error)
            else:
                self._mean_seconds += 0.1 * ((result.seconds or 0.0) - self._mean_seconds)
                future.set_result(result)
            del future


async def count_ready(api: Api, target: TargetName) -> int:
    """Return the number of ready workers of a target."""
    if target.plural == WORKERS:
        return 1
    try:
        item = await api.get(build_path(target.plural, target.namespace, target.name))
    except (ForbiddenError, NotFoundError):
        return DEFAULT_WORKERS
    status = item.get("status") or {}
    return int(status.get("readyReplicas" if target.plural == WORKER_POOLS else "readyWorkers") or 0)
