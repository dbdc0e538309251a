# SPDX-License-Identifier: Apache-2.0
"""Services, pools and workers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from simyard_client.display import Progress, Table
from simyard_client.errors import AlreadyExistsError, NotFoundError, SimyardError
from simyard_client.logs import read_worker_log
from simyard_client.paths import (
    API_VERSION,
    IDLE,
    LABEL_POOL,
    SIMULATION_SERVICES,
    WORKER_POOLS,
    WORKERS,
    Json,
    build_path,
    build_subresource_path,
    find_condition,
    has_condition,
)
from simyard_client.streams import iterate
from simyard_client.studies import StudyMaker
from simyard_client.targets import Target
from simyard_client.watching import Snapshot, list_items, watch

if TYPE_CHECKING:
    from simyard_client.api import Api

START_SECONDS = 600.0
"""Time for the start of a pool."""
IDLE_SECONDS = 1800
"""Time without an action after which a pool that this client created removes its workers."""


class PoolNotReadyError(SimyardError):
    """A pool whose workers did not become ready in time; the message is that of its condition."""


class Worker(Target):
    """A running instance of a service."""

    plural = WORKERS

    def set_attribute(self, name: str, value: Any) -> None:
        """Set a mutable attribute. The value is lost when the worker ends.

        Raises:
            RequestError: The attribute is not declared or not mutable, or the value is refused.
        """
        path = build_subresource_path(WORKERS, self._connection.namespace, self.name, "attributes", name)
        self._connection.run(lambda api: api.request("PUT", path, body={"value": value}))

    def logs(self, *, tail: int | None = None, follow: bool = False) -> Iterator[str]:
        """Yield the last lines of the worker's log; with ``follow``, further lines until the worker ends."""
        return iterate(self._connection, read_worker_log(self._connection, self.name, tail=tail, follow=follow))


class Pool(Target, StudyMaker):
    """N workers of one service."""

    plural = WORKER_POOLS

    def scale(self, workers: int) -> None:
        """Set the number of workers; the pool creates or removes workers from now on."""
        path = build_path(WORKER_POOLS, self._connection.namespace, self.name)
        self._connection.run(lambda api: api.patch(path, {"spec": {"replicas": workers}}))

    def wait_ready(self, timeout: float = START_SECONDS, *, progress: bool = True) -> Pool:
        """Wait until the pool is available, with a bar if somebody looks at it, and return the pool.

        Raises:
            PoolNotReadyError: The workers were not ready within ``timeout`` seconds; the message has the cause.
        """
        with Progress(f"workers of {self.name}", 0, shown=progress) as bar:
            self._connection.run(lambda api: self._wait_ready(api, timeout, bar))
        return self

    @contextlib.contextmanager
    def started(
        self, workers: int | None = None, *, timeout: float = START_SECONDS, then: int = 0, progress: bool = True
    ) -> Iterator[Pool]:
        """Start the workers, and scale the pool down at the end of the block, also after an error.

        Args:
            workers: The number of workers; by default the present number of the pool, or 1 if that is 0.
            timeout: The time for the start, in seconds.
            then: The number of workers after the block.
            progress: Show a bar in notebooks and at terminals.

        Raises:
            PoolNotReadyError: The workers were not ready in time.
        """
        found = self.read()
        present = int(found["spec"].get("replicas", 1))
        wanted = workers if workers is not None else present or 1
        if find_condition(found, "Available").get("reason") == IDLE:  # only a change of its spec wakes the pool
            present = 0
            self.scale(present)
        try:
            if wanted != present:
                self.scale(wanted)
            yield self.wait_ready(timeout, progress=progress)
        finally:
            self.scale(then)

    def workers(self) -> Table:
        """Return a table of the workers."""
        return list_workers(self._connection, self.name)

    def worker(self, name: str | int) -> Worker:
        """Return one worker, by its name or the number of its slot."""
        return Worker(self._connection, f"{self.name}-{name}" if isinstance(name, int) else name)

    def delete(self) -> None:
        """Delete the pool and all its workers."""
        path = build_path(WORKER_POOLS, self._connection.namespace, self.name)
        self._connection.run(lambda api: api.delete(path))

    async def _wait_ready(self, api: Api, timeout: float, bar: Progress) -> None:
        last: Json = {}

        async def follow() -> None:
            nonlocal last
            async for event in watch(api, build_path(WORKER_POOLS, self._connection.namespace), name=self.name):
                last = event.items.get(self.name, {}) if isinstance(event, Snapshot) else event.item
                if not last or (not isinstance(event, Snapshot) and event.deleted):
                    raise NotFoundError(f"the pool {self.name} does not exist")
                status = last.get("status") or {}
                bar.set(int(status.get("readyReplicas") or 0), total=int(last["spec"].get("replicas", 1)))
                present = status.get("observedGeneration") == last["metadata"]["generation"]
                if present and has_condition(last, "Available"):
                    return

        try:
            await asyncio.wait_for(follow(), timeout)
        except asyncio.TimeoutError:
            condition = find_condition(last, "Available")
            reason, message = condition.get("reason", ""), condition.get("message", "it has no condition yet")
            raise PoolNotReadyError(
                f"the pool {self.name} is not available after {timeout:g} s: {reason}: {message}", reason=reason
            ) from None

    def _repr_html_(self) -> str:
        return self.workers()._repr_html_()


class Service(Target, StudyMaker):
    """A simulation program that a vendor published. Calls go to any free worker of all its pools."""

    plural = SIMULATION_SERVICES

    def pool(
        self, name: str, workers: int | None = None, *, idle_seconds: int | None = IDLE_SECONDS, **spec: Any
    ) -> Pool:
        """Return the pool with this name; create it if it does not exist, and scale it if ``workers`` is given.

        Args:
            name: The name of the pool.
            workers: The number of workers; by default that of the pool, and 1 for a new pool.
            idle_seconds: The time without an action after which a new pool removes its workers; None for never.
            spec: Further fields of ``spec`` of a new pool, such as ``placement``.

        Raises:
            AlreadyExistsError: The pool runs another service.
        """
        pool = Pool(self._connection, name)
        try:
            found = pool.read()
        except NotFoundError:
            return self._create_pool(pool, workers, idle_seconds, spec)
        self._check(found)
        if workers is not None and found["spec"].get("replicas", 1) != workers:
            pool.scale(workers)
        return pool

    def _create_pool(self, pool: Pool, workers: int | None, idle_seconds: int | None, spec: Json) -> Pool:
        item: Json = {
            "apiVersion": API_VERSION,
            "kind": "WorkerPool",
            "metadata": {"name": pool.name, "namespace": self._connection.namespace},
            "spec": {"serviceRef": {"name": self.name}, "replicas": 1 if workers is None else workers, **spec},
        }
        if idle_seconds is not None:
            item["spec"].setdefault("idleTimeoutSeconds", idle_seconds)
        path = build_path(WORKER_POOLS, self._connection.namespace)
        try:
            self._connection.run(lambda api: api.create(path, item, repeatable=True))
        except AlreadyExistsError:  # another process was faster, or an answer was lost
            self._check(pool.read())
        return pool

    def _check(self, found: Json) -> None:
        service = found["spec"]["serviceRef"]["name"]
        if service != self.name:
            name = found["metadata"]["name"]
            raise AlreadyExistsError(f"the pool {name} runs the service {service}: choose another name")

    def _repr_html_(self) -> str:
        return self.interface._repr_html_()


def list_workers(connection: Any, pool: str = "") -> Table:
    """Return a table of the workers of a pool, or of the namespace."""
    path = build_path(WORKERS, connection.namespace)
    query = {"labelSelector": f"{LABEL_POOL}={pool}"} if pool else None
    items, _ = connection.run(lambda api: list_items(api, path, query))
    rows = [
        (
            item["metadata"]["name"],
            item["spec"]["serviceRef"]["name"],
            item["spec"].get("site") or "",
            has_condition(item, "Ready"),
            find_condition(item, "Ready").get("message") or "",
        )
        for item in items
    ]
    return Table(("worker", "service", "site", "ready", "message"), rows)
