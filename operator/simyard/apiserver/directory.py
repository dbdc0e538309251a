"""Who is called, with which interface, and which queue reaches it: local copies of three resources."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from simyard.api.names import SIMULATION_SERVICES, WORKER_POOLS, WORKERS
from simyard.apiserver.objects import CachedPool, CachedService, CachedWorker, Target
from simyard.apiserver.routes import Call
from simyard.apiserver.status import Cause, StatusError, StatusReason, Subject, from_api, not_found, unavailable
from simyard.kube.cache import ALL_NAMESPACES, Cache
from simyard_adapter import wire
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import ApiError, NotFoundError

GET_SECONDS = 5.0
T = TypeVar("T", CachedWorker, CachedPool, CachedService)


@dataclass(frozen=True, slots=True)
class Destination:
    """A queue, the broker user whose answer counts, and the worker or the pool that this user speaks for."""

    queue: str
    user: str
    worker: str = ""
    pool: str = ""

    @classmethod
    def of_worker(cls, worker: CachedWorker) -> Destination:
        """The own queue of a worker."""
        return cls(worker.queue, worker.user, worker=worker.metadata.name)

    def includes(self, worker: str) -> bool:
        """Whether a worker of that name may answer: the one that was asked, or one in a slot of the pool."""
        pool, _, slot = worker.rpartition("-")
        return worker == self.worker if self.worker else pool == self.pool and slot.isascii() and slot.isdigit()


class Directory:
    """Finds targets without asking the API server, except once before it says that there is none.

    ``namespaces``: these alone; ``service``: that one alone, with its workers.
    """

    def __init__(self, client: KubeClient, namespaces: Sequence[str] = ALL_NAMESPACES, service: str = "") -> None:
        self._client = client
        self._namespaces = namespaces
        self.workers: Cache[CachedWorker] = Cache(
            client,
            WORKERS,
            CachedWorker.parse,
            indexes={
                "uid": lambda worker: (worker.metadata.uid,),
                "user": lambda worker: (worker.user,),
                "service": lambda worker: (worker.service_key,),
                "ready": lambda worker: (worker.user,) if worker.state.good else (),
                "alone": lambda worker: (worker.service_key,) if worker.state.good and not worker.pool else (),
            },
            namespaces=namespaces,
            fields=f"spec.serviceRef.name={service}" if service else "",
        )
        self.pools: Cache[CachedPool] = Cache(
            client,
            WORKER_POOLS,
            CachedPool.parse,
            indexes={
                "service": lambda pool: (pool.service_key,),
                "uid": lambda pool: (pool.metadata.uid,),
            },
            namespaces=namespaces,
        )
        self.services: Cache[CachedService] = Cache(
            client,
            SIMULATION_SERVICES,
            CachedService.parse,
            indexes={"uid": lambda item: (item.metadata.uid,)},
            namespaces=namespaces,
            fields=f"metadata.name={service}" if service else "",
        )

    @property
    def synced(self) -> bool:
        """Whether all copies are complete."""
        return all(cache.synced.is_set() for cache in (self.workers, self.pools, self.services))

    def age_seconds(self) -> float:
        """How long ago all copies were last known to be kept true."""
        return max(cache.age_seconds() for cache in (self.workers, self.pools, self.services))

    async def run(self) -> None:
        """Keep the copies true."""
        async with asyncio.TaskGroup() as group:
            for cache in (self.workers, self.pools, self.services):
                group.create_task(cache.run(), name=f"cache of {cache.resource.plural}")

    async def target(self, call: Call) -> Target:
        """The object that a call names.

        Raises:
            StatusError: there is none, or the API server cannot say.
        """
        if call.resource == WORKERS:
            return await self._find(self.workers, call.namespace, call.name)
        if call.resource == WORKER_POOLS:
            return await self._find(self.pools, call.namespace, call.name)
        return await self._find(self.services, call.namespace, call.name)

    async def service_of(self, target: Target) -> CachedService:
        """The service behind a target; errors as for :meth:`target`."""
        if isinstance(target, CachedService):
            return target
        return await self._find(self.services, target.metadata.namespace, target.service)

    def worker_by_uid(self, uid: str) -> CachedWorker | None:
        """The worker of that uid."""
        return next(iter(self.workers.by("uid", uid)), None)

    def workers_of(self, target: Target) -> list[CachedWorker]:
        """The workers that a target stands for, by name."""
        match target:
            case CachedWorker():
                return [target]
            case CachedPool():
                found = self.workers.by("user", target.user)
            case CachedService():
                found = self.workers.by("service", target.key)
        return sorted(found, key=lambda worker: worker.metadata.name)

    def destination(self, target: Target) -> Destination:
        """The queue on which a ready worker of the target takes an action.

        Of a service's pools, one is drawn in proportion to their ready workers.

        Raises:
            StatusError: no worker is ready, and why not.
        """
        pools: list[CachedPool]
        alone: list[CachedWorker] = []
        match target:
            case CachedWorker():
                if not target.state.good:
                    raise _not_ready(target.subject, f"{target.subject} is not ready", [target])
                return Destination.of_worker(target)
            case CachedPool():
                pools = [target]
            case CachedService():
                pools = self.pools.by("service", target.key)
                alone = self.workers.by("alone", target.key)
        weights = [self.workers.count("ready", pool.user) for pool in pools] + [1] * len(alone)
        if not any(weights):
            raise _not_ready(target.subject, f"no worker of {target.subject} is ready", pools)
        choices: list[CachedPool | CachedWorker] = [*pools, *alone]
        chosen = random.choices(choices, weights)[0]  # noqa: S311 - it spreads load, it keeps no secret
        if isinstance(chosen, CachedWorker):
            return Destination.of_worker(chosen)
        return Destination(wire.pool_queue(chosen.user), chosen.user, pool=chosen.metadata.name)

    async def _find(self, cache: Cache[T], namespace: str, name: str) -> T:
        if (item := cache.get(namespace, name)) is not None:
            return item
        subject = Subject(cache.resource, name)
        if self._namespaces != ALL_NAMESPACES and namespace not in self._namespaces:
            message = f"this installation of Simyard does not watch the namespace {namespace} (watchNamespaces)"
            raise StatusError(StatusReason.FORBIDDEN, message, subject=subject)
        try:
            async with asyncio.timeout(GET_SECONDS):
                found = cache.learn(await self._client.get(cache.resource, name, namespace))
        except NotFoundError:
            raise not_found(subject) from None
        except ApiError as error:
            raise from_api(subject, error) from error
        except TimeoutError:
            message = f"the Kubernetes API has not answered within {GET_SECONDS:.0f} s"
            raise StatusError(StatusReason.TIMEOUT, message, subject=subject) from None
        if found is None:
            raise StatusError(StatusReason.INTERNAL_ERROR, f"{subject} cannot be read by this version", subject=subject)
        return found


def _not_ready(subject: Subject, problem: str, items: Iterable[CachedWorker | CachedPool]) -> StatusError:
    causes = [Cause(item.state.reason, f"{item.subject}: {item.state}") for item in items]
    reasons = "; ".join(cause.message for cause in causes[:3]) or "it has no WorkerPool"
    return unavailable(subject, f"{problem}: {reasons}", causes[:10])
