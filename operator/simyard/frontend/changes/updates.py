# SPDX-License-Identifier: Apache-2.0
"""Updates and deletes entities by changes of the objects behind them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TypeVar

from simyard.api.base import Json
from simyard.api.names import (
    ANNOTATION_LEAVES,
    ANNOTATION_OCCI_ATTRIBUTES,
    OCCI_MIXINS,
    WORKER_POOLS,
    WORKERS,
    Reason,
)
from simyard.api.occi import OcciLink
from simyard.frontend.access import Access, Permission
from simyard.frontend.backend import Precondition
from simyard.frontend.changes.creation import (
    Creation,
    build_kept_annotation,
)
from simyard.frontend.changes.machine_fields import check_template, replace_template
from simyard.frontend.changes.scaling import Scaling
from simyard.frontend.changes.storing import ObjectStore, add_check, for_each, translate_api_error
from simyard.frontend.changes.text_limits import MAX_LINK_CHARACTERS, check_lengths
from simyard.frontend.changes.written import ReportedValues, record_write
from simyard.frontend.entities.catalogue import PREFIX, RESOURCE_TPL_SCHEME
from simyard.frontend.entities.computes import (
    AMQPLINKS,
    CORES,
    HOSTNAME,
    MEMORY,
    OPENSTACK_KEY_VALUE,
    OPENSTACK_USER_DATA_VALUE,
    SSH_PUBLIC_KEY,
    USER_DATA_VALUE,
    read_kept_attributes,
)
from simyard.frontend.entities.mixins import Mixins
from simyard.frontend.entities.networks import NETWORKINTERFACES, NETWORKS
from simyard.frontend.entities.services import COMPONENTLINKS
from simyard.frontend.entities.targets import split_path
from simyard.frontend.entities.view import View
from simyard.frontend.exchange import Identity
from simyard.kube.cache import Cache
from simyard.occi.conflicts import ConflictCause, OcciConflictError
from simyard.occi.errors import OcciError
from simyard.occi.model import SUMMARY, TITLE, Entity, Value
from simyard.occi.validation import QUEUE, Update, make_queue_target
from simyard.serving.attributes import Attributes
from simyard.serving.objects import CachedPool, CachedWorker
from simyard_sites.kubernetes.errors import ConflictError

T = TypeVar("T", CachedWorker, CachedPool, OcciLink)
_SIZE = (CORES, MEMORY)
_ONCE = (SSH_PUBLIC_KEY, USER_DATA_VALUE, OPENSTACK_USER_DATA_VALUE, OPENSTACK_KEY_VALUE)
_LEAVING = (Reason.DRAINING, Reason.DRAINED)


@dataclass(slots=True)
class _Deletion:
    """The objects that a request deletes or changes, sorted by what the frontend does with them.

    Attributes:
        alone: Workers without a pool, which are deleted.
        of_pools: Workers by the names of their pools; these pools are scaled in.
        pools: pools that are deleted.
        links: links that clients made.
        paths: the paths of all entities that are deleted.
        kept: the reasons why clients cannot delete some of the entities.
    """

    alone: list[CachedWorker] = field(default_factory=list)
    of_pools: dict[str, list[CachedWorker]] = field(default_factory=dict)
    pools: list[CachedPool] = field(default_factory=list)
    links: list[OcciLink] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)


class EntityChanges:
    """The writer of updates and deletions."""

    def __init__(
        self,
        view: View,
        store: ObjectStore,
        access: Access,
        creation: Creation,
        mixins: Mixins,
        scaling: Scaling,
        attributes: Attributes,
    ) -> None:
        self._view = view
        self._store = store
        self._access = access
        self._creation = creation
        self._mixins = mixins
        self._scaling = scaling
        self._attributes = attributes

    async def update(
        self, identity: Identity, entity: Entity, update: Update, check: Precondition | None = None
    ) -> Entity:
        """Change an entity: see :meth:`simyard.frontend.backend.Backend.update`.

        If a part of the change is not permitted, the method writes nothing.
        """
        path = entity.path
        worker = self._view.find_worker(path)
        self._check_mixins(worker, update)
        added = [mixin.id for mixin in update.mixins if mixin.user]
        removed = [name for name in update.dissociated if not name.startswith(RESOURCE_TPL_SCHEME)]
        if added or removed:
            await self._access.check(identity, Permission("patch", OCCI_MIXINS))
        if split_path(path)[0] in (NETWORKS, NETWORKINTERFACES) and (
            update.attributes or update.removed or update.title
        ):
            raise OcciError(403, f"{path}: its site defines this entity; it cannot be changed over OCCI")
        if worker is not None:
            own = update if path == self._view.get_path(worker) else self._of_its_link(path, worker, update)
            await self._update_worker(identity, worker, own, check)
        elif (link := self._view.link(path)) is not None:
            await self._update_link(link, update, check)
        elif update.attributes or update.removed or update.title or update.summary:
            said = ", ".join(sorted(update.attributes)) or "its title and summary"
            raise OcciError(403, f"{path}: {said} comes from its SimulationService or WorkerPool: change it there")
        await self._mixins.remove_from_entity(removed, path)
        await self._mixins.add_to_entity(added, path)
        await self._creation.create_links(update.links, path)
        changed = self._view.find_entity(path)
        if changed is None:
            raise OcciError(404, f"{path} has been deleted meanwhile")
        return changed

    async def delete(
        self, identity: Identity, entities: Sequence[Entity], key: str = "", check: Precondition | None = None
    ) -> None:
        """Delete entities. First write the ``key`` into their objects, so that other frontends see the request.

        The deletion of a compute of a pool also scales the pool in by one. Otherwise the pool would create a new
        worker. The three steps are: mark the Worker for deletion, scale the pool, delete the Worker. If the frontend
        stops after any of these steps, the pool still removes this worker, and no other worker. The method calls
        ``check`` for such a compute before it marks the Worker; later changes do not stop the deletion.

        Some entities are deleted only together with another entity: the amqplink of a compute, and a componentlink. An
        application belongs to its vendor. The method refuses a request that contains only such entities. If the request
        also contains other entities, it skips such entities.

        Raises:
            OcciError: 403, clients cannot delete any of the entities, or the user may not scale the pool.
        """
        deletion = self._plan_deletion(entities)
        if deletion.kept and not deletion.paths:
            raise OcciError(403, deletion.kept[0])
        if deletion.of_pools:
            await self._access.check(identity, Permission("patch", WORKER_POOLS))
        if key:
            await self._note(deletion, key, check)
        for pool_name, workers in deletion.of_pools.items():
            if await self._scale_in(pool_name, workers, check):
                check = None
        workers = [*deletion.alone, *(worker for group in deletion.of_pools.values() for worker in group)]
        gone = set(deletion.paths)
        dangling = (link for link in self._view.links if link.spec.source in gone or link.spec.target in gone)
        cache = self._view.directory
        await for_each(workers, lambda worker: self._store.delete(cache.workers, worker, check))
        await for_each(deletion.pools, lambda pool: self._store.delete(cache.pools, pool, check))
        await for_each(deletion.links, lambda link: self._store.delete(self._view.links, link, check))
        await for_each(list(dangling), lambda link: self._store.delete(self._view.links, link))
        await self._mixins.forget_entities(deletion.paths)

    def is_permanent(self, path: str) -> bool:
        """Return true if no client can delete the entity."""
        location, _ = split_path(path)
        own = self._view.find_worker(path) is not None and location == AMQPLINKS
        is_derived = location in (COMPONENTLINKS, NETWORKS, NETWORKINTERFACES)
        return own or is_derived or self._view.find_service(path) is not None

    # Updates

    def _check_mixins(self, worker: CachedWorker | None, update: Update) -> None:
        for mixin in update.mixins:
            if mixin.user:
                continue
            if worker is None:
                raise OcciConflictError(
                    ConflictCause.FIXED_AT_CREATION,
                    f"{mixin.id} is a mixin of the provider: clients can neither add nor remove it",
                )
            check_template(mixin, worker, self._view.get_service(worker.service))

    def _of_its_link(self, path: str, worker: CachedWorker, update: Update) -> Update:
        """Return the part of an update that applies to the amqplink of a Worker: attributes of its service."""
        brought = self._view.model.collect_specs([mixin.id for mixin in update.mixins])
        values = {name: value for name, value in update.attributes.items() if name.startswith(PREFIX)}
        others = sorted(
            name
            for name, value in update.attributes.items()
            if name not in values and not (name in brought and brought[name].default == value)
        )
        if others or update.title:
            said = ", ".join(others) or "the title"
            raise OcciError(403, f"{path}: {said} cannot change here; change {self._view.get_path(worker)} instead")
        return Update(values)

    async def _update_worker(
        self, identity: Identity, worker: CachedWorker, update: Update, check: Precondition | None
    ) -> None:
        for name in _SIZE:
            if name in update.attributes:
                raise OcciConflictError(
                    ConflictCause.FIXED_AT_CREATION,
                    f"attribute {name}: no site can resize a machine; delete it and create another",
                )
        for name in _ONCE:
            if name in update.attributes:
                raise OcciConflictError(
                    ConflictCause.FIXED_AT_CREATION,
                    f"attribute {name}: is set when a compute is created; delete this one and create another with it",
                )
        values = {
            name.removeprefix(PREFIX): value for name, value in update.attributes.items() if name.startswith(PREFIX)
        }
        change = self._worker_change(worker, update)
        if change:
            await self._access.check(identity, Permission("patch", WORKERS, worker.metadata.name))
        for name in values:
            await self._access.check(
                identity, Permission("update", WORKERS, worker.metadata.name, ("attributes", name))
            )  # fmt: skip
        if values:
            service = self._view.get_service(worker.service)
            if service is None:
                raise OcciConflictError(
                    ConflictCause.SERVICE_GONE, f"{worker.metadata.name}: its SimulationService does not exist any more"
                )
            await self._attributes.assign(worker, service, values, PREFIX.rstrip("."))
            known = self._view.values.get_values(worker)
            observed = {name: known[name] for name in values if name in known}
            newest = max((value.time for value in observed.values()), default=0.0)
            reported = {name: value.value for name, value in observed.items()}
            record_write(ReportedValues(worker.metadata.uid, reported, newest))
        if change:

            def change_now(now: CachedWorker) -> Json | None:
                return self._worker_change(now, update) or None

            await self._store.change(self._view.directory.workers, worker, add_check(check, change_now))

    @staticmethod
    def _worker_change(worker: CachedWorker, update: Update) -> Json:
        """Return the merge patch of a Worker; a field that is missing in a full update returns to its default."""
        check_lengths(
            {
                TITLE: update.title or "",
                SUMMARY: update.summary or "",
                HOSTNAME: str(update.attributes.get(HOSTNAME, "")),
            }
        )
        spec: Json = {}
        if HOSTNAME in update.attributes:
            spec["hostname"] = str(update.attributes[HOSTNAME])
        elif HOSTNAME in update.removed and worker.own.hostname:
            spec["hostname"] = None
        for name, text, present in (
            ("title", update.title, worker.own.title),
            ("summary", update.summary, worker.own.summary),
        ):
            if text is not None and text != present:
                spec[name] = text or None
        before = read_kept_attributes(worker)
        kept: dict[str, Value] = {name: value for name, value in before.items() if name not in update.removed}
        known = (HOSTNAME, *_SIZE, *_ONCE)
        kept.update(
            (name, value)
            for name, value in update.attributes.items()
            if name not in known and not name.startswith(PREFIX)
        )
        change: Json = {"spec": spec} if spec else {}
        annotations: Json = dict(replace_template(worker, update.mixins))
        if kept != before:
            annotations[ANNOTATION_OCCI_ATTRIBUTES] = build_kept_annotation(kept) if kept else None
        return change | ({"metadata": {"annotations": annotations}} if annotations else {})

    async def _update_link(self, link: OcciLink, update: Update, check: Precondition | None) -> None:
        attributes: dict[str, Value | None] = {**dict.fromkeys(update.removed), **update.attributes}
        spec: Json = {"attributes": attributes} if attributes else {}
        if update.title is not None:
            check_lengths({TITLE: update.title}, MAX_LINK_CHARACTERS)
            spec["title"] = update.title
        if QUEUE in update.attributes and link.spec.target == make_queue_target(link.spec.attributes.get(QUEUE)):
            spec["target"] = make_queue_target(update.attributes[QUEUE])
        if spec:
            await self._store.change(self._view.links, link, add_check(check, lambda _: {"spec": spec}))

    async def _merge(self, worker: CachedWorker, change: Mapping[str, object]) -> None:
        try:
            await self._store.merge(self._view.directory.workers, worker, dict(change))
        except ConflictError as error:
            raise translate_api_error(error, worker.metadata.name) from None

    # Deletions

    def _plan_deletion(self, entities: Iterable[Entity]) -> _Deletion:
        deletion = _Deletion()
        for entity in entities:
            path = entity.path
            if self.is_permanent(path):
                deletion.kept.append(_why_kept(entity))
                continue
            if (worker := self._view.find_worker(path)) is not None:
                owner = worker.pool
                (deletion.of_pools.setdefault(owner, []) if owner else deletion.alone).append(worker)
            elif (link := self._view.link(path)) is not None:
                deletion.links.append(link)
            elif (pool := self._view.find_pool(path)) is not None:
                deletion.pools.append(pool)
            deletion.paths.append(path)
        return deletion

    async def _note(self, deletion: _Deletion, key: str, check: Precondition | None) -> None:
        async def note(cache: Cache[T], item: T) -> None:
            try:
                await self._store.change(cache, item, add_check(check, lambda _: {}), key)
            except OcciError as error:
                if error.status != 404:
                    raise

        cache = self._view.directory
        await for_each([*deletion.alone, *chain(*deletion.of_pools.values())], partial(note, cache.workers))
        await for_each(deletion.pools, partial(note, cache.pools))
        await for_each(deletion.links, partial(note, self._view.links))

    async def _scale_in(self, pool_name: str, workers: Sequence[CachedWorker], check: Precondition | None) -> bool:
        """Scale a pool in by its Workers that are deleted; return true if these Workers are marked."""
        pool = self._view.directory.pools.get(self._view.namespace, pool_name)
        staying = {worker.metadata.uid: worker for worker in workers if worker.state.reason not in _LEAVING}
        if pool is None or pool.metadata.deletion_timestamp is not None:
            return False
        leaves: Json = {"metadata": {"annotations": {ANNOTATION_LEAVES: "true"}}}

        async def mark(worker: CachedWorker) -> None:
            try:
                if check is None:
                    await self._merge(worker, leaves)
                else:
                    await self._store.change(self._view.directory.workers, worker, add_check(check, lambda _: leaves))
            except OcciError as error:
                if error.status != 404:
                    raise
                del staying[worker.metadata.uid]  # the request that deleted it has scaled the pool

        marks = check is not None or len(staying) < self._view.directory.workers.count("user", pool.user)
        if marks:
            await for_each(list(staying.values()), mark)
        if staying:
            await self._scaling.scale_in(pool, list(staying))
        return marks and bool(staying)


def _why_kept(entity: Entity) -> str:
    kind = entity.kind.rpartition("#")[2]
    if kind == "application":
        return f"{entity.path}: an application is its vendor's; delete its components, or its computes"
    if kind == "network":
        return f"{entity.path}: a network is its site's: it goes with the CloudSite"
    return f"{entity.path}: this {kind} goes with the entity that it belongs to; delete that"
