# SPDX-License-Identifier: Apache-2.0
"""Stored calls: ServiceActions that the platform runs, also when this process has ended.

The objects of one batch have the label :data:`LABEL_BATCH`, and one watch with a label selector follows all of them.
The name of an object is that of its batch and its index. A creation can therefore be repeated: if the object exists
already, an earlier attempt has made it. The watch runs as long as calls are unfinished.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import secrets
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from simyard_client.connection import Connection
from simyard_client.errors import ActionError, AlreadyExistsError, ClosedError, make_action_error
from simyard_client.files import make_values, read_bytes
from simyard_client.futures import Future
from simyard_client.interface import Action
from simyard_client.logs import read_action_log
from simyard_client.paths import (
    API_VERSION,
    LABEL_BATCH,
    LABEL_POOL,
    SERVICE_ACTIONS,
    WORKER_POOLS,
    Json,
    build_path,
    is_finished,
)
from simyard_client.results import Result
from simyard_client.target_names import TargetName
from simyard_client.watching import Change, Snapshot, watch

MAX_UNFINISHED = 5_000
"""Unfinished ServiceActions of one batch, of 10,000 that a namespace may have; the rest of a larger batch waits."""
PARALLEL_CREATES = 32
PARALLEL_READS = 8


def make_batch_id() -> str:
    """Return the id of a new batch."""
    return secrets.token_hex(6)


class StoredCalls:
    """The ServiceActions of one batch, and the futures that wait for them."""

    def __init__(self, connection: Connection, batch_id: str) -> None:
        """Begin with no call. The instance belongs to the loop of the connection."""
        self._connection = connection
        self._api = connection.api
        self._namespace = connection.namespace
        self._batch_id = batch_id
        self._open: dict[str, tuple[Future, Mapping[str, str]]] = {}
        """The unfinished calls by the name of their object, with the units of their results."""
        self._created: dict[str, float] = {}
        """The names in ``_open`` whose objects exist, with the time (``time.monotonic``) since when."""
        self._room = asyncio.Semaphore(MAX_UNFINISHED)
        self._reads = asyncio.Semaphore(PARALLEL_READS)
        self._stored = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._readings: dict[str, asyncio.Task[None]] = {}
        """The results that are read from the file store, by the name of their object."""

    async def run(self, target: TargetName, action: Action, futures: Iterable[Future]) -> None:
        """Create an object for each future, and wait until each future has its result or its error."""
        waiting = deque(futures)
        runners = [
            asyncio.create_task(self._create_calls(target, action, waiting))
            for _ in range(min(PARALLEL_CREATES, len(waiting)))
        ]
        try:
            await asyncio.gather(*runners)
        finally:
            self._stored.set()
            for task in runners:
                task.cancel()
            for future in waiting:
                with contextlib.suppress(concurrent.futures.InvalidStateError):
                    future.set_exception(ClosedError("the client was closed before the call was sent"))
            await self.wait()

    def follow(self, name: str, future: Future, units: Mapping[str, str], *, exists: bool = False) -> None:
        """Wait for an object that exists, or that will be created."""
        future.action = name
        if exists:
            self._created[name] = time.monotonic()
        future.on_cancel(lambda: self._connection.loop.spawn(self._request_cancel(name)))
        self._open[name] = (future, units)
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())

    async def wait_stored(self) -> None:
        """Wait until an object exists for each call that was not refused."""
        await self._stored.wait()

    async def wait(self) -> None:
        """Wait until no call is unfinished."""
        try:
            while self._watching is not None and not self._watching.done():
                await asyncio.wait([self._watching])
            if self._readings:
                await asyncio.wait(self._readings.values())
        finally:
            self._fail_all(ClosedError(f"the client was closed; the actions of batch {self._batch_id} continue"))

    async def _create_calls(self, target: TargetName, action: Action, waiting: deque[Future]) -> None:
        while waiting:
            await self._room.acquire()
            if not waiting:
                self._room.release()
                return
            future = waiting.popleft()
            if not future.set_running_or_notify_cancel():
                self._room.release()
                continue
            await self.store(target, action, future)

    async def store(self, target: TargetName, action: Action, future: Future) -> None:
        """Create the object of a future that is running; the future gets the result, or the error of the creation."""
        word = action.name.replace("_", "-")
        name = f"{target.name}-{word}-{self._batch_id}-{future.index}"
        self.follow(name, future, action.units)
        try:
            await self._create(name, target, action, future.parameters)
        except asyncio.CancelledError:
            self._fail(name, ClosedError(f"the client was closed; serviceaction/{name} may exist"))
            raise
        except Exception as error:  # noqa: BLE001 - every error belongs to the owner of the future
            self._fail(name, error)

    async def _create(self, name: str, target: TargetName, action: Action, parameters: Mapping[str, Any]) -> None:
        labels = {LABEL_BATCH: self._batch_id}
        if target.plural == WORKER_POOLS:
            labels[LABEL_POOL] = target.name
        item: Json = {
            "apiVersion": API_VERSION,
            "kind": "ServiceAction",
            "metadata": {"name": name, "namespace": self._namespace, "labels": labels},
            "spec": {"target": target.reference, "action": action.name, "parameters": dict(parameters)},
        }
        with contextlib.suppress(AlreadyExistsError):  # an earlier attempt, whose answer was lost
            await self._api.create(build_path(SERVICE_ACTIONS, self._namespace), item, repeatable=True)
        if name in self._open:
            self._created[name] = time.monotonic()

    async def _watch(self) -> None:
        path = build_path(SERVICE_ACTIONS, self._namespace)
        try:
            async with contextlib.aclosing(watch(self._api, path, labels=f"{LABEL_BATCH}={self._batch_id}")) as events:
                async for event in events:
                    self._apply_event(event)
                    if not self._open:
                        self._watching = None  # from now on, a further call begins another watch
                        return
        except Exception as error:  # noqa: BLE001 - every error belongs to the owners of the futures
            self._fail_all(error)

    def _apply_event(self, event: Snapshot | Change) -> None:
        if isinstance(event, Change):
            self._apply(event.item)
            if event.deleted:
                self._fail_deleted(event.item["metadata"]["name"])
            return
        known = [name for name, since in self._created.items() if since < event.began]
        for name in set(known) - event.items.keys():
            self._fail_deleted(name)
        for item in event.items.values():
            self._apply(item)

    def _apply(self, item: Json) -> None:
        """Give a future its result or its error if its action has ended."""
        name, status = item["metadata"]["name"], item.get("status") or {}
        if name not in self._open or name in self._readings or not is_finished(item):
            return
        if failure := status.get("failure"):
            worker, message = status.get("worker") or "", failure.get("message") or ""
            error = make_action_error(failure["reason"], message, worker=worker, action=name)
            error.read_log = lambda: read_action_log(self._connection, name)
            self._fail(name, error)
        elif status.get("resultFile"):
            task = asyncio.create_task(self._read_result(name, item))
            self._readings[name] = task
            task.add_done_callback(lambda _: self._readings.pop(name))
        else:
            self._succeed(name, item, status.get("result") or {})

    async def _read_result(self, name: str, item: Json) -> None:
        """Read a result that is too large for its object."""
        status = item["status"]
        try:
            async with self._reads:
                address = status["resultFile"]["file"]
                text = await asyncio.to_thread(read_bytes, self._connection, address)
            if name in self._open:
                self._succeed(name, item, {**(status.get("result") or {}), **json.loads(text)})
        except Exception as error:  # noqa: BLE001 - every error belongs to the owner of the future
            self._fail(name, error)

    def _succeed(self, name: str, item: Json, values: Json) -> None:
        future, units = self._close(name)
        future.set_result(make_result(item, make_values(self._connection, values), units))

    def _fail(self, name: str, error: Exception) -> None:
        if name in self._open:
            self._close(name)[0].set_exception(error)

    def _fail_deleted(self, name: str) -> None:
        if name not in self._readings:
            self._fail(name, ActionError(f"serviceaction/{name} was deleted before it had a result", action=name))

    def _fail_all(self, error: Exception) -> None:
        for name in list(self._open):
            self._fail(name, error)

    def _close(self, name: str) -> tuple[Future, Mapping[str, str]]:
        self._created.pop(name, None)
        self._room.release()
        closed = self._open.pop(name)
        if not self._open and self._watching is not None and self._watching is not asyncio.current_task():
            self._watching.cancel()
            self._watching = None
        return closed

    async def _request_cancel(self, name: str) -> None:
        try:
            await self._api.patch(build_path(SERVICE_ACTIONS, self._namespace, name), {"spec": {"cancel": True}})
        except Exception as error:  # noqa: BLE001 - every error belongs to the owner of the future
            self._fail(name, error)


def make_result(item: Mapping[str, Any], values: Mapping[str, Any], units: Mapping[str, str]) -> Result:
    """Return the result of a finished ServiceAction."""
    status = item["status"]
    milliseconds = status.get("runMilliseconds")
    return Result(
        values,
        units,
        worker=status.get("worker") or "",
        seconds=None if milliseconds is None else milliseconds / 1000,
        action=item["metadata"]["name"],
    )
