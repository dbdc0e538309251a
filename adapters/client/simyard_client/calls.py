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
from typing import TYPE_CHECKING, Any

from simyard_client.connection import Connection
from simyard_client.errors import ClosedError, ForbiddenError, NotFoundError, NoWorkerReadyError, SimyardError
from simyard_client.files import make_values
from simyard_client.futures import Future
from simyard_client.interface import Action
from simyard_client.paths import (
    IDLE,
    WORKER_POOLS,
    WORKERS,
    build_path,
    build_subresource_path,
    find_condition,
)
from simyard_client.results import Result
from simyard_client.stored_calls import StoredCalls, make_batch_id
from simyard_client.target_names import TargetName

if TYPE_CHECKING:
    from simyard_client.api import Api

MAX_IN_FLIGHT = 256
DEFAULT_WORKERS = 8
"""Number of ready workers that is assumed if the user may not see it."""
SHORT_SECONDS = 5.0
"""Calls that take less may wait at the platform, two for each worker, so that no worker is ever without work."""
FIRST_PATIENCE_SECONDS = 2.0
"""Time for which a call waits for a worker before the client looks whether the pool is idle."""
REFRESH_SECONDS = 5.0
"""Time between two looks at the number of ready workers."""


async def call_sync(
    connection: Connection,
    target: TargetName,
    action: Action,
    parameters: Mapping[str, Any],
    patience_seconds: float | None = None,
) -> Result:
    """Call an action, and return its result. While no worker is ready, the call is repeated for a time.

    Raises:
        ActionError: The action has no result.
        RequestError: The request was refused.
    """
    path = build_subresource_path(target.plural, target.namespace, target.name, "actions", action.name)
    answer = await connection.api.request(
        "POST",
        path,
        body={"parameters": dict(parameters)},
        repeatable=action.idempotent,
        calls_action=True,
        patience_seconds=patience_seconds,
    )
    return Result(
        make_values(connection, answer.get("result") or {}),
        action.units,
        worker=answer.get("worker") or "",
        seconds=answer.get("seconds"),
    )


class SyncCalls:
    """The Sync calls of one batch.

    A pool that removed its idle workers wakes only for a ServiceAction. A call that finds such a pool did not run, so
    it is stored as a ServiceAction.
    """

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
        self._stored = StoredCalls(connection, make_batch_id())

    async def run(self) -> None:
        """Send all calls, and give each future its result or its error."""
        refresh = asyncio.create_task(self._refresh()) if len(self._waiting) > 1 else None
        try:
            self._add_runners()
            while self._runners:
                await asyncio.wait(self._runners, return_when=asyncio.FIRST_COMPLETED)
            await self._stored.wait()
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
                result = await self._call(future)
            except asyncio.CancelledError:
                future.set_exception(ClosedError("the client was closed during the call, so the action may have run"))
                raise
            except Exception as error:  # noqa: BLE001 - every error belongs to the owner of the future
                future.set_exception(error)
            else:
                if result is None:
                    continue
                self._mean_seconds += 0.1 * ((result.seconds or 0.0) - self._mean_seconds)
                future.set_result(result)
            del future

    async def _call(self, future: Future) -> Result | None:
        """Return the result of a call; None if the call was stored."""
        call = (self._connection, self._target, self._action, future.parameters)
        patience = self._connection.patience_seconds
        first = min(FIRST_PATIENCE_SECONDS, patience)
        try:
            return await call_sync(*call, first)
        except NoWorkerReadyError:
            if await is_idle(self._connection.api, self._target):
                await self._stored.store(self._target, self._action, future)
                return None
            if patience <= first:
                raise
        return await call_sync(*call, patience - first)


async def is_idle(api: Api, target: TargetName) -> bool:
    """Return whether a target is a pool that removed its idle workers."""
    if target.plural != WORKER_POOLS:
        return False
    try:
        item = await api.get(build_path(target.plural, target.namespace, target.name))
    except (ForbiddenError, NotFoundError):
        return False
    return find_condition(item, "Available").get("reason") == IDLE


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
