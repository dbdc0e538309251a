"""What the operator knows of the API server's objects."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeVar

import orjson

from simyard.api import names
from simyard.api.base import ApiModel, Json, OwnerReference
from simyard.api.cloud_site import CloudSite
from simyard.api.kept_metadata import kept_metadata, without_surplus
from simyard.api.licence import Licence
from simyard.api.service_action import ServiceAction
from simyard.api.usage import Usage
from simyard.api.worker import Worker, WorkerSpec
from simyard.api.worker_pool import WorkerPool
from simyard.kube.cache import ALL_NAMESPACES, Cache, HasMetadata
from simyard.plan.actions import is_finished
from simyard.plan.licence import licence_key
from simyard.plan.queued_action import QueuedAction, read_action
from simyard.plan.service import PublishedService, read_service
from simyard_adapter.wire import pool_user, standalone_user, worker_queue
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import NotFoundError

_MOST_GONE = 50_000
_MOST_SHARED = 4096


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


T = TypeVar("T", bound=HasMetadata)
M = TypeVar("M", bound=ApiModel)


def gone(old: T | None, new: T | None) -> T | None:
    """The object that a change removed: it was deleted, or another one took its name."""
    return old if old is not None and (new is None or new.metadata.uid != old.metadata.uid) else None


def key_text(item: HasMetadata) -> str:
    """``namespace/name`` of an object, as in indexes and logs."""
    return f"{item.metadata.namespace}/{item.metadata.name}"


def pool_uid_of(worker: Worker) -> str:
    """The uid of the pool that owns the worker; empty when it stands alone."""
    owner = worker.metadata.controller
    return owner.uid if owner is not None and owner.kind == names.WORKER_POOLS.kind else ""


def broker_user_of(worker: Worker) -> str:
    """The broker user that the worker's adapter is."""
    pool_uid = pool_uid_of(worker)
    return pool_user(pool_uid) if pool_uid else standalone_user(worker.metadata.uid)


def queue_of(worker: Worker) -> str:
    """The worker's queue at the broker."""
    return worker_queue(broker_user_of(worker), worker.metadata.uid)


def service_key(worker_or_pool: Worker | WorkerPool) -> str:
    """``namespace/name`` of its SimulationService."""
    return f"{worker_or_pool.metadata.namespace}/{worker_or_pool.spec.service_ref.name}"


def target_key(kind: str, namespace: str, name: str) -> str:
    """The key of a ServiceAction's target in the index."""
    return f"{kind}/{namespace}/{name}"


class _WorkerReader:
    """Parses Workers; those with equal specs and owners share them, as those of a pool do."""

    def __init__(self) -> None:
        self._specs: OrderedDict[bytes, WorkerSpec] = OrderedDict()
        self._owners: OrderedDict[bytes, OwnerReference] = OrderedDict()

    def __call__(self, raw: Json) -> Worker:
        metadata = kept_metadata(raw["metadata"])
        owners = [_shared(self._owners, item, OwnerReference) for item in metadata.get("ownerReferences") or []]
        spec = _shared(self._specs, raw["spec"], WorkerSpec)
        return Worker.model_validate({**raw, "metadata": {**metadata, "ownerReferences": owners}, "spec": spec})


def _shared(known: OrderedDict[bytes, M], raw: Json, kind: type[M]) -> M:
    key = orjson.dumps(raw)
    if (found := known.get(key)) is None:
        found = known[key] = kind.model_validate(raw)
        if len(known) > _MOST_SHARED:
            known.popitem(last=False)
    return found


class Registry:
    """The caches of all kinds, with the indexes that keep every pass from scanning."""

    def __init__(self, client: KubeClient, namespaces: Sequence[str] = ALL_NAMESPACES) -> None:
        self.client = client
        self.namespaces = tuple(namespaces)
        self.sites = Cache(client, names.CLOUD_SITES, CloudSite.model_validate)
        self.services: Cache[PublishedService] = Cache(
            client,
            names.SIMULATION_SERVICES,
            lambda raw: read_service(without_surplus(raw)),
            indexes={"licence": lambda service: filter(None, [licence_key(service.service)])},
            namespaces=namespaces,
        )
        self.pools = Cache(
            client,
            names.WORKER_POOLS,
            lambda raw: WorkerPool.model_validate(without_surplus(raw)),
            indexes={"service": lambda pool: [service_key(pool)], "uid": lambda pool: [pool.metadata.uid]},
            namespaces=namespaces,
        )
        self.workers = Cache(
            client,
            names.WORKERS,
            _WorkerReader(),
            indexes={
                "uid": lambda worker: [worker.metadata.uid],
                "pool": lambda worker: [pool_uid_of(worker)],
                "site": lambda worker: [worker.spec.site],
                "service": lambda worker: [service_key(worker)],
            },
            namespaces=namespaces,
        )
        self.actions: Cache[QueuedAction] = Cache(
            client,
            names.SERVICE_ACTIONS,
            read_action,
            indexes={
                "uid": lambda action: [action.metadata.uid],
                "target": _open_target,
                "worker": _open_worker,
                "open": lambda action: [] if is_finished(action) else [action.metadata.namespace],
                "finished": lambda action: [action.metadata.namespace] if is_finished(action) else [],
            },
            namespaces=namespaces,
        )
        self.licences = Cache(client, names.LICENCES, Licence.model_validate)
        self.usages = Cache(client, names.USAGES, Usage.model_validate, namespaces=namespaces)
        self.caches = (self.sites, self.services, self.pools, self.workers, self.actions, self.licences, self.usages)
        self._gone: OrderedDict[str, datetime] = OrderedDict()
        self._users_of_gone: dict[str, str] = {}
        self.workers.subscribe(self._note_gone)

    async def synced(self) -> None:
        """Wait until every cache has all objects."""
        for cache in self.caches:
            await cache.synced.wait()

    async def run(self) -> None:
        """Keep the caches true until cancelled."""
        async with asyncio.TaskGroup() as group:
            for cache in self.caches:
                group.create_task(cache.run(), name=f"cache of {cache.resource.plural}")

    def worker(self, uid: str) -> Worker | None:
        """The Worker of that uid."""
        return next(iter(self.workers.by("uid", uid)), None)

    def action(self, uid: str) -> QueuedAction | None:
        """The ServiceAction of that uid."""
        return next(iter(self.actions.by("uid", uid)), None)

    def service_of(self, worker_or_pool: Worker | WorkerPool) -> PublishedService | None:
        """The service of a worker or pool."""
        return self.services.get(worker_or_pool.metadata.namespace, worker_or_pool.spec.service_ref.name)

    def service_of_target(self, action: ServiceAction) -> PublishedService | None:
        """The service of what an action is called on, as far as both exist."""
        namespace, target = action.metadata.namespace, action.spec.target
        if target.kind == names.SIMULATION_SERVICES.kind:
            return self.services.get(namespace, target.name)
        item = (self.workers if target.kind == names.WORKERS.kind else self.pools).get(namespace, target.name)
        return self.service_of(item) if item is not None else None

    def sender(self, worker_uid: str) -> str:
        """The broker user that may speak for the Worker of that uid, also a while after it is gone; empty: nobody."""
        worker = self.worker(worker_uid)
        return broker_user_of(worker) if worker is not None else self._users_of_gone.get(worker_uid, "")

    async def look_for_target(self, action: ServiceAction) -> None:
        """Read what an action is called on, and its service, from the API server: the caches may lag behind."""
        namespace, target = action.metadata.namespace, action.spec.target
        service = target.name
        try:
            if target.kind != names.SIMULATION_SERVICES.kind:
                cache = self.workers if target.kind == names.WORKERS.kind else self.pools
                item = cache.learn(await self.client.get(cache.resource, target.name, namespace))
                service = item.spec.service_ref.name if item is not None else ""
            self.services.learn(await self.client.get(names.SIMULATION_SERVICES, service, namespace))
        except NotFoundError:
            return

    async def whole_action(self, action: QueuedAction) -> QueuedAction:
        """Return the action with all its parameters, from the API server where the cache leaves them out.

        Raises:
            NotFoundError: it is gone.
        """
        if not action.left_out or action.excess:
            return action
        metadata = action.metadata
        read = read_action(await self.client.get(names.SERVICE_ACTIONS, metadata.name, metadata.namespace), whole=True)
        if read.metadata.uid != metadata.uid:
            raise NotFoundError(404, "NotFound", "another action has its name")
        return read

    async def look_for_action(self, action: QueuedAction) -> None:
        """Read an action from the API server."""
        metadata = action.metadata
        try:
            self.actions.learn(await self.client.get(names.SERVICE_ACTIONS, metadata.name, metadata.namespace))
        except NotFoundError:
            self.actions.forget(action)

    def worker_gone(self, uid: str) -> datetime | None:
        """Since when the Worker of that uid is known to be gone; None when it is not known to be."""
        return self._gone.get(uid)

    async def look_for_worker(self, namespace: str, name: str, uid: str) -> None:
        """Ask the API server whether a Worker exists that the cache does not have; afterwards one of both knows."""
        try:
            raw = await self.client.get(names.WORKERS, name, namespace)
        except NotFoundError:
            self._gone_now(uid)
            return
        if raw["metadata"]["uid"] == uid:
            self.workers.learn(raw)
        else:
            self._gone_now(uid)

    def _note_gone(self, old: Worker | None, new: Worker | None) -> None:
        if (left := gone(old, new)) is not None:
            self._users_of_gone[left.metadata.uid] = broker_user_of(left)
            self._gone_now(left.metadata.uid)

    def _gone_now(self, uid: str) -> None:
        self._gone.setdefault(uid, now())
        while len(self._gone) > _MOST_GONE:
            forgotten, _ = self._gone.popitem(last=False)
            self._users_of_gone.pop(forgotten, None)


def _open_target(action: ServiceAction) -> list[str]:
    target = action.spec.target
    return [] if is_finished(action) else [target_key(target.kind, action.metadata.namespace, target.name)]


def _open_worker(action: ServiceAction) -> list[str]:
    return [action.status.worker_uid] if action.status.worker_uid and not is_finished(action) else []
