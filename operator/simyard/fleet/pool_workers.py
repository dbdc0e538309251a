"""Makes, changes and ends the Workers of pools, as plans say."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from simyard.api import names
from simyard.api.base import Json
from simyard.api.worker import Worker
from simyard.api.worker_pool import WorkerPool
from simyard.build.worker import pool_worker
from simyard.fleet.registry import Registry, pool_uid_of
from simyard.fleet.room import Room
from simyard.plan.licence import licence_key
from simyard.plan.pool import NewWorker, PoolPlan
from simyard.plan.pool_input import PoolInput
from simyard.plan.workforce import Removal
from simyard_sites.kubernetes.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError

WRITERS = 32


class PoolWorkers:
    """Sends requests for all pools, some at a time: one pool with many does not hold up another with few."""

    def __init__(self, registry: Registry, room: Room) -> None:
        self._registry = registry
        self._room = room
        self._writers = asyncio.Semaphore(WRITERS)

    async def settle(self, pool: WorkerPool, unsure: set[str]) -> None:
        """Learn whether Workers were made although no answer came: a plan without them would make others instead."""
        await self._all(partial(self._settle, name, pool.metadata.namespace, unsure) for name in sorted(unsure))

    async def end(self, plan: PoolPlan) -> None:
        """Delete the Workers that the plan deletes.

        Raises:
            ApiError: the API server did not do all of it; the same holds for all others.
        """
        await self._all(partial(self._delete, removal) for removal in plan.delete)

    async def change(self, plan: PoolPlan) -> None:
        """Drain Workers, and label those that do not say their revision."""
        await self._all(partial(self._change, worker, {"spec": {"drain": True}}) for worker in plan.drain)
        await self._all(partial(self._adopt, worker, revision) for worker, revision in plan.adopt)

    async def make(
        self, plan: PoolPlan, given: PoolInput, places: Counter[str], taken: set[str], unsure: set[str]
    ) -> None:
        """Create Workers at places that are held for them.

        ``taken`` gets the names that belong to somebody else, ``unsure`` those of which no answer came.
        """
        await self._all(partial(self._create, new, given, places, taken, unsure) for new in plan.create)

    async def _all(self, calls: Iterable[Callable[[], Awaitable[None]]]) -> None:
        """Make many requests, some at a time; the first failure is raised when all have ended."""
        known = list(calls)
        left = iter(known)
        failures: list[Exception] = []

        async def work() -> None:
            for call in left:
                async with self._writers:
                    try:
                        await call()
                    except Exception as error:  # noqa: BLE001 - raised below
                        failures.append(error)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(WRITERS, len(known))):
                group.create_task(work())
        if failures:
            raise failures[0]

    async def _settle(self, name: str, namespace: str, unsure: set[str]) -> None:
        with contextlib.suppress(NotFoundError):
            self._registry.workers.learn(await self._registry.client.get(names.WORKERS, name, namespace))
        unsure.discard(name)

    async def _create(
        self, new: NewWorker, given: PoolInput, places: Counter[str], taken: set[str], unsure: set[str]
    ) -> None:
        pool = given.pool
        licence, version = "", ""
        if given.service is not None:
            licence, version = licence_key(given.service.service), given.service.service.spec.version
        body = pool_worker(pool, new.name, new.site, new.revision, given.now, licence=licence, version=version)
        try:
            try:
                raw = await self._registry.client.create(names.WORKERS, body, pool.metadata.namespace)
            except AlreadyExistsError:
                raw = await self._registry.client.get(names.WORKERS, new.name, pool.metadata.namespace)
        except NotFoundError:
            return
        except ApiError as error:
            if error.retryable:
                unsure.add(new.name)
            raise
        worker = self._registry.workers.learn(raw)
        if worker is not None and pool_uid_of(worker) != pool.metadata.uid:
            taken.add(new.name)
        else:
            self._room.take(places, new.site)

    async def _delete(self, removal: Removal) -> None:
        metadata = removal.worker.metadata
        try:
            left = await self._registry.client.delete(
                names.WORKERS, metadata.name, metadata.namespace, uid=metadata.uid
            )
        except (NotFoundError, ConflictError):
            left = None
        if left is None:
            self._registry.workers.forget(removal.worker)
        else:
            self._registry.workers.learn(left)

    async def _adopt(self, worker: Worker, revision: str) -> None:
        await self._change(worker, {"metadata": {"labels": {names.LABEL_REVISION: revision}}})

    async def _change(self, worker: Worker, change: Json) -> None:
        """Tell the API server first: the request can be sent again, the decision must not be taken again.

        With the uid it changes that very Worker and no other, and makes none.
        """
        metadata = worker.metadata
        patch = {**change, "metadata": {**change.get("metadata", {}), "uid": metadata.uid}}
        try:
            raw = await self._registry.client.patch(names.WORKERS, metadata.name, patch, metadata.namespace)
        except (NotFoundError, ConflictError):
            return
        self._registry.workers.learn(raw)
