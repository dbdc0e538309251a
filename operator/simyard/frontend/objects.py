# SPDX-License-Identifier: Apache-2.0
"""Implements the backend of the handlers (:class:`simyard.frontend.backend.Backend`) with Simyard's objects."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Protocol

from simyard.api.names import ANNOTATION_OCCI_PULLED
from simyard.api.occi import OcciLink
from simyard.frontend.access import Access
from simyard.frontend.amqp.registration_waits import RegistrationWaits
from simyard.frontend.backend import Invocation, Precondition, Verb
from simyard.frontend.changes.actions import ActionForwarder, EntityActions
from simyard.frontend.changes.creation import Creation
from simyard.frontend.changes.deleting_requests import DeletedEntities
from simyard.frontend.changes.scaling import WAIT_SECONDS, Scaling
from simyard.frontend.changes.storing import ObjectStore, for_each
from simyard.frontend.changes.updates import EntityChanges
from simyard.frontend.changes.written import ReportedValues, Written, record_writes
from simyard.frontend.downloads import Downloads
from simyard.frontend.entities.computes import AMQPLINKS, COMPUTES
from simyard.frontend.entities.identifiers import is_id, make_object_name
from simyard.frontend.entities.links import (
    MAX_PULLED_BYTES,
    Pulled,
    get_queue,
    link_path,
    read_pulled,
    select_mixin_values,
)
from simyard.frontend.entities.mixins import Mixins
from simyard.frontend.entities.relisting import Relisting
from simyard.frontend.entities.services import APPLICATIONS, COMPONENTLINKS, COMPONENTS
from simyard.frontend.entities.targets import split_path
from simyard.frontend.entities.view import View
from simyard.frontend.exchange import Identity
from simyard.frontend.replicas import Replicas
from simyard.guest.values import ClaimedAttributes
from simyard.kube.cache import Cache
from simyard.messaging.events import ReceivedEvent
from simyard.messaging.occi_topology import SERVICE_QUEUES_PREFIX
from simyard.occi.errors import OcciError
from simyard.occi.model import Action, Draft, Entity, Mixin, Model, Value
from simyard.occi.validation import Checked, Update
from simyard.serving.actions import Actions
from simyard.serving.attribute_feed import AttributeFeed
from simyard.serving.attributes import Attributes
from simyard.serving.broker import BrokerClient
from simyard.serving.objects import CachedWorker
from simyard.serving.status import StatusError
from simyard_adapter.file_urls import NO_URLS, AllowedUrls
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import ConflictError

log = logging.getLogger(__name__)

WATCH_SECONDS = 0.05
"""Time to wait for a watch event with the write of another replica. After it, the frontend reads the API server."""


class ForeignAdapters(ActionForwarder, Protocol):
    """The foreign service adapters behind links that clients created."""

    async def pull(self, queue: str, model: Model, *, timeout_seconds: float) -> Draft | None:
        """Return the link as its adapter reports it; None if the adapter does not answer."""


class Objects:
    """The entities of a namespace, or of one ``service`` in it.

    They are up to date while ``run`` and ``broker.run`` run.

    ``foreign`` is the connection to foreign service adapters; None if the frontend does not serve them. ``endpoint`` is
    the URL of this frontend; "" if it is that of each request. ``file_urls`` are the URLs that file parameters of
    actions may have. ``wait_seconds`` is the maximum time to wait for
    workers.
    """

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        service: str = "",
        *,
        foreign: ForeignAdapters | None = None,
        endpoint: str = "",
        file_urls: AllowedUrls = NO_URLS,
        clock: Callable[[], float] = time.time,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        self.view = view = View(client, namespace, service, endpoint)
        self._deleted = DeletedEntities(view)
        self._feed, self._registration_waits = (
            AttributeFeed(view.directory, view.values),
            RegistrationWaits(view.wake_waiters),
        )
        self.replicas = Replicas(f"{namespace}/{service}", self.catch_up)
        self.broker = BrokerClient(self.apply_event, (self.replicas.run,))
        self._relisting = Relisting(client, namespace)
        self._clock = clock
        self._foreign = foreign
        self._attributes = Attributes(view.directory, view.values, self.broker, clock=clock)
        self._store = ObjectStore(client)
        self._access = Access(client, view)
        self._downloads = Downloads(client, self._access, namespace)
        self._mixins = Mixins(view, self._store, self._access)
        self._creation = Creation(view, self._store, self._mixins)
        scaling = Scaling(view, self._store, self._access, wait_seconds)
        self._changes = EntityChanges(
            view, self._store, self._access, self._creation, self._mixins, scaling, self._attributes
        )
        # A frontend has no access to the file store, and OCCI has no reference for a part of a result.
        actions = Actions(client, view.directory, self.broker, file_urls, inline_results=True)
        self._actions = EntityActions(client, view, self._store, scaling, actions, foreign, self._registration_waits)

    @property
    def synced(self) -> bool:
        """True if all copies are complete."""
        return all(cache.synced.is_set() for cache in self.view.caches)

    def watch_age_seconds(self) -> float:
        """Return the time since the copies were last known to be up to date."""
        return max(cache.measure_age_seconds() for cache in self.view.caches)

    async def run(self) -> None:
        """Keep the copies up to date until cancelled."""
        await self.view.run()

    def apply_event(self, event: ReceivedEvent) -> None:
        """Apply a message of a worker."""
        self._feed.apply_event(event)
        self._registration_waits.apply_event(event)

    @asynccontextmanager
    async def visible(self) -> AsyncIterator[None]:
        """Run a block, and return when every replica shows its writes; wait also if the block ended with an error."""
        with record_writes() as record:
            try:
                yield
            except (OcciError, StatusError):
                await self.replicas.wait_confirmed(record)
                raise
        await self.replicas.wait_confirmed(record)

    async def catch_up(self, objects: Iterable[Written], reports: Iterable[ReportedValues]) -> None:
        """Wait until the copies of this replica have the writes of another replica.

        The method waits for the watch for ``WATCH_SECONDS``, then reads the missing objects from the API server.
        """
        caches = {cache.resource.plural: cache for cache in self.view.caches}
        wanted = [item for item in objects if item.resource in caches]

        def late() -> list[Written]:
            return [item for item in wanted if not caches[item.resource].has_reached(item.key, item.uid, item.version)]

        if not await self.view.wait_until(lambda: not late(), WATCH_SECONDS):
            await for_each(late(), partial(self._read, caches))
        for item in reports:
            worker = self.view.directory.find_worker_by_uid(item.uid)
            service = self.view.get_service(worker.service) if worker is not None else None
            if worker is not None and service is not None:
                known = self.view.values.get_values(worker)
                newer = {
                    name: value
                    for name, value in item.values.items()
                    if name not in known or known[name].time < item.time
                }
                self.view.values.record(worker, ClaimedAttributes(newer), service.interface, item.time)

    async def _read(self, caches: Mapping[str, Cache[Any]], item: Written) -> None:
        cache = caches[item.resource]
        found = await self._store.get(cache, item.name, item.namespace)
        if found is None or found.metadata.uid != item.uid:
            cache.apply_absence(item.key, item.uid)

    # Sync methods

    @property
    def version(self) -> int:
        """A number that grows with every visible change."""
        return self.view.version

    def get_model(self) -> Model:
        """Return the model."""
        return self.view.model

    def get_entity(self, path: str) -> Entity | None:
        """Return the entity at a path."""
        return self.view.find_entity(path)

    def list_paths(self, location: str) -> tuple[str, ...]:
        """Return the paths of the members of a location."""
        return self.view.list_paths(location)

    def list_entities(self, paths: Iterable[str]) -> Iterator[Entity]:
        """Yield the entities at these paths that exist."""
        for path in paths:
            if (entity := self.view.find_entity(path)) is not None:
                yield entity

    def make_part_key(self, path: str) -> Hashable:
        """Return a key that changes whenever the entity's rendering changes."""
        return self.view.make_part_key(path)

    def measure_age_seconds(self, path: str) -> float | None:
        """Return the age of the oldest value that an entity shows."""
        observed = self.view.get_age_time(path)
        return max(0.0, self._clock() - observed) if observed is not None else None

    def is_permanent(self, path: str) -> bool:
        """Return true if no client can delete the entity."""
        return self._changes.is_permanent(path)

    # Methods that may wait

    async def find_download(self, identity: Identity, address: str) -> str:
        """Return a signed URL that downloads a file."""
        return await self._downloads.find_url(identity, address)

    async def find(self, path: str) -> Entity | None:
        """Return the entity at a path; read its object from the API server before answering that it does not exist."""
        if (entity := self.view.find_entity(path)) is not None:
            return entity
        location, entity_id = split_path(path)
        directory, namespace = self.view.directory, self.view.namespace
        if location in (COMPUTES, AMQPLINKS) and is_id(entity_id):
            name = make_object_name(entity_id)
            found = await self._store.get(directory.workers, name, namespace)
            if found is None and location == AMQPLINKS:
                await self._store.get(self.view.links, name, namespace)
        elif location in (APPLICATIONS, COMPONENTS, COMPONENTLINKS):
            await self._relisting.read(directory.services if location == APPLICATIONS else directory.pools)
        return self.view.find_entity(path)

    def may(self, identity: Identity, verb: Verb, path: str, action: str = "") -> Coroutine[None, None, None]:
        """Raise an error unless a user has the right, as :meth:`simyard.frontend.access.Access.may` decides."""
        return self._access.may(identity, verb, path, action)

    async def create(self, identity: Identity, draft: Checked, *, key: str = "", exact: bool = False) -> Entity:
        """Create an entity."""
        return await self._creation.create(draft, key, exact)

    async def update(
        self, identity: Identity, entity: Entity, update: Update, *, replace: bool, check: Precondition | None = None
    ) -> Entity:
        """Change an entity."""
        return await self._changes.update(identity, entity, update, check)

    async def delete(
        self, identity: Identity, entities: Sequence[Entity], *, key: str = "", check: Precondition | None = None
    ) -> None:
        """Delete entities; see :meth:`simyard.frontend.changes.updates.EntityChanges.delete`."""
        await self._changes.delete(identity, entities, key, check)

    def was_deleted(self, path: str, key: str) -> bool:
        """Return true if the request with this key has deleted the entity at a path."""
        return self._deleted.was_deleted(path, key)

    async def act(self, entities: Sequence[Entity], invocation: Invocation) -> Mapping[str, Value] | None:
        """Carry out an action on entities."""
        return await self._actions.act(entities, invocation)

    async def refresh(self, entities: Sequence[Entity], seconds: float = 1.0) -> None:
        """Ask the adapters of entities for their newest values."""
        workers: dict[str, dict[str, CachedWorker]] = {}
        async with asyncio.TaskGroup() as group:
            for entity in entities:
                worker = self.view.find_worker(entity.path)
                if worker is not None and worker.state.good:
                    workers.setdefault(worker.service, {})[worker.metadata.uid] = worker
                for link in self._pulled_links(entity.path):
                    group.create_task(self._pull(link, seconds))
            for name, shown_workers in workers.items():
                if (service := self.view.get_service(name)) is not None:
                    names = [attribute.name for attribute in service.interface.attributes]
                    group.create_task(self._attributes.refresh(list(shown_workers.values()), service, names, seconds))

    def is_due(self, path: str) -> bool:
        """Return true if Cloud4E's adapters must be asked before the entity at a path is shown."""
        if self._foreign is None or not len(self.view.links):  # a fast path, because every GET calls this method
            return False
        now = self._clock()
        return any(self.view.polls.is_due(link.metadata.uid, now) for link in self._pulled_links(path))

    async def pull(self, path: str, seconds: float = 1.0) -> None:
        """Ask Cloud4E's adapters for the values at a path."""
        await asyncio.gather(*(self._pull(link, seconds) for link in self._pulled_links(path)))

    def _pulled_links(self, path: str) -> list[OcciLink]:
        """Return the link at a path, or the links that start there, whose adapters use the Cloud4E binding."""
        location, _ = split_path(path)
        if location == AMQPLINKS:
            found = self.view.link(path)
            links = [found] if found is not None else []
        else:
            links = self.view.links.list_by("source", path) if location == COMPUTES else []
        return [link for link in links if str(get_queue(link)).startswith(SERVICE_QUEUES_PREFIX)]

    async def _pull(self, link: OcciLink, seconds: float) -> None:
        """Ask the adapter of a link, and store changed values in the OcciLink, so that every frontend shows them.

        If another frontend has stored newer values, this frontend stores nothing and shows those values.
        """
        view, metadata, queue, path = self.view, link.metadata, str(get_queue(link)), link_path(link)
        if self._foreign is None:
            return
        view.polls.note_question(metadata.uid, self._clock())
        answer = await self._foreign.pull(queue, view.model, timeout_seconds=seconds)
        if answer is None:
            return
        now = self._clock()
        view.polls.note_answer(metadata.uid, now)
        values = select_mixin_values(link, view.list_mixins(path), answer.attributes, view.model)
        current = view.links.get(metadata.namespace, metadata.name)
        known = read_pulled(current) if current is not None else None
        if current is None or values == (known.attributes if known is not None else {}):
            return
        annotation = Pulled(queue, now, values).build_annotation()
        if len(annotation) > MAX_PULLED_BYTES:
            log.warning(
                "%s: its adapter reported %d bytes; more than %d are not kept", path, len(annotation), MAX_PULLED_BYTES
            )
            return
        version = {"resourceVersion": metadata.resource_version}
        try:
            async with self.visible():
                change = {"metadata": {"annotations": {ANNOTATION_OCCI_PULLED: annotation}, **version}}
                await self._store.merge(view.links, link, change)
        except ConflictError:
            with suppress(OcciError):
                await self._store.get(view.links, metadata.name, metadata.namespace)
        except OcciError as error:
            log.warning("%s: the values of its adapter could not be stored: %s", path, error)

    # User mixins

    async def define(self, identity: Identity, definitions: Sequence[Mixin | Action]) -> None:
        """Add user mixins; replace existing mixins if the user has the right to change them."""
        await self._mixins.define(identity, definitions)

    async def undefine(self, identity: Identity, ids: Sequence[str]) -> None:
        """Remove user mixins."""
        await self._mixins.undefine(ids)

    async def associate(self, identity: Identity, mixin: Mixin, paths: Sequence[str], *, replace: bool) -> None:
        """Add a mixin to entities."""
        await self._mixins.associate(mixin, paths, replace=replace)

    async def dissociate(self, identity: Identity, mixin: Mixin, paths: Sequence[str]) -> None:
        """Remove a mixin from entities."""
        await self._mixins.dissociate(mixin, paths)
