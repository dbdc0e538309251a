# SPDX-License-Identifier: Apache-2.0
"""Creates, changes and deletes the Workers of pools, as the plans say."""

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
from simyard.fleet.registry import Registry, get_pool_uid
from simyard.fleet.sites.room import Room
from simyard.manifests.worker import build_pool_worker
from simyard.plan.creation import NewWorker
from simyard.plan.licence import get_licence_key
from simyard.plan.pool import PoolPlan
from simyard.plan.pool_input import PoolInput
from simyard.plan.workforce import Removal
from simyard_sites.kubernetes.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError

WRITERS = 32


class PoolWorkers:
    """Sender of requests to the API server for the Workers of all pools.

    The number of parallel requests is limited. Requests of several pools take turns, so a large pool does not delay a
    small one.
    """

    def __init__(self, registry: Registry, room: Room) -> None:
        self._registry = registry
        self._room = room
        self._writers = asyncio.Semaphore(WRITERS)

    async def find_unanswered(self, pool: WorkerPool, unsure: set[str]) -> None:
        """Read the Workers whose creation got no answer, and remove their names from ``unsure``."""
        await self._all(partial(self._find, name, pool.metadata.namespace, unsure) for name in sorted(unsure))

    async def delete_workers(self, plan: PoolPlan) -> None:
        """Delete the Workers that a plan deletes.

        Raises:
            ApiError: the API server did not delete all of them.
        """
        await self._all(partial(self._delete, removal) for removal in plan.delete)

    async def patch_workers(self, plan: PoolPlan) -> None:
        """Set ``spec.drain`` of the Workers that a plan drains, and label Workers without a revision.

        Raises:
            ApiError: the API server did not change all of them.
        """
        await self._all(partial(self._change, worker, {"spec": {"drain": True}}) for worker in plan.drain)
        await self._all(partial(self._adopt, worker, revision) for worker, revision in plan.adopt)

    async def create_workers(
        self, plan: PoolPlan, given: PoolInput, places: Counter[str], taken: set[str], unsure: set[str]
    ) -> None:
        """Create the Workers of a plan at their reserved ``places``.

        The method adds to ``taken`` the names that other Workers have, and to ``unsure`` the names of Workers whose
        creation got no answer.

        Raises:
            ApiError: the API server did not create all of them.
        """
        await self._all(partial(self._create, new, given, places, taken, unsure) for new in plan.create)

    async def _all(self, calls: Iterable[Callable[[], Awaitable[None]]]) -> None:
        """Send many requests, a limited number at a time. After all have ended, raise the first error."""
        known = list(calls)
        left = iter(known)
        failures: list[Exception] = []

        async def work() -> None:
            for call in left:
                async with self._writers:
                    try:
                        await call()
                    except Exception as error:  # noqa: BLE001 - raised at the end
                        failures.append(error)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(WRITERS, len(known))):
                group.create_task(work())
        if failures:
            raise failures[0]

    async def _find(self, name: str, namespace: str, unsure: set[str]) -> None:
        with contextlib.suppress(NotFoundError):
            self._registry.workers.learn(await self._registry.client.get(names.WORKERS, name, namespace))
        unsure.discard(name)

    async def _create(
        self, new: NewWorker, given: PoolInput, places: Counter[str], taken: set[str], unsure: set[str]
    ) -> None:
        pool = given.pool
        licence, version = "", ""
        if given.service is not None:
            licence, version = get_licence_key(given.service.service), given.service.service.spec.version
        body = build_pool_worker(pool, new.name, new.site, new.revision, given.now, licence=licence, version=version)
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
        if worker is not None and get_pool_uid(worker) != pool.metadata.uid:
            taken.add(new.name)
        else:
            self._room.occupy(places, new.site)

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
        """Patch a Worker, and put the new Worker into the cache.

        The API server refuses the patch if its uid belongs to another Worker of the same name.
        """
        metadata = worker.metadata
        patch = {**change, "metadata": {**change.get("metadata", {}), "uid": metadata.uid}}
        try:
            raw = await self._registry.client.patch(names.WORKERS, metadata.name, patch, metadata.namespace)
        except (NotFoundError, ConflictError):
            return
        self._registry.workers.learn(raw)
