"""Updates and deletions of entities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
from simyard.apiserver.attributes import Attributes
from simyard.apiserver.objects import CachedPool, CachedWorker
from simyard.frontend.access import Access, Question
from simyard.frontend.backend import Check
from simyard.frontend.catalogue import PREFIX
from simyard.frontend.computes import (
    AMQPLINKS,
    CORES,
    HOSTNAME,
    MEMORY,
    OPENSTACK_KEY_VALUE,
    OPENSTACK_USER_DATA_VALUE,
    SSH_PUBLIC_KEY,
    USER_DATA_VALUE,
    kept_attributes,
)
from simyard.frontend.creation import (
    Creation,
    kept_annotation,
)
from simyard.frontend.exchange import Identity
from simyard.frontend.limits import MOST_OF_LINKS, check_lengths
from simyard.frontend.mixins import Mixins
from simyard.frontend.networks import NETWORKINTERFACES, NETWORKS
from simyard.frontend.scaling import Scaling
from simyard.frontend.services import COMPONENTLINKS
from simyard.frontend.storing import Storing, each, refused
from simyard.frontend.view import View, split
from simyard.frontend.written import Told, note
from simyard.kube.cache import Cache
from simyard.occi.errors import OcciError
from simyard.occi.model import SUMMARY, TITLE, Entity, Value
from simyard.occi.validation import QUEUE, Update, target_of_queue
from simyard_sites.kubernetes.errors import ConflictError

T = TypeVar("T", CachedWorker, CachedPool, OcciLink)
_SIZE = (CORES, MEMORY)
_ONCE = (SSH_PUBLIC_KEY, USER_DATA_VALUE, OPENSTACK_USER_DATA_VALUE, OPENSTACK_KEY_VALUE)
_LEAVING = (Reason.DRAINING, Reason.DRAINED)


@dataclass(slots=True)
class _Leaving:
    """What a deletion ends, by what it is."""

    alone: list[CachedWorker] = field(default_factory=list)
    of_pools: dict[str, list[CachedWorker]] = field(default_factory=dict)
    pools: list[CachedPool] = field(default_factory=list)
    links: list[OcciLink] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)


class Changes:
    """Changes and deletes entities."""

    def __init__(
        self,
        view: View,
        storing: Storing,
        access: Access,
        creation: Creation,
        mixins: Mixins,
        scaling: Scaling,
        attributes: Attributes,
    ) -> None:
        self._view = view
        self._storing = storing
        self._access = access
        self._creation = creation
        self._mixins = mixins
        self._scaling = scaling
        self._attributes = attributes

    async def update(self, identity: Identity, entity: Entity, update: Update, check: Check | None = None) -> Entity:
        """See :class:`simyard.frontend.backend.Backend`. What is refused is refused before anything is changed."""
        path = entity.path
        self._check_mixins(update)
        if update.mixins or update.dissociated:
            await self._access.check(identity, Question("patch", OCCI_MIXINS))
        if split(path)[0] in (NETWORKS, NETWORKINTERFACES) and (update.attributes or update.removed or update.title):
            raise OcciError(403, f"{path}: is what its site says; it cannot be changed over OCCI")
        if (worker := self._view.worker(path)) is not None:
            own = update if path == self._view.path_of(worker) else self._of_its_link(path, worker, update)
            await self._update_worker(identity, worker, own, check)
        elif (link := self._view.link(path)) is not None:
            await self._update_link(link, update, check)
        elif update.attributes or update.removed or update.title or update.summary:
            said = ", ".join(sorted(update.attributes)) or "its title and summary"
            raise OcciError(403, f"{path}: {said} is what its SimulationService or WorkerPool says: change that")
        await self._mixins.take(update.dissociated, path)
        await self._mixins.give([mixin.id for mixin in update.mixins], path)
        await self._creation.link_all(update.links, path)
        changed = self._view.entity(path)
        if changed is None:
            raise OcciError(404, f"{path} has been deleted meanwhile")
        return changed

    async def delete(self, identity: Identity, entities: Sequence[Entity], key: str = "") -> None:
        """Delete entities. A ``key`` is noted in them first: whoever follows them sees which request has ended them.

        A compute of a pool is gone and stays gone: its pool is scaled in by one as well, so that nobody makes another
        in its place. For that the Worker is first marked as the one to go, then the pool is scaled, then the Worker is
        deleted: wherever this stops, the pool ends no other one for it.

        What belongs to another entity (the amqplink of a compute, a componentlink) goes with that, and an application
        is its vendor's: one of these alone is refused, and among others it is left as it is.

        Raises:
            OcciError: 403, there is nothing among them that a client can delete.
        """
        leaving = self._part(entities)
        if leaving.kept and not leaving.paths:
            raise OcciError(403, leaving.kept[0])
        if leaving.of_pools:
            await self._access.check(identity, Question("patch", WORKER_POOLS))
        if key:
            await self._note(leaving, key)
        for pool_name, workers in leaving.of_pools.items():
            await self._scale_in(pool_name, workers)
        workers = [*leaving.alone, *(worker for group in leaving.of_pools.values() for worker in group)]
        gone = set(leaving.paths)
        dangling = (link for link in self._view.links if link.spec.source in gone or link.spec.target in gone)
        links = {link.metadata.uid: link for link in (*leaving.links, *dangling)}.values()
        cache = self._view.directory
        await each(workers, lambda worker: self._storing.delete(cache.workers, worker))
        await each(leaving.pools, lambda pool: self._storing.delete(cache.pools, pool))
        await each(links, lambda link: self._storing.delete(self._view.links, link))
        await self._mixins.gone(leaving.paths)

    def stays(self, path: str) -> bool:
        """See :class:`simyard.frontend.backend.Backend`."""
        location, _ = split(path)
        own = self._view.worker(path) is not None and location == AMQPLINKS
        is_derived = location in (COMPONENTLINKS, NETWORKS, NETWORKINTERFACES)
        return own or is_derived or self._view.service(path) is not None

    # Updates

    @staticmethod
    def _check_mixins(update: Update) -> None:
        for mixin in update.mixins:
            if not mixin.user:
                raise OcciError(
                    409, f"{mixin.id} is chosen when a compute is made; delete this one and create another with it"
                )

    def _of_its_link(self, path: str, worker: CachedWorker, update: Update) -> Update:
        """What may change in the amqplink of a Worker: the attributes of its service, and mixins."""
        brought = self._view.model.specs([mixin.id for mixin in update.mixins])
        values = {name: value for name, value in update.attributes.items() if name.startswith(PREFIX)}
        others = sorted(
            name
            for name, value in update.attributes.items()
            if name not in values and not (name in brought and brought[name].default == value)
        )
        if others or update.title:
            said = ", ".join(others) or "the title"
            raise OcciError(403, f"{path}: {said} cannot change here; change {self._view.path_of(worker)} instead")
        return Update(values)

    async def _update_worker(
        self, identity: Identity, worker: CachedWorker, update: Update, check: Check | None
    ) -> None:
        for name in _SIZE:
            if name in update.attributes:
                raise OcciError(409, f"attribute {name}: no site can resize a machine; delete it and create another")
        for name in _ONCE:
            if name in update.attributes:
                raise OcciError(409, f"attribute {name}: is given when a compute is made")
        values = {
            name.removeprefix(PREFIX): value for name, value in update.attributes.items() if name.startswith(PREFIX)
        }
        change = self._worker_change(worker, update)
        if change:
            await self._access.check(identity, Question("patch", WORKERS, worker.metadata.name))
        for name in values:
            await self._access.check(
                identity, Question("update", WORKERS, worker.metadata.name, ("attributes", name))
            )  # fmt: skip
        if values:
            service = self._view.service_of(worker.service)
            if service is None:
                raise OcciError(409, f"{worker.metadata.name}: its service is not published any more")
            await self._attributes.assign(worker, service, values, PREFIX.rstrip("."))
            known = self._view.values.of(worker)
            told = [(name, known[name]) for name in values if name in known]
            newest = max((observed.time for _, observed in told), default=0.0)
            note(Told(worker.metadata.uid, {name: observed.value for name, observed in told}, newest))
        if change:
            await self._storing.change(
                self._view.directory.workers, worker, _checked(check, lambda now: self._worker_change(now, update))
            )

    @staticmethod
    def _worker_change(worker: CachedWorker, update: Update) -> Json:
        """What changes in the Worker; what a full update leaves out goes back to what it is by default."""
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
        before = kept_attributes(worker)
        kept: dict[str, Value] = {name: value for name, value in before.items() if name not in update.removed}
        known = (HOSTNAME, *_SIZE, *_ONCE)
        kept.update(
            (name, value)
            for name, value in update.attributes.items()
            if name not in known and not name.startswith(PREFIX)
        )
        change: Json = {"spec": spec} if spec else {}
        if kept != before:
            annotation = kept_annotation(kept) if kept else None
            change["metadata"] = {"annotations": {ANNOTATION_OCCI_ATTRIBUTES: annotation}}
        return change

    async def _update_link(self, link: OcciLink, update: Update, check: Check | None) -> None:
        attributes: dict[str, Value | None] = {**dict.fromkeys(update.removed), **update.attributes}
        spec: Json = {"attributes": attributes} if attributes else {}
        if update.title is not None:
            check_lengths({TITLE: update.title}, MOST_OF_LINKS)
            spec["title"] = update.title
        if QUEUE in update.attributes and link.spec.target == target_of_queue(link.spec.attributes.get(QUEUE)):
            spec["target"] = target_of_queue(update.attributes[QUEUE])
        if spec:
            await self._storing.change(self._view.links, link, _checked(check, lambda _: {"spec": spec}))

    async def _merge(self, worker: CachedWorker, change: Mapping[str, object]) -> None:
        try:
            await self._storing.merge(self._view.directory.workers, worker, dict(change))
        except ConflictError as error:
            raise refused(error, worker.metadata.name) from None

    # Deletions

    def _part(self, entities: Iterable[Entity]) -> _Leaving:
        leaving = _Leaving()
        for entity in entities:
            path = entity.path
            if self.stays(path):
                leaving.kept.append(_why_kept(entity))
                continue
            if (worker := self._view.worker(path)) is not None:
                owner = worker.pool
                (leaving.of_pools.setdefault(owner, []) if owner else leaving.alone).append(worker)
            elif (link := self._view.link(path)) is not None:
                leaving.links.append(link)
            elif (pool := self._view.pool(path)) is not None:
                leaving.pools.append(pool)
            leaving.paths.append(path)
        return leaving

    async def _note(self, leaving: _Leaving, key: str) -> None:
        async def note(cache: Cache[T], item: T) -> None:
            try:
                await self._storing.change(cache, item, lambda _: {}, key)
            except OcciError as error:
                if error.status != 404:
                    raise

        cache = self._view.directory
        await each([*leaving.alone, *chain(*leaving.of_pools.values())], partial(note, cache.workers))
        await each(leaving.pools, partial(note, cache.pools))
        await each(leaving.links, partial(note, self._view.links))

    async def _scale_in(self, pool_name: str, workers: Sequence[CachedWorker]) -> None:
        pool = self._view.directory.pools.get(self._view.namespace, pool_name)
        staying = {worker.metadata.uid: worker for worker in workers if worker.state.reason not in _LEAVING}
        if pool is None or pool.metadata.deletion_timestamp is not None:
            return

        async def mark(worker: CachedWorker) -> None:
            try:
                await self._merge(worker, {"metadata": {"annotations": {ANNOTATION_LEAVES: "true"}}})
            except OcciError as error:
                if error.status != 404:
                    raise
                del staying[worker.metadata.uid]  # gone already: whoever ended it has decided on the pool

        if len(staying) < self._view.directory.workers.count("user", pool.user):
            await each(list(staying.values()), mark)
        if staying:
            await self._scaling.scale_in(pool, list(staying))


def _checked(check: Check | None, change: Callable[[T], Json]) -> Callable[[T], Json | None]:
    """Return the change of an object as it is, after the check; None in place of no change."""

    def checked(item: T) -> Json | None:
        if check is not None:
            check()
        return change(item) or None

    return checked


def _why_kept(entity: Entity) -> str:
    kind = entity.kind.rpartition("#")[2]
    if kind == "application":
        return f"{entity.path}: an application is its vendor's; delete its components, or its computes"
    if kind == "network":
        return f"{entity.path}: a network is its site's: it goes with the CloudSite"
    return f"{entity.path}: this {kind} goes with the entity that it belongs to; delete that"
