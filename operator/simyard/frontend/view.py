"""What a frontend shows, from memory: copies of one namespace's objects as entities, in listings that are kept sorted.

Nothing here asks anybody, and nothing on the way of a request goes over all objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

from simyard.api.cloud_site import CloudSite
from simyard.api.names import ANNOTATION_OCCI_ID, CLOUD_SITES, OCCI_LINKS, OCCI_MIXINS
from simyard.api.occi import OcciLink, OcciMixin
from simyard.apiserver.directory import Directory
from simyard.apiserver.objects import CachedPool, CachedService, CachedWorker
from simyard.apiserver.values import ValueStore
from simyard.frontend.catalogue import SCALABLE, WORKER, Catalogue, ServiceCategories
from simyard.frontend.computes import AMQPLINKS, COMPUTES, Known, amqplink, compute, oldest, size_mixin
from simyard.frontend.identifiers import is_id
from simyard.frontend.links import Pulled, link_path, stored_link
from simyard.frontend.listing import Entry, Listings, entry_of
from simyard.frontend.memberships import Memberships
from simyard.frontend.services import APPLICATIONS, COMPONENTLINKS, COMPONENTS, application, component, componentlink
from simyard.kube.cache import Cache
from simyard.occi.model import Entity, Kind, Link, Mixin, Model
from simyard.occi.standard import (
    AMQPLINK,
    APPLICATION,
    COMPONENT,
    COMPONENTLINK,
    COMPUTE,
    OS_TPL,
    RESOURCE_TPL,
    SSH_KEY,
    USER_DATA,
)
from simyard_sites.kubernetes.client import KubeClient

EVERYTHING = "/"
T = TypeVar("T", CachedPool, CachedService, OcciLink)
Placed = Sequence[tuple[str, Sequence[Hashable]]]
"""The paths under which an object is shown, each with the keys of the listings that have it."""


class View:
    """The entities of a namespace; of one ``service`` of it if that is given. ``run`` must run meanwhile."""

    def __init__(self, client: KubeClient, namespace: str, service: str = "") -> None:
        self.namespace = namespace
        self.directory = Directory(client, namespace, service)
        self.sites: Cache[CloudSite] = Cache(client, CLOUD_SITES, CloudSite.model_validate)
        self.mixins: Cache[OcciMixin] = Cache(client, OCCI_MIXINS, OcciMixin.model_validate, namespace=namespace)
        self.links: Cache[OcciLink] = Cache(
            client,
            OCCI_LINKS,
            OcciLink.model_validate,
            indexes={"path": lambda link: (link_path(link),), "source": lambda link: (link.spec.source,)},
            namespace=namespace,
        )
        self.values = ValueStore()
        self.pulled = Pulled()
        self.caches = (
            self.directory.workers,
            self.directory.pools,
            self.directory.services,
            self.sites,
            self.mixins,
            self.links,
        )
        self._service = service
        self._changes = 0
        self._listings = Listings()
        self._memberships = Memberships(self.shows)
        self._workers: dict[str, CachedWorker] = {}
        self._ids: dict[str, str] = {}
        self._catalogue: Catalogue | None = None
        self._models = 0
        self._waiting: set[asyncio.Event] = set()
        self.directory.workers.subscribe(self._worker_changed)
        self.directory.pools.subscribe(self._pool_changed)
        self.directory.services.subscribe(self._service_changed)
        self.mixins.subscribe(self._mixin_changed)
        self.links.subscribe(self._link_changed)

    async def run(self) -> None:
        """Keep the copies true until cancelled."""
        async with asyncio.TaskGroup() as group:
            for cache in self.caches:
                group.create_task(cache.run(), name=f"cache of {cache.resource.plural}")

    @property
    def version(self) -> int:
        """Grows with every change of anything visible."""
        return self._changes + self.values.revision + self.pulled.revision

    @property
    def catalogue(self) -> Catalogue:
        """The categories; made anew when a service or a user mixin has changed."""
        if self._catalogue is None:
            self._models += 1
            self._catalogue = Catalogue(self.directory.services, self.mixins, self._models)
        return self._catalogue

    @property
    def model(self) -> Model:
        """All categories."""
        catalogue = self._catalogue  # every request asks
        return self.catalogue.model if catalogue is None else catalogue.model

    async def until(self, check: Callable[[], bool], seconds: float) -> bool:
        """Wait until something is visible, for so long at most; whether it is."""
        changed = asyncio.Event()
        self._waiting.add(changed)
        try:
            async with asyncio.timeout(seconds):
                while not check():
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            return check()
        finally:
            self._waiting.discard(changed)
        return True

    # Finding

    def worker(self, path: str) -> CachedWorker | None:
        """The Worker of a compute, or of its amqplink."""
        location, entity_id = split(path)
        return self._workers.get(entity_id) if location in (COMPUTES, AMQPLINKS) else None

    def service(self, path: str) -> CachedService | None:
        """The service of an application."""
        location, uid = split(path)
        if location != APPLICATIONS:
            return None
        return next(iter(self.directory.services.by("uid", uid)), None)

    def pool(self, path: str) -> CachedPool | None:
        """The pool of a component, or of the link to it."""
        location, uid = split(path)
        found = self.directory.pools.by("uid", uid) if location in (COMPONENTS, COMPONENTLINKS) else []
        return next(filter(self._shown, found), None)

    def link(self, path: str) -> OcciLink | None:
        """The link that a client made."""
        found = self.links.by("path", path)
        return found[0] if found and self._is_resource(found[0].spec.source) else None

    def path_of(self, worker: CachedWorker) -> str | None:
        """The path of a Worker's compute."""
        entity_id = self._ids.get(worker.metadata.uid)
        return COMPUTES + entity_id if entity_id is not None else None

    def service_of(self, name: str) -> CachedService | None:
        """The service of that name."""
        return self.directory.services.get(self.namespace, name)

    def pools_of(self, service: CachedService) -> list[CachedPool]:
        """The pools of a service, oldest first."""
        pools = filter(self._shown, self.directory.pools.by("service", service.key))
        return sorted(pools, key=lambda pool: entry_of(pool.metadata, ""))

    # Showing

    def entity(self, path: str) -> Entity | None:
        """The entity at a path."""
        location, _ = split(path)
        if location in (COMPUTES, AMQPLINKS):
            if (worker := self.worker(path)) is not None:
                known = self._known(worker, path)
                return compute(worker, known, self.model) if location == COMPUTES else amqplink(worker, known)
        elif location == APPLICATIONS:
            if (service := self.service(path)) is None:
                return None
            categories = self.catalogue.of_service(service.metadata.name)
            return application(service, self.pools_of(service), categories, self.mixins_of(path))
        elif location == COMPONENTS:
            return component(pool, self.mixins_of(path)) if (pool := self.pool(path)) is not None else None
        elif location == COMPONENTLINKS:
            return self._componentlink(path)
        link = self.link(path)
        return self._stored(link) if link is not None else None

    def part_key(self, path: str) -> Hashable:
        """Another one whenever the entity at a path is another; None: there is none."""
        members = self._memberships.of(path)
        if (worker := self.worker(path)) is not None:
            stored = self.links.by("source", path) if len(self.links) else ()
            links = tuple([link.metadata.resource_version for link in stored])
            revision = self.values.revision_of(worker.metadata.uid)
            return worker.metadata.resource_version, revision, members, links, self.pulled.revision if links else 0
        if (service := self.service(path)) is not None:
            pools = tuple(pool.metadata.resource_version for pool in self.pools_of(service))
            return service.metadata.resource_version, pools, members
        if (pool := self.pool(path)) is not None:
            return pool.metadata.resource_version, members
        if (link := self.link(path)) is not None:
            return link.metadata.resource_version, self.pulled.revision, members
        return None

    def age_time(self, path: str) -> float | None:
        """When the oldest of the values was observed that an entity shows; None if it shows none."""
        if (worker := self.worker(path)) is None:
            return None
        service = self.service_of(worker.service)
        return oldest(service, self.values.of(worker)) if service is not None else None

    def paths(self, location: str) -> tuple[str, ...]:
        """The members of a kind's or a mixin's location, or everything below a path."""
        if location == EVERYTHING:
            return self._listings.paths(EVERYTHING)
        category = self.model.at(location)
        match category:
            case Kind():
                return self._listings.paths(category.id)
            case Mixin(user=True):
                return self._memberships.paths(category.id)
            case Mixin():
                return self._listings.paths(self._listing_of(category.id))
        return ()

    def mixins_of(self, path: str) -> tuple[str, ...]:
        """The ids of the user mixins that an entity has."""
        return self._memberships.of(path)

    def _listing_of(self, category_id: str) -> Hashable:
        if category_id in (OS_TPL, WORKER):
            return COMPUTE
        service = self.catalogue.service_of(category_id)
        categories = self.catalogue.of_service(service) if service is not None else None
        if categories is None:
            return category_id
        of = {categories.template.id: "computes", categories.interface.id: "interface", categories.master.id: "master"}
        return of[category_id], service

    def _known(self, worker: CachedWorker, path: str) -> Known:
        _, entity_id = split(path)
        service = self.service_of(worker.service)
        categories: ServiceCategories | None = None
        if service is not None:
            categories = self.catalogue.of_service(worker.service)
        links = self.links.by("source", COMPUTES + entity_id) if len(self.links) else []
        return Known(
            entity_id,
            service,
            categories,
            self.values.of(worker),
            self.mixins_of(path),
            tuple(map(self._stored, sorted(links, key=lambda link: entry_of(link.metadata, "")))),
        )

    def _componentlink(self, path: str) -> Link | None:
        pool = self.pool(path)
        service = self.service_of(pool.service) if pool is not None else None
        return componentlink(pool, service) if pool is not None and service is not None else None

    def _stored(self, link: OcciLink) -> Link:
        path = link_path(link)
        return stored_link(link, self.mixins_of(path), self.pulled.of(path), self.model)

    # Following

    def _serves(self, service: str) -> bool:
        return not self._service or service == self._service

    def _shown(self, pool: CachedPool | None) -> CachedPool | None:
        """A pool that has a component: not one that is deleted, however long the end of its Workers takes."""
        if pool is None or pool.metadata.deletion_timestamp is not None:
            return None
        return pool if self._serves(pool.service) else None

    def _is_resource(self, path: str) -> bool:
        return self.worker(path) is not None or self.service(path) is not None or self.pool(path) is not None

    def shows(self, path: str) -> bool:
        """Whether there is an entity at a path."""
        return self._is_resource(path) or self.link(path) is not None

    def _changed(self, paths: Iterable[str] = ()) -> None:
        """Something is another; entities at ``paths`` have come or gone."""
        self._changes += 1
        for path in paths:
            self._memberships.touched(path)
        for event in self._waiting:
            event.set()

    def _worker_changed(self, old: CachedWorker | None, new: CachedWorker | None) -> None:
        if old is not None and new is not None and old.metadata.uid == new.metadata.uid:
            if new.metadata.uid in self._ids:
                self._workers[self._ids[new.metadata.uid]] = new
                self._changed()
            return
        if old is not None and old.metadata.uid in self._ids:
            self._remove_worker(old)
        if new is not None and self._serves(new.service):
            self._add_worker(new, new.metadata.annotations.get(ANNOTATION_OCCI_ID, ""))

    def _add_worker(self, worker: CachedWorker, wanted: str) -> None:
        """Nobody gets an id that another one has; a uid is always its own's, whoever chose it before."""
        uid = worker.metadata.uid
        entity_id = wanted if is_id(wanted) and wanted not in self._workers else uid
        squatter = self._workers.get(entity_id)
        if squatter is not None:
            self._remove_worker(squatter)
        self._workers[entity_id] = worker
        self._ids[uid] = entity_id
        self._list(worker, entity_id, self._listings.add)
        if squatter is not None:
            self._add_worker(squatter, "")

    def _remove_worker(self, worker: CachedWorker) -> None:
        entity_id = self._ids.pop(worker.metadata.uid)
        listed = self._workers.pop(entity_id)
        self._list(listed, entity_id, self._listings.remove)

    def _list(self, worker: CachedWorker, entity_id: str, change: Callable[[Entry, Iterable[Hashable]], None]) -> None:
        paths = COMPUTES + entity_id, AMQPLINKS + entity_id
        change(entry_of(worker.metadata, paths[0]), list(_compute_listings(worker)))
        change(entry_of(worker.metadata, paths[1]), [EVERYTHING, AMQPLINK, ("interface", worker.service)])
        self._changed(paths)

    def _pool_changed(self, old: CachedPool | None, new: CachedPool | None) -> None:
        self._changed(self._follow(self._shown(old), self._shown(new), _pool_listings, lambda _: True))

    def _service_changed(self, old: CachedService | None, new: CachedService | None) -> None:
        paths = self._follow(old, new, _service_listings, lambda service: self._serves(service.metadata.name))
        if paths or old is None or new is None or old.metadata.generation != new.metadata.generation:
            self._catalogue = None
        self._changed(paths)

    def _mixin_changed(self, old: OcciMixin | None, new: OcciMixin | None) -> None:
        self._memberships.changed(old, new)
        if old is None or new is None or _defines(old) != _defines(new):
            self._catalogue = None
        self._changed()

    def _link_changed(self, old: OcciLink | None, new: OcciLink | None) -> None:
        paths = self._follow(old, new, _link_listings, lambda _: True)
        for item in (old, new):
            if item is not None and (new is None or old is None or old.spec != new.spec):
                self.pulled.forget(link_path(item))
        self._changed(paths)

    def _follow(
        self,
        old: T | None,
        new: T | None,
        listings: Callable[[T], Placed],
        serves: Callable[[T], bool],
    ) -> list[str]:
        """List what an object is shown as; the paths that have come or gone."""
        if old is not None and new is not None and listings(old) == listings(new):
            return []
        changed: list[str] = []
        for item, change in ((old, self._listings.remove), (new, self._listings.add)):
            if item is not None and serves(item):
                for path, keys in listings(item):
                    change(entry_of(item.metadata, path), keys)
                    changed.append(path)
        return changed


def split(path: str) -> tuple[str, str]:
    """The location and the id in the path of an entity."""
    location, slash, entity_id = path.rpartition("/")
    return location + slash, entity_id


def _compute_listings(worker: CachedWorker) -> Iterator[Hashable]:
    yield from (EVERYTHING, COMPUTE, ("interface", worker.service), ("computes", worker.service))
    if (size := size_mixin(worker)) is not None:
        yield from (RESOURCE_TPL, size)
    if worker.own.ssh_public_keys:
        yield SSH_KEY
    if worker.own.has_user_data:
        yield USER_DATA


def _pool_listings(pool: CachedPool) -> Placed:
    uid = pool.metadata.uid
    return (
        (COMPONENTS + uid, (EVERYTHING, COMPONENT, SCALABLE)),
        (COMPONENTLINKS + uid, (EVERYTHING, COMPONENTLINK)),
    )


def _service_listings(service: CachedService) -> Placed:
    path = APPLICATIONS + service.metadata.uid
    return ((path, (EVERYTHING, APPLICATION, SCALABLE, ("master", service.metadata.name))),)


def _link_listings(link: OcciLink) -> Placed:
    return ((link_path(link), (EVERYTHING, link.spec.kind)),)


def _defines(mixin: OcciMixin) -> object:
    """All but the members."""
    return mixin.spec.model_copy(update={"members": []})
