# SPDX-License-Identifier: Apache-2.0
"""Finds the targets of calls in local copies of workers, pools and services, and the queues that lead to them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from simyard.api.names import SIMULATION_SERVICES, WORKER_POOLS, WORKERS
from simyard.kube.cache import ALL_NAMESPACES, Cache
from simyard.serving.calls import ResourceCall
from simyard.serving.objects import CachedPool, CachedService, CachedWorker, Target
from simyard.serving.status import (
    Cause,
    StatusError,
    StatusReason,
    Subject,
    make_not_found_error,
    make_unavailable_error,
    translate_api_error,
)
from simyard_adapter import wire
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import ApiError, NotFoundError

GET_SECONDS = 5.0
T = TypeVar("T", CachedWorker, CachedPool, CachedService)


@dataclass(frozen=True, slots=True)
class Destination:
    """The destination of a request: a queue, the broker user that must answer, and its worker or pool."""

    queue: str
    user: str
    worker: str = ""
    pool: str = ""

    @classmethod
    def of_worker(cls, worker: CachedWorker) -> Destination:
        """Return the destination with a worker's own queue."""
        return cls(worker.queue, worker.user, worker=worker.metadata.name)

    def includes(self, worker: str) -> bool:
        """Return true if a worker of that name may answer: the asked worker, or a worker in a slot of the pool."""
        pool, _, slot = worker.rpartition("-")
        return worker == self.worker if self.worker else pool == self.pool and slot.isascii() and slot.isdigit()


class Directory:
    """The local copies of the objects that can be targets of calls.

    If the copies do not contain a target, the directory asks the API server once. ``namespaces`` restricts the copies
    to these namespaces, and ``service`` to one service with its pools and workers.
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
        """True after all copies have listed their objects."""
        return all(cache.synced.is_set() for cache in (self.workers, self.pools, self.services))

    def measure_age_seconds(self) -> float:
        """Return the age of the oldest copy in seconds (:meth:`~simyard.kube.cache.Cache.measure_age_seconds`)."""
        return max(cache.measure_age_seconds() for cache in (self.workers, self.pools, self.services))

    async def run(self) -> None:
        """Keep the copies up to date until cancelled."""
        async with asyncio.TaskGroup() as group:
            for cache in (self.workers, self.pools, self.services):
                group.create_task(cache.run(), name=f"cache of {cache.resource.plural}")

    async def find_target(self, call: ResourceCall) -> Target:
        """Return the object that a call names.

        Raises:
            StatusError: the object does not exist, or the API server does not answer.
        """
        if call.resource == WORKERS:
            return await self._find(self.workers, call.namespace, call.name)
        if call.resource == WORKER_POOLS:
            return await self._find(self.pools, call.namespace, call.name)
        return await self._find(self.services, call.namespace, call.name)

    async def find_service(self, target: Target) -> CachedService:
        """Return the service of a target. Raises the same errors as :meth:`find_target`."""
        if isinstance(target, CachedService):
            return target
        return await self._find(self.services, target.metadata.namespace, target.service)

    def find_worker_by_uid(self, uid: str) -> CachedWorker | None:
        """Return the worker with a uid; None if the copy has none."""
        return next(iter(self.workers.list_by("uid", uid)), None)

    def list_workers(self, target: Target) -> list[CachedWorker]:
        """Return the workers of a target, sorted by name."""
        match target:
            case CachedWorker():
                return [target]
            case CachedPool():
                found = self.workers.list_by("user", target.user)
            case CachedService():
                found = self.workers.list_by("service", target.key)
        return sorted(found, key=lambda worker: worker.metadata.name)

    def choose_destination(self, target: Target) -> Destination:
        """Return a destination at which a ready worker of the target accepts an action.

        For a service, the choice among its pools is random, in proportion to their ready workers.

        Raises:
            StatusError: no worker is ready; the message gives the reasons.
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
                pools = self.pools.list_by("service", target.key)
                alone = self.workers.list_by("alone", target.key)
        weights = [self.workers.count("ready", pool.user) for pool in pools] + [1] * len(alone)
        if not any(weights):
            raise _not_ready(target.subject, f"no worker of {target.subject} is ready", pools)
        choices: list[CachedPool | CachedWorker] = [*pools, *alone]
        chosen = random.choices(choices, weights)[0]  # noqa: S311 - it spreads load, it keeps no secret
        if isinstance(chosen, CachedWorker):
            return Destination.of_worker(chosen)
        return Destination(wire.name_pool_queue(chosen.user), chosen.user, pool=chosen.metadata.name)

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
            raise make_not_found_error(subject) from None
        except ApiError as error:
            raise translate_api_error(subject, error) from error
        except TimeoutError:
            message = f"the Kubernetes API did not answer within {GET_SECONDS:.0f} s; try again"
            raise StatusError(StatusReason.TIMEOUT, message, subject=subject) from None
        if found is None:
            raise StatusError(StatusReason.INTERNAL_ERROR, f"{subject} cannot be read by this version", subject=subject)
        return found


def _not_ready(subject: Subject, problem: str, items: Iterable[CachedWorker | CachedPool]) -> StatusError:
    causes = [Cause(item.state.reason, f"{item.subject}: {item.state}") for item in items]
    reasons = "; ".join(cause.message for cause in causes[:3]) or "it has no WorkerPool"
    return make_unavailable_error(subject, f"{problem}: {reasons}", causes[:10])
