# SPDX-License-Identifier: Apache-2.0
"""Scales, suspends and resumes the pools behind components and applications."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simyard.api.base import Json, Metadata
from simyard.api.names import WORKER_POOLS
from simyard.frontend.access import Access, Permission
from simyard.frontend.backend import Precondition
from simyard.frontend.changes.noted_requests import add_notes, find_unnoted_keys
from simyard.frontend.changes.storing import ObjectStore, add_check
from simyard.frontend.entities.view import View
from simyard.frontend.exchange import Identity
from simyard.occi.conflicts import ConflictCause, OcciConflictError
from simyard.occi.errors import OcciError
from simyard.serving.objects import CachedPool, CachedService
from simyard_sites.kubernetes.errors import AlreadyExistsError

WAIT_SECONDS = 50.0
"""Maximum time to wait for workers; it is shorter than the time limit of a request."""
MAX_REPLICAS = 100_000


class Scaling:
    """A writer of WorkerPools that makes a change once for one ``key``. Its caller has checked the rights.

    Attributes:
        wait_seconds: the maximum time to wait for workers.
    """

    def __init__(self, view: View, store: ObjectStore, access: Access, wait_seconds: float = WAIT_SECONDS) -> None:
        self.wait_seconds = wait_seconds
        self._view = view
        self._store = store
        self._access = access

    async def start_workers(
        self, identity: Identity, service: CachedService, count: int, key: str = "", check: Precondition | None = None
    ) -> CachedPool:
        """Raise the number of workers in the pool of a service to at least ``count``, and return the pool.

        This action stops no workers; the action ``scale`` can stop them. It changes the pool with the name of the
        service, or the only pool of the service. If the service has no pool, the action creates one, which needs an
        additional right.

        Raises:
            OcciError: 403, the user may not create the pool; 409, the service has several pools and none has its name.
        """
        name = service.metadata.name[: WORKER_POOLS.name_max].rstrip("-")
        pools = self._view.list_pools(service)
        pool = next((item for item in pools if item.metadata.name == name), pools[0] if len(pools) == 1 else None)
        if pool is None and pools:
            raise OcciConflictError(
                ConflictCause.AMBIGUOUS_COMPONENT,
                f"{service.metadata.name}: it has {len(pools)} components and none is named {name}; scale one",
            )
        if pool is None:
            await self._access.check(identity, Permission("create", WORKER_POOLS))
            if check is not None:
                check()
            pool = await self._create_pool(service, name, count, key)

        def started(now: CachedPool) -> Json:
            spec: Json = {"replicas": _check_replicas(name, max(now.replicas, count))} if count > now.replicas else {}
            return spec | ({"suspend": False} if now.suspended else {})

        return await self._change(pool, started, key, check)

    async def scale(
        self, pool: CachedPool, replicas: int, key: str = "", check: Precondition | None = None
    ) -> CachedPool:
        """Set the number of workers in a pool."""
        wanted = _check_replicas(pool.metadata.name, replicas)
        return await self._change(pool, lambda now: {} if now.replicas == wanted else {"replicas": wanted}, key, check)

    async def scale_in(self, pool: CachedPool, uids: Sequence[str]) -> CachedPool:
        """Lower the number of workers in a pool by the number of Workers to delete, and return the pool.

        The pool records each uid, so each Worker counts once, even if another request deletes the same Worker.
        """

        def smaller(now: CachedPool) -> Json | None:
            new = find_unnoted_keys(now.metadata, uids)
            if not new:
                return None
            return add_notes({"spec": {"replicas": max(0, now.replicas - len(new))}}, now.metadata, new)

        return await self._store.change(self._view.directory.pools, pool, smaller)

    async def suspend(
        self, pool: CachedPool, suspended: bool, key: str = "", check: Precondition | None = None
    ) -> CachedPool:
        """Suspend or resume a pool."""
        wanted: Json = {"suspend": suspended}
        return await self._change(pool, lambda now: {} if now.suspended == suspended else wanted, key, check)

    async def _change(
        self, pool: CachedPool, change: Callable[[CachedPool], Json], key: str, check: Precondition | None
    ) -> CachedPool:
        def changed(now: CachedPool) -> Json | None:
            spec = change(now)
            return {"spec": spec} if spec or key else None

        return await self._store.change(self._view.directory.pools, pool, add_check(check, changed), key)

    async def wait_ready(self, pool: CachedPool) -> None:
        """Wait until a pool has its desired number of ready workers.

        Raises:
            OcciError: 504, the wait timed out; the change of the pool continues.
        """
        found = await self._wait_until(pool, lambda now: now.ready >= now.replicas)
        if found is not None:
            raise OcciError(
                504,
                f"WorkerPool {pool.metadata.name}: after {self.wait_seconds:.0f} s {found.ready} of {found.replicas}"
                f" workers are ready; the others are still being started ({found.state})",
            )

    async def wait_stopped(self, pool: CachedPool) -> None:
        """Wait until a suspended pool has no ready workers.

        Raises:
            OcciError: 504, the wait timed out; the change of the pool continues.
        """
        found = await self._wait_until(pool, lambda now: not now.ready)
        if found is not None:
            raise OcciError(
                504,
                f"WorkerPool {pool.metadata.name}: after {self.wait_seconds:.0f} s {found.ready} workers are still"
                f" ready; they are being stopped ({found.state})",
            )

    async def _wait_until(self, pool: CachedPool, check: Callable[[CachedPool], bool]) -> CachedPool | None:
        """Wait until the operator has observed the pool and ``check`` holds; after a timeout, return the pool."""
        namespace, name, uid = pool.metadata.namespace, pool.metadata.name, pool.metadata.uid

        def now() -> CachedPool:
            return self._view.directory.pools.get(namespace, name) or pool

        def is_done() -> bool:
            found = now()
            return found.metadata.uid != uid or (found.observed >= pool.metadata.generation and check(found))

        return None if await self._view.wait_until(is_done, self.wait_seconds) else now()

    async def _create_pool(self, service: CachedService, name: str, replicas: int, key: str) -> CachedPool:
        metadata = Metadata(name=name, namespace=self._view.namespace)
        body: Json = {
            "apiVersion": WORKER_POOLS.api_version,
            "kind": WORKER_POOLS.kind,
            "metadata": {"name": name, "namespace": self._view.namespace},
            "spec": {"serviceRef": {"name": service.metadata.name}, "replicas": _check_replicas(name, replicas)},
        }
        if key:
            body = add_notes(body, metadata, [key])
        try:
            return await self._store.create(self._view.directory.pools, body)
        except AlreadyExistsError:
            found = await self._store.get(self._view.directory.pools, name, self._view.namespace)
        if found is not None and found.metadata.deletion_timestamp is not None:
            raise OcciConflictError(
                ConflictCause.CONCURRENT_CHANGE,
                f"WorkerPool {name} is being deleted: try again when its workers are gone",
            )
        if found is None or found.service != service.metadata.name:
            raise OcciConflictError(
                ConflictCause.AMBIGUOUS_COMPONENT,
                f"WorkerPool {name} belongs to another service: create one of {service.metadata.name} first",
            )
        return found


def _check_replicas(name: str, replicas: int) -> int:
    if replicas > MAX_REPLICAS:
        raise OcciError(400, f"{name}: a pool has at most {MAX_REPLICAS} workers, not {replicas}")
    return replicas
