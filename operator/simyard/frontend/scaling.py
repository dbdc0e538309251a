"""The pools behind components and applications: scaled, suspended and resumed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simyard.api.base import Json, Metadata
from simyard.api.names import WORKER_POOLS
from simyard.apiserver.objects import CachedPool, CachedService
from simyard.frontend.access import Access, Question
from simyard.frontend.exchange import Identity
from simyard.frontend.noted import noting, without
from simyard.frontend.storing import Storing
from simyard.frontend.view import View
from simyard.occi.errors import OcciError
from simyard_sites.kubernetes.errors import AlreadyExistsError

WAIT_SECONDS = 50.0
"""Below the deadline of a request."""
MOST_REPLICAS = 100_000


class Scaling:
    """Changes WorkerPools, under a ``key`` once. Who may change them was asked before."""

    def __init__(self, view: View, storing: Storing, access: Access) -> None:
        self._view = view
        self._storing = storing
        self._access = access

    async def start_workers(self, identity: Identity, service: CachedService, count: int, key: str = "") -> CachedPool:
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
            pool = await self._make(service, name, count, key)

        def started(now: CachedPool) -> Json:
            spec: Json = {"replicas": _permitted(name, max(now.replicas, count))} if count > now.replicas else {}
            return spec | ({"suspend": False} if now.suspended else {})

        return await self._change(pool, started, key)

    async def scale(self, pool: CachedPool, replicas: int, key: str = "") -> CachedPool:
        """Have exactly so many workers in a pool."""
        wanted = _permitted(pool.metadata.name, replicas)
        return await self._change(pool, lambda now: {} if now.replicas == wanted else {"replicas": wanted}, key)

    async def scale_in(self, pool: CachedPool, uids: Sequence[str]) -> CachedPool:
        """Have one worker less for each of some Workers that go; for none of them twice, whoever else ends it too."""

        def smaller(now: CachedPool) -> Json | None:
            new = without(now.metadata, uids)
            return noting({"spec": {"replicas": max(0, now.replicas - len(new))}}, now.metadata, new) if new else None

        return await self._storing.change(self._view.directory.pools, pool, smaller)

    async def suspend(self, pool: CachedPool, suspended: bool, key: str = "") -> CachedPool:
        """Suspend or resume a pool."""
        return await self._change(pool, lambda now: {} if now.suspended == suspended else {"suspend": suspended}, key)

    async def _change(self, pool: CachedPool, change: Callable[[CachedPool], Json], key: str) -> CachedPool:
        def changed(now: CachedPool) -> Json | None:
            spec = change(now)
            return {"spec": spec} if spec or key else None

        return await self._storing.change(self._view.directory.pools, pool, changed, key)

    async def ready(self, pool: CachedPool) -> None:
        """Wait until a pool has the workers that it should have now.

        Raises:
            OcciError: 504, it takes longer; the pool goes on.
        """
        found = await self._until(pool, lambda now: now.ready >= now.replicas)
        if found is not None:
            raise OcciError(
                504,
                f"WorkerPool {pool.metadata.name}: after {WAIT_SECONDS:.0f} s {found.ready} of {found.replicas} workers"
                f" are ready; the others are still being started ({found.state})",
            )

    async def stopped(self, pool: CachedPool) -> None:
        """Wait until a pool that was suspended has no workers that are ready.

        Raises:
            OcciError: 504, it takes longer; the pool goes on.
        """
        found = await self._until(pool, lambda now: not now.ready)
        if found is not None:
            raise OcciError(
                504,
                f"WorkerPool {pool.metadata.name}: after {WAIT_SECONDS:.0f} s {found.ready} workers are still ready;"
                f" they are being ended ({found.state})",
            )

    async def _until(self, pool: CachedPool, check: Callable[[CachedPool], bool]) -> CachedPool | None:
        """Wait until the operator has seen a pool as it is, and made it so; how it is if that takes too long."""
        namespace, name, uid = pool.metadata.namespace, pool.metadata.name, pool.metadata.uid

        def now() -> CachedPool:
            return self._view.directory.pools.get(namespace, name) or pool

        def is_done() -> bool:
            found = now()
            return found.metadata.uid != uid or (found.observed >= pool.metadata.generation and check(found))

        return None if await self._view.until(is_done, WAIT_SECONDS) else now()

    async def _make(self, service: CachedService, name: str, replicas: int, key: str) -> CachedPool:
        metadata = Metadata(name=name, namespace=self._view.namespace)
        body: Json = {
            "apiVersion": WORKER_POOLS.api_version,
            "kind": WORKER_POOLS.kind,
            "metadata": {"name": name, "namespace": self._view.namespace},
            "spec": {"serviceRef": {"name": service.metadata.name}, "replicas": _permitted(name, replicas)},
        }
        if key:
            body = noting(body, metadata, [key])
        try:
            return await self._storing.create(self._view.directory.pools, body)
        except AlreadyExistsError:
            found = await self._storing.get(self._view.directory.pools, name, self._view.namespace)
        if found is not None and found.metadata.deletion_timestamp is not None:
            raise OcciError(409, f"WorkerPool {name} is being deleted: try again when its workers are gone")
        if found is None or found.service != service.metadata.name:
            raise OcciError(409, f"WorkerPool {name} is of another service: make one of {service.metadata.name} first")
        return found


def _permitted(name: str, replicas: int) -> int:
    if replicas > MOST_REPLICAS:
        raise OcciError(400, f"{name}: a pool has at most {MOST_REPLICAS} workers, not {replicas}")
    return replicas
