# SPDX-License-Identifier: Apache-2.0
"""Keeps the entities of a frontend in memory: copies of the objects of one namespace, in sorted listings.

No method asks the API server, and no request iterates over all objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable
from functools import partial

from simyard.api.cloud_site import CloudSite
from simyard.api.names import CLOUD_SITES, OCCI_LINKS, OCCI_MIXINS
from simyard.api.occi import OcciLink, OcciMixin
from simyard.frontend.entities.catalogue import Catalogue, ServiceCategories
from simyard.frontend.entities.compute_ids import ComputeIds
from simyard.frontend.entities.computes import (
    AMQPLINKS,
    COMPUTES,
    ComputeContext,
    build_amqplink,
    build_compute,
    find_oldest_time,
)
from simyard.frontend.entities.links import AdapterPolls, build_stored_link, link_path
from simyard.frontend.entities.listed_objects import (
    EVERYTHING,
    Dependents,
    compute_listings,
    list_pool_listings,
    list_service_listings,
    relist_compute,
    update_listings,
)
from simyard.frontend.entities.listing import ChangeListings, Listings, make_entry
from simyard.frontend.entities.memberships import Memberships, copy_definition
from simyard.frontend.entities.networks import NETWORKINTERFACES, NETWORKS, Networks, list_interface_paths
from simyard.frontend.entities.services import (
    APPLICATIONS,
    COMPONENTLINKS,
    COMPONENTS,
    build_application,
    build_component,
    build_componentlink,
)
from simyard.frontend.entities.targets import split_path
from simyard.frontend.waiting import ChangeWaiters
from simyard.kube.cache import Cache
from simyard.occi.model import Entity, Kind, Link, Mixin, Model
from simyard.occi.standard import AMQPLINK, COMPONENTLINK
from simyard.serving.directory import Directory
from simyard.serving.objects import CachedPool, CachedService, CachedWorker
from simyard.serving.values import ValueStore
from simyard_sites.kubernetes.client import KubeClient


class View:
    """The entities of a namespace, or of one ``service`` in it; they are up to date while ``run`` runs."""

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
        self.polls = AdapterPolls()
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
        self._computes = ComputeIds(
            partial(self._list_worker, self._listings.add), partial(self._list_worker, self._listings.remove)
        )
        self._catalogue: Catalogue | None = None
        self._models = 0
        self._waiters = ChangeWaiters()
        self.directory.workers.subscribe(self._apply_worker)
        self.directory.pools.subscribe(self._apply_pool)
        self.directory.services.subscribe(self._apply_service)
        self.mixins.subscribe(self._apply_mixin)
        self.links.subscribe(self._apply_link)
        self._networks = Networks(
            self.sites, namespace, self._computes.workers, self._listings, self._memberships, self._note_change
        )

    async def run(self) -> None:
        """Keep the copies up to date until cancelled."""
        async with asyncio.TaskGroup() as group:
            for cache in self.caches:
                group.create_task(cache.run(), name=f"cache of {cache.resource.plural}")

    @property
    def version(self) -> int:
        """A number that grows with every visible change."""
        return self._changes + self.values.revision + self.polls.answers

    @property
    def catalogue(self) -> Catalogue:
        """The categories, which are built again when a service or a user mixin has changed."""
        if self._catalogue is None:
            self._models += 1
            self._catalogue = Catalogue(self.directory.services, self.mixins, self._models)
        return self._catalogue

    @property
    def model(self) -> Model:
        """The model, which has all categories."""
        catalogue = self._catalogue  # a fast path, because every request needs the model
        return self.catalogue.model if catalogue is None else catalogue.model

    async def wait_until(self, check: Callable[[], bool], seconds: float) -> bool:
        """Wait until a condition on the entities holds, for at most ``seconds``, and return true if it holds."""
        return await self._waiters.wait_until(check, seconds)

    def wake_waiters(self) -> None:
        """Have all waiters check their conditions again, after a change of data that is not in the objects."""
        self._waiters.wake()

    # Objects by path

    def find_worker(self, path: str) -> CachedWorker | None:
        """Return the Worker of a compute, of its amqplink, or of one of its network interfaces."""
        location, entity_id = split_path(path)
        if location in (COMPUTES, AMQPLINKS):
            return self._computes.workers.get(entity_id)
        return self._networks.find_worker(path) if location == NETWORKINTERFACES else None

    def find_service(self, path: str) -> CachedService | None:
        """Return the service of an application."""
        location, uid = split_path(path)
        if location != APPLICATIONS:
            return None
        return next(iter(self.directory.services.list_by("uid", uid)), None)

    def find_pool(self, path: str) -> CachedPool | None:
        """Return the pool of a component, or of the link to it."""
        location, uid = split_path(path)
        found = self.directory.pools.list_by("uid", uid) if location in (COMPONENTS, COMPONENTLINKS) else []
        return next(filter(self._if_shown, found), None)

    def link(self, path: str) -> OcciLink | None:
        """Return the OcciLink of a link that a client made."""
        found = self.links.list_by("path", path)
        return found[0] if found and self._is_resource(found[0].spec.source) else None

    def get_path(self, worker: CachedWorker) -> str | None:
        """Return the path of a Worker's compute."""
        entity_id = self._computes.find(worker)
        return COMPUTES + entity_id if entity_id is not None else None

    def get_service(self, name: str) -> CachedService | None:
        """Return the service with this name."""
        return self.directory.services.get(self.namespace, name)

    def list_pools(self, service: CachedService) -> list[CachedPool]:
        """Return the pools of a service, the oldest first."""
        pools = filter(self._if_shown, self.directory.pools.list_by("service", service.key))
        return sorted(pools, key=lambda pool: make_entry(pool.metadata, ""))

    # Entities by path

    def find_entity(self, path: str) -> Entity | None:
        """Return the entity at a path."""
        location, _ = split_path(path)
        if location in (COMPUTES, AMQPLINKS):
            if (worker := self.find_worker(path)) is not None:
                context = self._context_of(worker, path)
                if location == AMQPLINKS:
                    return build_amqplink(worker, context)
                return build_compute(worker, context, self.model)
        elif location == APPLICATIONS:
            if (service := self.find_service(path)) is None:
                return None
            categories = self.catalogue.list_of_service(service.metadata.name)
            pools = self.list_pools(service)
            links = [self._build_componentlink(pool, service) for pool in pools]
            return build_application(service, pools, links, categories, self.list_mixins(path), self._endpoint)
        elif location == COMPONENTS:
            return build_component(pool, self.list_mixins(path)) if (pool := self.find_pool(path)) is not None else None
        elif location == COMPONENTLINKS:
            return self._componentlink(path)
        elif location in (NETWORKS, NETWORKINTERFACES):
            return self._networks.find_entity(path)
        link = self.link(path)
        return self._build_link(link) if link is not None else None

    def make_part_key(self, path: str) -> Hashable:
        """Return a key that changes whenever the entity at a path changes; None if no entity exists there."""
        members = self._memberships.list_mixins(path)
        if (worker := self.find_worker(path)) is not None:
            revision = self.values.get_revision(worker.metadata.uid)
            own = self._own_links_key(worker, path) if len(self._memberships) else ()
            links = self._links_key(path) if len(self.links) else ()
            return worker.metadata.resource_version, revision, members, own, links
        if (service := self.find_service(path)) is not None:
            pools = tuple(
                (pool.metadata.resource_version, self._memberships.list_mixins(COMPONENTLINKS + pool.metadata.uid))
                for pool in self.list_pools(service)
            )
            return service.metadata.resource_version, pools, members
        if (pool := self.find_pool(path)) is not None:
            return pool.metadata.resource_version, members
        if (link := self.link(path)) is not None:
            return self._link_key(link)
        network = self._networks.make_key(path)
        return None if network is None else (network, members)

    def _own_links_key(self, worker: CachedWorker, path: str) -> Hashable:
        """Return a key that changes whenever the user mixins of the compute's own links change."""
        _, entity_id = split_path(path)
        paths = (AMQPLINKS + entity_id, *list_interface_paths(worker, entity_id))
        return tuple(map(self._memberships.list_mixins, paths))

    def _links_key(self, path: str) -> Hashable:
        """Return a key that changes whenever the links that clients created from the entity at a path change."""
        return tuple(map(self._link_key, self.links.list_by("source", path)))

    def _link_key(self, link: OcciLink) -> Hashable:
        return (
            link.metadata.resource_version,
            self.polls.get_reported_time(link),
            self._memberships.list_mixins(link_path(link)),
        )

    def get_age_time(self, path: str) -> float | None:
        """Return the time at which the oldest shown value of an entity was observed; None if it shows no values."""
        if (worker := self.find_worker(path)) is None or path.startswith(NETWORKINTERFACES):
            link = self.link(path)
            return self.polls.get_reported_time(link) if link is not None else None
        service = self.get_service(worker.service)
        own = find_oldest_time(service, self.values.get_values(worker)) if service is not None else None
        if not len(self.links):
            return own
        pulled = map(self.polls.get_reported_time, self.links.list_by("source", path))
        return min((time for time in (own, *pulled) if time is not None), default=None)

    def list_paths(self, location: str) -> tuple[str, ...]:
        """Return the members of a kind's or a mixin's location, or all entities below a path."""
        if location == EVERYTHING:
            return self._listings.list_paths(EVERYTHING)
        category = self.model.find_by_location(location)
        match category:
            case Kind():
                return self._listings.list_paths(category.id)
            case Mixin(user=True):
                return self._memberships.list_paths(category.id)
            case Mixin():
                return self._listings.list_paths(self.catalogue.find_listing(category.id))
        return ()

    def list_mixins(self, path: str) -> tuple[str, ...]:
        """Return the ids of the user mixins of an entity."""
        return self._memberships.list_mixins(path)

    def _context_of(self, worker: CachedWorker, path: str) -> ComputeContext:
        _, entity_id = split_path(path)
        service = self.get_service(worker.service)
        categories: ServiceCategories | None = None
        if service is not None:
            categories = self.catalogue.list_of_service(worker.service)
        links = self.links.list_by("source", COMPUTES + entity_id) if len(self.links) else []
        return ComputeContext(
            entity_id,
            service,
            categories,
            self.values.get_values(worker),
            self.list_mixins(path),
            (
                *self._networks.build_interfaces(worker, entity_id),
                *map(self._build_link, sorted(links, key=lambda link: make_entry(link.metadata, ""))),
            ),
            self.list_mixins(AMQPLINKS + entity_id),
        )

    def _componentlink(self, path: str) -> Link | None:
        pool = self.find_pool(path)
        service = self.get_service(pool.service) if pool is not None else None
        return self._build_componentlink(pool, service) if pool is not None and service is not None else None

    def _build_componentlink(self, pool: CachedPool, service: CachedService) -> Link:
        return build_componentlink(pool, service, self.list_mixins(COMPONENTLINKS + pool.metadata.uid))

    def _build_link(self, link: OcciLink) -> Link:
        return build_stored_link(link, self.list_mixins(link_path(link)), self.model)

    # Changes of objects

    def _serves(self, service: str) -> bool:
        return not self._service or service == self._service

    def _if_shown(self, pool: CachedPool | None) -> CachedPool | None:
        """Return the pool if it has a component; None if the pool is being deleted, even if its Workers still exist."""
        if pool is None or pool.metadata.deletion_timestamp is not None:
            return None
        return pool if self._serves(pool.service) else None

    def _is_resource(self, path: str) -> bool:
        found = (self.find_worker(path), self.find_service(path), self.find_pool(path), self._networks.find_site(path))
        return any(item is not None for item in found)

    def shows(self, path: str) -> bool:
        """Return true if an entity exists at a path."""
        return self._is_resource(path) or self.link(path) is not None

    def _note_change(self, paths: Iterable[str] = ()) -> None:
        """Increase the version after a visible change; entities at ``paths`` were added or removed."""
        self._changes += 1
        for path in paths:
            self._memberships.forget_shown(path)
            for link in self.links.list_by("source", path) if len(self.links) else ():
                self._place_link(link_path(link), link)
        self._waiters.wake()

    def _apply_worker(self, old: CachedWorker | None, new: CachedWorker | None) -> None:
        if old is not None and new is not None and old.metadata.uid == new.metadata.uid:
            if (entity_id := self._computes.find(new)) is not None:
                self._computes.workers[entity_id] = new
                relist_compute(self._listings, old, new, COMPUTES + entity_id)
                if len(old.addresses) != len(new.addresses):
                    self._networks.list_interfaces(old, entity_id, self._listings.remove)
                    self._networks.list_interfaces(new, entity_id, self._listings.add)
                self._note_change()
            return
        if old is not None and self._computes.find(old) is not None:
            self._computes.remove(old)
        if new is not None and self._serves(new.service):
            self._computes.add(new)

    def _list_worker(self, change: ChangeListings, worker: CachedWorker, entity_id: str) -> None:
        paths = COMPUTES + entity_id, AMQPLINKS + entity_id
        change(make_entry(worker.metadata, paths[0]), list(compute_listings(worker)))
        change(make_entry(worker.metadata, paths[1]), [EVERYTHING, AMQPLINK, ("interface", worker.service)])
        self._networks.list_interfaces(worker, entity_id, change)
        self._note_change(paths)

    def _apply_pool(self, old: CachedPool | None, new: CachedPool | None) -> None:
        paths = update_listings(self._listings, self._if_shown(old), self._if_shown(new), list_pool_listings)
        self._note_change(paths)
        for pool in {pool.metadata.uid: pool for pool in (old, new) if pool is not None}.values():
            self._place_componentlink(pool)

    def _apply_service(self, old: CachedService | None, new: CachedService | None) -> None:
        before, now = (item if item is not None and self._serves(item.metadata.name) else None for item in (old, new))
        paths = update_listings(self._listings, before, now, list_service_listings)
        if paths or old is None or new is None or old.metadata.generation != new.metadata.generation:
            self._catalogue = None
        self._note_change(paths)
        for service in (old, new) if paths else ():
            for pool in self.directory.pools.list_by("service", service.key) if service is not None else ():
                self._place_componentlink(pool)

    def _apply_mixin(self, old: OcciMixin | None, new: OcciMixin | None) -> None:
        self._memberships.apply_change(old, new)
        if old is None or new is None or copy_definition(old) != copy_definition(new):
            self._catalogue = None
        self._note_change()

    def _apply_link(self, old: OcciLink | None, new: OcciLink | None) -> None:
        for item in (old, new):
            if item is None:
                continue
            path = link_path(item)
            self._place_link(path, next(iter(self.links.list_by("path", path)), None))
        self._note_change()

    def _place_link(self, path: str, link: OcciLink | None) -> None:
        """Put a link that a client created into the listings, or remove it, as long as its source exists."""
        if link is None or not self._is_resource(link.spec.source):
            came_or_went = self._dependents.set_listings(path, None)
        else:
            came_or_went = self._dependents.set_listings(
                path, make_entry(link.metadata, path), (EVERYTHING, link.spec.kind)
            )
        if came_or_went:
            self._memberships.forget_shown(path)

    def _place_componentlink(self, pool: CachedPool) -> None:
        """Put the link from a service to its pool into the listings, as long as both entities exist."""
        path = COMPONENTLINKS + pool.metadata.uid
        shown = self._componentlink(path) is not None
        entry = make_entry(pool.metadata, path) if shown else None
        if self._dependents.set_listings(path, entry, (EVERYTHING, COMPONENTLINK)):
            self._note_change((path,))
