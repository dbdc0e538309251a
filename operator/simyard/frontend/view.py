"""What a frontend shows, from memory: copies of one namespace's objects as entities, in listings that are kept sorted.

Nothing here asks anybody, and nothing on the way of a request goes over all objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable

from simyard.api.cloud_site import CloudSite
from simyard.api.names import ANNOTATION_OCCI_ID, CLOUD_SITES, OCCI_LINKS, OCCI_MIXINS
from simyard.api.occi import OcciLink, OcciMixin
from simyard.apiserver.directory import Directory
from simyard.apiserver.objects import CachedPool, CachedService, CachedWorker
from simyard.apiserver.values import ValueStore
from simyard.frontend.catalogue import Catalogue, ServiceCategories
from simyard.frontend.computes import AMQPLINKS, COMPUTES, Known, amqplink, compute, oldest
from simyard.frontend.identifiers import is_id
from simyard.frontend.links import Answers, link_path, stored_link
from simyard.frontend.listing import Entry, Listings, entry_of
from simyard.frontend.memberships import Memberships, definition
from simyard.frontend.networks import NETWORKINTERFACES, NETWORKS, Networks, interface_paths
from simyard.frontend.placing import (
    EVERYTHING,
    Dependents,
    compute_listings,
    follow,
    pool_listings,
    service_listings,
)
from simyard.frontend.services import APPLICATIONS, COMPONENTLINKS, COMPONENTS, application, component, componentlink
from simyard.frontend.waiting import Waiting
from simyard.kube.cache import Cache
from simyard.occi.model import Entity, Kind, Link, Mixin, Model
from simyard.occi.standard import AMQPLINK, COMPONENTLINK
from simyard_sites.kubernetes.client import KubeClient


class View:
    """The entities of a namespace; of one ``service`` of it if that is given. ``run`` must run meanwhile."""

    def __init__(self, client: KubeClient, namespace: str, service: str = "", endpoint: str = "") -> None:
        self.namespace = namespace
        self.directory = Directory(client, (namespace,), service)
        self.sites: Cache[CloudSite] = Cache(client, CLOUD_SITES, CloudSite.model_validate)
        self.mixins: Cache[OcciMixin] = Cache(client, OCCI_MIXINS, OcciMixin.model_validate, namespaces=(namespace,))
        self.links: Cache[OcciLink] = Cache(
            client,
            OCCI_LINKS,
            OcciLink.model_validate,
            indexes={"path": lambda link: (link_path(link),), "source": lambda link: (link.spec.source,)},
            namespaces=(namespace,),
        )
        self.values = ValueStore()
        self.answers = Answers()
        self.caches = (
            self.directory.workers,
            self.directory.pools,
            self.directory.services,
            self.sites,
            self.mixins,
            self.links,
        )
        self._service = service
        self._endpoint = endpoint
        self._changes = 0
        self._listings = Listings()
        self._dependents = Dependents(self._listings)
        self._memberships = Memberships(self.shows)
        self._workers: dict[str, CachedWorker] = {}
        self._ids: dict[str, str] = {}
        self._catalogue: Catalogue | None = None
        self._models = 0
        self._waiting = Waiting()
        self.directory.workers.subscribe(self._worker_changed)
        self.directory.pools.subscribe(self._pool_changed)
        self.directory.services.subscribe(self._service_changed)
        self.mixins.subscribe(self._mixin_changed)
        self.links.subscribe(self._link_changed)
        self._networks = Networks(
            self.sites, namespace, self._workers, self._listings, self._memberships, self._changed
        )

    async def run(self) -> None:
        """Keep the copies true until cancelled."""
        async with asyncio.TaskGroup() as group:
            for cache in self.caches:
                group.create_task(cache.run(), name=f"cache of {cache.resource.plural}")

    @property
    def version(self) -> int:
        """Grows with every change of anything visible."""
        return self._changes + self.values.revision

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
        return await self._waiting.until(check, seconds)

    def look(self) -> None:
        """Have those look who wait: something has changed that is not of the objects."""
        self._waiting.look()

    # Finding

    def worker(self, path: str) -> CachedWorker | None:
        """The Worker of a compute, of its amqplink, or of one of its network interfaces."""
        location, entity_id = split(path)
        if location in (COMPUTES, AMQPLINKS):
            return self._workers.get(entity_id)
        return self._networks.worker(path) if location == NETWORKINTERFACES else None

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
            links = [self._linked(pool, service) for pool in self.pools_of(service)]
            return application(service, self.pools_of(service), links, categories, self.mixins_of(path), self._endpoint)
        elif location == COMPONENTS:
            return component(pool, self.mixins_of(path)) if (pool := self.pool(path)) is not None else None
        elif location == COMPONENTLINKS:
            return self._componentlink(path)
        elif location in (NETWORKS, NETWORKINTERFACES):
            return self._networks.entity(path)
        link = self.link(path)
        return self._stored(link) if link is not None else None

    def part_key(self, path: str) -> Hashable:
        """Another one whenever the entity at a path is another; None: there is none."""
        members = self._memberships.of(path)
        if (worker := self.worker(path)) is not None:
            revision = self.values.revision_of(worker.metadata.uid)
            own = self._own_links_key(worker, path) if len(self._memberships) else ()
            links = self._links_key(path) if len(self.links) else ()
            return worker.metadata.resource_version, revision, members, own, links
        if (service := self.service(path)) is not None:
            pools = tuple(
                (pool.metadata.resource_version, self._memberships.of(COMPONENTLINKS + pool.metadata.uid))
                for pool in self.pools_of(service)
            )
            return service.metadata.resource_version, pools, members
        if (pool := self.pool(path)) is not None:
            return pool.metadata.resource_version, members
        if (link := self.link(path)) is not None:
            return self._link_key(link)
        network = self._networks.key(path)
        return None if network is None else (network, members)

    def _own_links_key(self, worker: CachedWorker, path: str) -> Hashable:
        """Another one whenever the user mixins of the links are others that a compute has of itself."""
        _, entity_id = split(path)
        paths = (AMQPLINKS + entity_id, *interface_paths(worker, entity_id))
        return tuple(map(self._memberships.of, paths))

    def _links_key(self, path: str) -> Hashable:
        """Another one whenever the links that clients made from a path are others."""
        return tuple(map(self._link_key, self.links.by("source", path)))

    def _link_key(self, link: OcciLink) -> Hashable:
        return link.metadata.resource_version, self.answers.told_time(link), self._memberships.of(link_path(link))

    def age_time(self, path: str) -> float | None:
        """When the oldest of the values was observed that an entity shows; None if it shows none."""
        if (worker := self.worker(path)) is None or path.startswith(NETWORKINTERFACES):
            link = self.link(path)
            return self.answers.told_time(link) if link is not None else None
        service = self.service_of(worker.service)
        own = oldest(service, self.values.of(worker)) if service is not None else None
        if not len(self.links):
            return own
        pulled = map(self.answers.told_time, self.links.by("source", path))
        return min((time for time in (own, *pulled) if time is not None), default=None)

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
                return self._listings.paths(self.catalogue.listing_of(category.id))
        return ()

    def mixins_of(self, path: str) -> tuple[str, ...]:
        """The ids of the user mixins that an entity has."""
        return self._memberships.of(path)

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
            (
                *self._networks.interfaces(worker, entity_id),
                *map(self._stored, sorted(links, key=lambda link: entry_of(link.metadata, ""))),
            ),
            self.mixins_of(AMQPLINKS + entity_id),
        )

    def _componentlink(self, path: str) -> Link | None:
        pool = self.pool(path)
        service = self.service_of(pool.service) if pool is not None else None
        return self._linked(pool, service) if pool is not None and service is not None else None

    def _linked(self, pool: CachedPool, service: CachedService) -> Link:
        return componentlink(pool, service, self.mixins_of(COMPONENTLINKS + pool.metadata.uid))

    def _stored(self, link: OcciLink) -> Link:
        return stored_link(link, self.mixins_of(link_path(link)), self.model)

    # Following

    def _serves(self, service: str) -> bool:
        return not self._service or service == self._service

    def _shown(self, pool: CachedPool | None) -> CachedPool | None:
        """A pool that has a component: not one that is deleted, however long the end of its Workers takes."""
        if pool is None or pool.metadata.deletion_timestamp is not None:
            return None
        return pool if self._serves(pool.service) else None

    def _is_resource(self, path: str) -> bool:
        found = (self.worker(path), self.service(path), self.pool(path), self._networks.site(path))
        return any(item is not None for item in found)

    def shows(self, path: str) -> bool:
        """Whether there is an entity at a path."""
        return self._is_resource(path) or self.link(path) is not None

    def _changed(self, paths: Iterable[str] = ()) -> None:
        """Something is another; entities at ``paths`` have come or gone."""
        self._changes += 1
        for path in paths:
            self._memberships.touched(path)
            for link in self.links.by("source", path) if len(self.links) else ():
                self._place_link(link_path(link), link)
        self._waiting.look()

    def _worker_changed(self, old: CachedWorker | None, new: CachedWorker | None) -> None:
        if old is not None and new is not None and old.metadata.uid == new.metadata.uid:
            if (entity_id := self._ids.get(new.metadata.uid)) is not None:
                self._workers[entity_id] = new
                if len(old.addresses) != len(new.addresses):
                    self._networks.list_interfaces(old, entity_id, self._listings.remove)
                    self._networks.list_interfaces(new, entity_id, self._listings.add)
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
        change(entry_of(worker.metadata, paths[0]), list(compute_listings(worker)))
        change(entry_of(worker.metadata, paths[1]), [EVERYTHING, AMQPLINK, ("interface", worker.service)])
        self._networks.list_interfaces(worker, entity_id, change)
        self._changed(paths)

    def _pool_changed(self, old: CachedPool | None, new: CachedPool | None) -> None:
        paths = follow(self._listings, self._shown(old), self._shown(new), pool_listings)
        self._changed(paths)
        for pool in {pool.metadata.uid: pool for pool in (old, new) if pool is not None}.values():
            self._place_componentlink(pool)

    def _service_changed(self, old: CachedService | None, new: CachedService | None) -> None:
        before, now = (item if item is not None and self._serves(item.metadata.name) else None for item in (old, new))
        paths = follow(self._listings, before, now, service_listings)
        if paths or old is None or new is None or old.metadata.generation != new.metadata.generation:
            self._catalogue = None
        self._changed(paths)
        for service in (old, new) if paths else ():
            for pool in self.directory.pools.by("service", service.key) if service is not None else ():
                self._place_componentlink(pool)

    def _mixin_changed(self, old: OcciMixin | None, new: OcciMixin | None) -> None:
        self._memberships.changed(old, new)
        if old is None or new is None or definition(old) != definition(new):
            self._catalogue = None
        self._changed()

    def _link_changed(self, old: OcciLink | None, new: OcciLink | None) -> None:
        for item in (old, new):
            if item is None:
                continue
            path = link_path(item)
            self._place_link(path, next(iter(self.links.by("path", path)), None))
        self._changed()

    def _place_link(self, path: str, link: OcciLink | None) -> None:
        """List a link that a client made, while what it starts at is shown."""
        if link is None or not self._is_resource(link.spec.source):
            came_or_went = self._dependents.place(path, None)
        else:
            came_or_went = self._dependents.place(path, entry_of(link.metadata, path), (EVERYTHING, link.spec.kind))
        if came_or_went:
            self._memberships.touched(path)

    def _place_componentlink(self, pool: CachedPool) -> None:
        """List the link from a service to its pool, while both are shown."""
        path = COMPONENTLINKS + pool.metadata.uid
        shown = self._componentlink(path) is not None
        entry = entry_of(pool.metadata, path) if shown else None
        if self._dependents.place(path, entry, (EVERYTHING, COMPONENTLINK)):
            self._changed((path,))


def split(path: str) -> tuple[str, str]:
    """The location and the id in the path of an entity."""
    location, slash, entity_id = path.rpartition("/")
    return location + slash, entity_id
