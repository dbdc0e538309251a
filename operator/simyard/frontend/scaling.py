"""The pools behind components and applications: scaled, suspended and resumed."""

from __future__ import annotations

from collections.abc import Callable

from simyard.api.base import Json
from simyard.api.names import WORKER_POOLS
from simyard.apiserver.objects import CachedPool, CachedService
from simyard.frontend.access import Access, Question
from simyard.frontend.exchange import Identity
from simyard.frontend.storing import Storing, refused
from simyard.frontend.view import View
from simyard.occi.errors import OcciError
from simyard_sites.kubernetes.errors import AlreadyExistsError, ConflictError

WAIT_SECONDS = 50.0
"""Below the deadline of a request."""
ATTEMPTS = 10
MOST_REPLICAS = 100_000


class Scaling:
    """Changes WorkerPools. Who may change them was asked before."""

    def __init__(self, view: View, storing: Storing, access: Access) -> None:
        self._view = view
        self._storing = storing
        self._access = access

    async def start_workers(self, identity: Identity, service: CachedService, count: int) -> CachedPool:
        """Have at least so many workers in the pool of a service; the same again changes nothing.

        It never ends any: that is what ``scale`` is for. The pool is the one that is named after the service, or the
        only one that it has; if it has none, one is made.

        Raises:
            OcciError: 409, it has several, and none is named after it.
        """
        name = service.metadata.name[: WORKER_POOLS.name_max].rstrip("-")
        pools = self._view.pools_of(service)
        pool = next((item for item in pools if item.metadata.name == name), pools[0] if len(pools) == 1 else None)
        if pool is None and pools:
            raise OcciError(
                409, f"{service.metadata.name}: has {len(pools)} components and none is named {name}: scale one of them"
            )
        if pool is None:
            await self._access.check(identity, Question("create", WORKER_POOLS))
            pool = await self._make(service, name, count)
        pool = await self.change(pool, lambda replicas: max(replicas, count))
        return await self.suspend(pool, False) if pool.suspended else pool

    async def change(self, pool: CachedPool, change: Callable[[int], int]) -> CachedPool:
        """Change how many workers a pool should have, however many others do so at the same time."""
        pools = self._view.directory.pools
        for _ in range(ATTEMPTS):
            before, after = pool.replicas, change(pool.replicas)
            if after > MOST_REPLICAS:
                raise OcciError(400, f"{pool.metadata.name}: a pool has at most {MOST_REPLICAS} workers, not {after}")
            if after == before:
                return pool
            patch = [
                {"op": "test", "path": "/spec/replicas", "value": before},
                {"op": "replace", "path": "/spec/replicas", "value": after},
            ]
            if (changed := await self._storing.patch(pools, pool, patch)) is not None:
                return changed
            found = await self._storing.get(pools, pool.metadata.name, pool.metadata.namespace)
            if found is None or found.metadata.uid != pool.metadata.uid:
                raise OcciError(404, f"WorkerPool {pool.metadata.name} is not there any more")
            pool = found
        raise OcciError(503, f"WorkerPool {pool.metadata.name} is scaled by too many others at this moment; try again")

    async def suspend(self, pool: CachedPool, suspended: bool) -> CachedPool:
        """Suspend or resume a pool."""
        try:
            return await self._storing.merge(self._view.directory.pools, pool, {"spec": {"suspend": suspended}})
        except ConflictError as error:
            raise refused(error, pool.metadata.name) from None

    async def ready(self, pool: CachedPool) -> None:
        """Wait until a pool has the workers that it should have now.

        Raises:
            OcciError: 504, it takes longer; the pool goes on.
        """
        namespace, name, uid = pool.metadata.namespace, pool.metadata.name, pool.metadata.uid

        def now() -> CachedPool:
            return self._view.directory.pools.get(namespace, name) or pool

        def is_done() -> bool:
            found = now()
            current = found.observed >= pool.metadata.generation
            return found.metadata.uid != uid or (current and found.ready >= found.replicas)

        if not await self._view.until(is_done, WAIT_SECONDS):
            found = now()
            raise OcciError(
                504,
                f"WorkerPool {name}: after {WAIT_SECONDS:.0f} s {found.ready} of {found.replicas} workers are ready;"
                f" the others are still being started ({found.state})",
            )

    async def _make(self, service: CachedService, name: str, replicas: int) -> CachedPool:
        if replicas > MOST_REPLICAS:
            raise OcciError(400, f"{name}: a pool has at most {MOST_REPLICAS} workers, not {replicas}")
        body: Json = {
            "apiVersion": WORKER_POOLS.api_version,
            "kind": WORKER_POOLS.kind,
            "metadata": {"name": name, "namespace": self._view.namespace},
            "spec": {"serviceRef": {"name": service.metadata.name}, "replicas": replicas},
        }
        try:
            return await self._storing.create(self._view.directory.pools, body)
        except AlreadyExistsError:
            found = await self._storing.get(self._view.directory.pools, name, self._view.namespace)
        if found is not None and found.metadata.deletion_timestamp is not None:
            raise OcciError(409, f"WorkerPool {name} is being deleted: try again when its workers are gone")
        if found is None or found.service != service.metadata.name:
            raise OcciError(409, f"WorkerPool {name} is of another service: make one of {service.metadata.name} first")
        return found
