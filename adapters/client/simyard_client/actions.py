# SPDX-License-Identifier: Apache-2.0
"""Stored calls that exist: single ServiceActions, and the durable batches of this and other processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from simyard_client.batches import Batch
from simyard_client.connection import Connection
from simyard_client.display import Table
from simyard_client.errors import NotFoundError, make_action_error
from simyard_client.files import make_values, read_bytes
from simyard_client.futures import Future
from simyard_client.interface import Interface
from simyard_client.logs import ActionLog, read_action_log
from simyard_client.paths import (
    LABEL_BATCH,
    SERVICE_ACTIONS,
    Json,
    build_path,
    build_subresource_path,
    find_condition,
    is_finished,
)
from simyard_client.results import Result
from simyard_client.stored_calls import StoredCalls, make_result
from simyard_client.streams import iterate
from simyard_client.watching import Snapshot, list_items, watch

if TYPE_CHECKING:
    from simyard_client.api import Api

_PLURALS = {"Worker": "workers", "WorkerPool": "workerpools", "SimulationService": "simulationservices"}


class ServiceAction:
    """A stored call.

    Attributes:
        name: The name of the object.
    """

    def __init__(self, connection: Connection, name: str) -> None:
        """Refer to a stored call; nothing is sent yet."""
        self._connection = connection
        self.name = name

    def read(self) -> Json:
        """Return the object as the API has it now."""
        return self._connection.get(self._path)

    def watch(self) -> Iterator[Json]:
        """Yield the status after each change (``percent``, ``progress``, ``worker``, ...), until the action has ended.

        Raises:
            NotFoundError: The object does not exist any more.
        """
        for item in self._follow():
            yield item.get("status") or {}

    def result(self, timeout: float | None = None) -> Result:
        """Wait for the action, and return its result.

        Raises:
            ActionError: The action has no result; the class tells why.
            TimeoutError: The action takes longer than ``timeout`` seconds; it continues.
        """
        item = self._connection.run(lambda api: asyncio.wait_for(self._wait(api), timeout))
        status = item.get("status") or {}
        if failure := status.get("failure"):
            message, worker = failure.get("message") or "", status.get("worker") or ""
            error = make_action_error(failure["reason"], message, worker=worker, action=self.name)
            error.read_log = lambda: read_action_log(self._connection, self.name)
            raise error
        values = dict(status.get("result") or {})
        if stored := status.get("resultFile"):
            values |= json.loads(read_bytes(self._connection, stored["file"]))
        units = _read_units(self._connection, item)
        return make_result(item, make_values(self._connection, values), units)

    def logs(self, *, follow: bool = False) -> Iterator[str]:
        """Yield the lines of the log; with ``follow``, further lines until the action ends."""
        return iterate(self._connection, ActionLog(self._connection, self.name).read(follow=follow))

    def cancel(self) -> None:
        """Ask the platform to cancel the action; its worker needs some time to end it."""
        self._connection.run(lambda api: api.patch(self._path, {"spec": {"cancel": True}}))

    def delete(self) -> None:
        """Delete the object and its result."""
        self._connection.run(lambda api: api.delete(self._path))

    @property
    def _path(self) -> str:
        return build_path(SERVICE_ACTIONS, self._connection.namespace, self.name)

    def _follow(self) -> Iterator[Json]:
        yield from iterate(self._connection, self._watch(self._connection.api))

    async def _watch(self, api: Api) -> Any:
        async for event in watch(api, build_path(SERVICE_ACTIONS, self._connection.namespace), name=self.name):
            item = event.items.get(self.name) if isinstance(event, Snapshot) else event.item
            if item is None or (not isinstance(event, Snapshot) and event.deleted):
                raise NotFoundError(f"serviceaction/{self.name} does not exist")
            yield item
            if is_finished(item):
                return

    async def _wait(self, api: Api) -> Json:
        item: Json = {}
        async for item in self._watch(api):  # noqa: B007 - the last one is the result
            pass
        return item

    def to_table(self) -> Table:
        """Return a table of the state of the call."""
        item = self.read()
        status, complete = item.get("status") or {}, find_condition(item, "Complete")
        rows: list[tuple[str, Any]] = [("action", item["spec"]["action"]), ("state", complete.get("reason") or "")]
        rows += [(name, status[name]) for name in ("worker", "percent", "progress") if status.get(name) is not None]
        rows += list((item["spec"].get("parameters") or {}).items())
        return Table((self.name, "value"), rows)

    def _repr_html_(self) -> str:
        return self.to_table()._repr_html_()

    def __repr__(self) -> str:
        return f"<ServiceAction {self._connection.namespace}/{self.name}>"


def find_batch(connection: Connection, batch_id: str) -> Batch:
    """Return the stored calls of a durable batch.

    Raises:
        NotFoundError: There are none, or no more.
    """
    path = build_path(SERVICE_ACTIONS, connection.namespace)
    items, _ = connection.run(lambda api: list_items(api, path, {"labelSelector": f"{LABEL_BATCH}={batch_id}"}))
    if not items:
        raise NotFoundError(f"there are no ServiceActions of a batch {batch_id!r} in {connection.namespace}")
    units = _read_units(connection, items[0])
    futures = []
    for item in items:
        name = item["metadata"]["name"]
        future = Future(connection.loop, int(name.rpartition("-")[2]), item["spec"].get("parameters") or {})
        future.set_running_or_notify_cancel()
        future.action = name
        futures.append(future)
    futures.sort(key=lambda future: future.index)

    async def follow() -> None:
        calls = StoredCalls(connection, batch_id)
        for future in futures:
            calls.follow(future.action, future, units, exists=True)
        await calls.wait()

    connection.loop.spawn(follow())
    return Batch(batch_id, futures, durable=True)


def _read_units(connection: Connection, item: Json) -> dict[str, str]:
    """Return the units of the results of an action; none if its target does not exist any more."""
    target = item["spec"]["target"]
    try:
        answer = connection.get(build_subresource_path(_PLURALS[target["kind"]], connection.namespace, target["name"]))
    except NotFoundError:
        return {}
    action = Interface.from_json(answer["interface"]).actions.get(item["spec"]["action"])
    return action.units if action is not None else {}
