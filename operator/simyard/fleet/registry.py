# SPDX-License-Identifier: Apache-2.0
"""The caches of the API server's objects, with their indexes."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeVar

import orjson

from simyard.api import names
from simyard.api.base import ApiModel, Json, OwnerReference
from simyard.api.cloud_site import CloudSite
from simyard.api.kept_metadata import select_metadata, strip_metadata
from simyard.api.licence import Licence
from simyard.api.service_action import ServiceAction
from simyard.api.study import Study
from simyard.api.usage import Usage
from simyard.api.worker import Worker, WorkerSpec
from simyard.api.worker_pool import WorkerPool
from simyard.kube.cache import ALL_NAMESPACES, Cache, HasMetadata
from simyard.plan.actions import is_finished
from simyard.plan.licence import get_licence_key
from simyard.plan.queued_action import QueuedAction, read_action
from simyard.plan.service import PublishedService, read_service
from simyard.plan.studies.study import is_finished as is_finished_study
from simyard_adapter.wire import name_pool_user, name_standalone_user, name_worker_queue
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import NotFoundError

_MAX_GONE = 50_000
_MAX_SHARED = 4096


def get_time() -> datetime:
    """Return the present time in UTC."""
    return datetime.now(UTC)


T = TypeVar("T", bound=HasMetadata)
M = TypeVar("M", bound=ApiModel)


def find_removed(old: T | None, new: T | None) -> T | None:
    """Return the object that a change removed; None if the change removed no object.

    An object is removed if it was deleted, or if a new object has its name.
    """
    return old if old is not None and (new is None or new.metadata.uid != old.metadata.uid) else None


def format_key(item: HasMetadata) -> str:
    """Return ``namespace/name`` of an object, as in indexes and logs."""
    return f"{item.metadata.namespace}/{item.metadata.name}"


def get_pool_uid(worker: Worker) -> str:
    """Return the uid of the pool that owns a worker; empty for a worker without a pool."""
    owner = worker.metadata.controller
    return owner.uid if owner is not None and owner.kind == names.WORKER_POOLS.kind else ""


def get_broker_user(worker: Worker) -> str:
    """Return the broker user of a worker, with whose logins the adapter connects."""
    pool_uid = get_pool_uid(worker)
    return name_pool_user(pool_uid) if pool_uid else name_standalone_user(worker.metadata.uid)


def get_queue(worker: Worker) -> str:
    """Return the name of the worker's queue at the broker."""
    return name_worker_queue(get_broker_user(worker), worker.metadata.uid)


def format_service_key(worker_or_pool: Worker | WorkerPool) -> str:
    """Return ``namespace/name`` of the SimulationService of a worker or pool."""
    return f"{worker_or_pool.metadata.namespace}/{worker_or_pool.spec.service_ref.name}"


def format_target_key(kind: str, namespace: str, name: str) -> str:
    """Return the key of a target in the indexes of ServiceActions and Studies."""
    return f"{kind}/{namespace}/{name}"


def list_target_keys(worker: Worker) -> list[str]:
    """Return the keys of all targets to which a worker belongs: the Worker, its pool, and its service."""
    namespace, owner = worker.metadata.namespace, worker.metadata.controller
    keys = [
        format_target_key(names.WORKERS.kind, namespace, worker.metadata.name),
        f"{names.SIMULATION_SERVICES.kind}/{format_service_key(worker)}",
    ]
    if owner is not None:
        keys.append(format_target_key(owner.kind, namespace, owner.name))
    return keys


class _WorkerReader:
    """Parser of Workers. To save memory, Workers with equal specs or owners share one copy of them."""

    def __init__(self) -> None:
        self._specs: OrderedDict[bytes, WorkerSpec] = OrderedDict()
        self._owners: OrderedDict[bytes, OwnerReference] = OrderedDict()

    def __call__(self, raw: Json) -> Worker:
        metadata = select_metadata(raw["metadata"])
        owners = [_shared(self._owners, item, OwnerReference) for item in metadata.get("ownerReferences") or []]
        spec = _shared(self._specs, raw["spec"], WorkerSpec)
        return Worker.model_validate({**raw, "metadata": {**metadata, "ownerReferences": owners}, "spec": spec})


def _shared(known: OrderedDict[bytes, M], raw: Json, kind: type[M]) -> M:
    key = orjson.dumps(raw)
    if (found := known.get(key)) is None:
        found = known[key] = kind.model_validate(raw)
        if len(known) > _MAX_SHARED:
            known.popitem(last=False)
    return found


class Registry:
    """The caches of all kinds. Their indexes save each pass a scan of all objects."""

    def __init__(self, client: KubeClient, namespaces: Sequence[str] = ALL_NAMESPACES) -> None:
        self.client = client
        self.namespaces = tuple(namespaces)
        self.sites = Cache(client, names.CLOUD_SITES, CloudSite.model_validate)
        self.services: Cache[PublishedService] = Cache(
            client,
            names.SIMULATION_SERVICES,
            lambda raw: read_service(strip_metadata(raw)),
            indexes={"licence": lambda service: filter(None, [get_licence_key(service.service)])},
            namespaces=namespaces,
        )
        self.pools = Cache(
            client,
            names.WORKER_POOLS,
            lambda raw: WorkerPool.model_validate(strip_metadata(raw)),
            indexes={"service": lambda pool: [format_service_key(pool)], "uid": lambda pool: [pool.metadata.uid]},
            namespaces=namespaces,
        )
        self.workers = Cache(
            client,
            names.WORKERS,
            _WorkerReader(),
            indexes={
                "uid": lambda worker: [worker.metadata.uid],
                "pool": lambda worker: [get_pool_uid(worker)],
                "site": lambda worker: [worker.spec.site],
                "service": lambda worker: [format_service_key(worker)],
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
        self.studies = Cache(
            client,
            names.STUDIES,
            lambda raw: Study.model_validate(strip_metadata(raw)),
            indexes={"uid": lambda study: [study.metadata.uid], "target": _open_target_of_study},
            namespaces=namespaces,
        )
        self.licences = Cache(client, names.LICENCES, Licence.model_validate)
        self.usages = Cache(client, names.USAGES, Usage.model_validate, namespaces=namespaces)
        self.caches = (
            *(self.sites, self.services, self.pools, self.workers, self.actions, self.studies),
            *(self.licences, self.usages),
        )
        self.chunks: Counter[str] = Counter()
        """Number of chunks of studies that each worker has, by its uid; the studies count them."""
        self._gone: OrderedDict[str, datetime] = OrderedDict()
        self._users_of_gone: dict[str, str] = {}
        self.workers.subscribe(self._note_gone)

    async def wait_until_synced(self) -> None:
        """Wait until every cache has listed all objects."""
        for cache in self.caches:
            await cache.synced.wait()

    async def run(self) -> None:
        """Keep the caches up to date until cancelled."""
        async with asyncio.TaskGroup() as group:
            for cache in self.caches:
                group.create_task(cache.run(), name=f"cache of {cache.resource.plural}")

    def find_worker(self, uid: str) -> Worker | None:
        """Return the Worker with a uid, if it is in the cache."""
        return next(iter(self.workers.list_by("uid", uid)), None)

    def may_run(self, worker_uid: str, study: Study) -> bool:
        """Return true unless a Worker in the cache does not belong to the target of a study."""
        worker, target = self.find_worker(worker_uid), study.spec.target
        key = format_target_key(target.kind, study.metadata.namespace, target.name)
        return worker is None or key in list_target_keys(worker)

    def find_action(self, uid: str) -> QueuedAction | None:
        """Return the ServiceAction with a uid, if it is in the cache."""
        return next(iter(self.actions.list_by("uid", uid)), None)

    def find_study(self, uid: str) -> Study | None:
        """Return the Study with a uid, if it is in the cache."""
        return next(iter(self.studies.list_by("uid", uid)), None)

    def list_studies_of_pool(self, pool: WorkerPool) -> list[Study]:
        """Return the studies on a pool that have not ended."""
        key = format_target_key(names.WORKER_POOLS.kind, pool.metadata.namespace, pool.metadata.name)
        return self.studies.list_by("target", key)

    def list_target_workers(self, kind: str, namespace: str, name: str) -> list[Worker]:
        """Return the Workers of a target: one Worker, or all Workers of a pool or of a service."""
        if kind == names.WORKERS.kind:
            worker = self.workers.get(namespace, name)
            return [worker] if worker is not None else []
        if kind == names.SIMULATION_SERVICES.kind:
            return self.workers.list_by("service", f"{namespace}/{name}")
        pool = self.pools.get(namespace, name)
        return self.workers.list_by("pool", pool.metadata.uid) if pool is not None else []

    def find_service(self, worker_or_pool: Worker | WorkerPool) -> PublishedService | None:
        """Return the service of a worker or pool, if it exists."""
        return self.services.get(worker_or_pool.metadata.namespace, worker_or_pool.spec.service_ref.name)

    def find_target_service(self, action: ServiceAction | Study) -> PublishedService | None:
        """Return the service of the target of an action or study, if both exist."""
        namespace, target = action.metadata.namespace, action.spec.target
        if target.kind == names.SIMULATION_SERVICES.kind:
            return self.services.get(namespace, target.name)
        item = (self.workers if target.kind == names.WORKERS.kind else self.pools).get(namespace, target.name)
        return self.find_service(item) if item is not None else None

    def find_sender(self, worker_uid: str) -> str:
        """Return the broker user of a Worker; empty if the Worker is unknown.

        The registry remembers the users of Workers that were deleted recently.
        """
        worker = self.find_worker(worker_uid)
        return get_broker_user(worker) if worker is not None else self._users_of_gone.get(worker_uid, "")

    async def fetch_target(self, action: ServiceAction | Study) -> None:
        """Read the target of an action or study, and its service, from the API server into the caches."""
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

    async def fetch_whole_action(self, action: QueuedAction) -> QueuedAction:
        """Return an action with all its parameters; if the cache left them out, read them from the API server.

        Parameters that are too large for a message (``excess``) stay left out.

        Raises:
            NotFoundError: the action was deleted.
        """
        if not action.left_out or action.excess:
            return action
        metadata = action.metadata
        read = read_action(await self.client.get(names.SERVICE_ACTIONS, metadata.name, metadata.namespace), whole=True)
        if read.metadata.uid != metadata.uid:
            raise NotFoundError(404, "NotFound", "another action has this name now")
        return read

    async def fetch_action(self, action: QueuedAction) -> None:
        """Read an action from the API server into the cache; forget it if it was deleted."""
        metadata = action.metadata
        try:
            self.actions.learn(await self.client.get(names.SERVICE_ACTIONS, metadata.name, metadata.namespace))
        except NotFoundError:
            self.actions.forget(action)

    async def fetch_study(self, study: Study) -> None:
        """Read a study from the API server into the cache; forget it if it was deleted."""
        metadata = study.metadata
        try:
            self.studies.learn(await self.client.get(names.STUDIES, metadata.name, metadata.namespace))
        except NotFoundError:
            self.studies.forget(study)

    def get_gone_since(self, uid: str) -> datetime | None:
        """Return the time at which this process learnt that a Worker is deleted; None if it has not learnt this."""
        return self._gone.get(uid)

    async def fetch_worker(self, namespace: str, name: str, uid: str) -> None:
        """Read a Worker from the API server: put it into the cache, or record that it is deleted."""
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
        """Record the broker user and the deletion of a deleted Worker."""
        if (left := find_removed(old, new)) is not None:
            self._users_of_gone[left.metadata.uid] = get_broker_user(left)
            self._gone_now(left.metadata.uid)

    def _gone_now(self, uid: str) -> None:
        self._gone.setdefault(uid, get_time())
        while len(self._gone) > _MAX_GONE:
            forgotten, _ = self._gone.popitem(last=False)
            self._users_of_gone.pop(forgotten, None)


def _open_target(action: ServiceAction) -> list[str]:
    target = action.spec.target
    return [] if is_finished(action) else [format_target_key(target.kind, action.metadata.namespace, target.name)]


def _open_target_of_study(study: Study) -> list[str]:
    target = study.spec.target
    if is_finished_study(study):
        return []
    return [format_target_key(target.kind, study.metadata.namespace, target.name)]


def _open_worker(action: ServiceAction) -> list[str]:
    return [action.status.worker_uid] if action.status.worker_uid and not is_finished(action) else []
