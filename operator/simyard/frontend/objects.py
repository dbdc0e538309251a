"""The backend of the handlers: our objects as OCCI (:class:`simyard.frontend.backend.Backend`)."""

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
from simyard.apiserver.actions import Actions
from simyard.apiserver.attributes import Attributes
from simyard.apiserver.broker import BrokerLink
from simyard.apiserver.feed import AttributeFeed
from simyard.apiserver.objects import CachedWorker
from simyard.apiserver.status import StatusError
from simyard.frontend.access import Access
from simyard.frontend.actions import Foreign, Invocations
from simyard.frontend.backend import Check, Verb
from simyard.frontend.changes import Changes
from simyard.frontend.computes import AMQPLINKS, COMPUTES
from simyard.frontend.creation import Creation
from simyard.frontend.ended import Ended
from simyard.frontend.exchange import Identity
from simyard.frontend.identifiers import is_id, object_name
from simyard.frontend.links import MAX_PULLED_BYTES, Pulled, link_path, pulled_of, queue_of, told_by_mixins
from simyard.frontend.mixins import Mixins
from simyard.frontend.registered import Registrations
from simyard.frontend.relisting import Relisting
from simyard.frontend.replicas import Replicas
from simyard.frontend.scaling import Scaling
from simyard.frontend.services import APPLICATIONS, COMPONENTLINKS, COMPONENTS
from simyard.frontend.storing import Storing, each
from simyard.frontend.view import View, split
from simyard.frontend.written import Told, Written, recording
from simyard.guest.values import ClaimedAttributes
from simyard.kube.cache import Cache
from simyard.messaging.events import ReceivedEvent
from simyard.messaging.occi_topology import SERVICE_QUEUES_PREFIX
from simyard.occi.errors import OcciError
from simyard.occi.model import Action, Draft, Entity, Mixin, Model, Value
from simyard.occi.validation import Checked, Update
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import ConflictError

log = logging.getLogger(__name__)

WATCH_SECONDS = 0.05
"""What another replica has written is read from the API server if the watch has not brought it after so long."""


class ForeignAdapters(Foreign, Protocol):
    """What the Cloud4E binding does for links that clients made."""

    async def pull(self, queue: str, model: Model, *, timeout_seconds: float) -> Draft | None:
        """The link as its adapter sees it; None when the adapter does not say."""


class Objects:
    """Entities of one namespace, or of one ``service`` of it. ``run`` must run meanwhile, and that of ``broker``.

    ``foreign``: how to speak with service adapters that registered themselves; None: not at all. ``endpoint``: what the
    URLs of this frontend begin with, "" if only its clients know.
    """

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        service: str = "",
        *,
        foreign: ForeignAdapters | None = None,
        endpoint: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.view = view = View(client, namespace, service, endpoint)
        self._ended = Ended(view)
        self._feed, self._registrations = AttributeFeed(view.directory, view.values), Registrations(view.look)
        self.replicas = Replicas(f"{namespace}/{service}", self.catch_up)
        self.broker = BrokerLink(self.take, (self.replicas.run,))
        self._relisting = Relisting(client, namespace)
        self._clock = clock
        self._foreign = foreign
        self._attributes = Attributes(view.directory, view.values, self.broker, clock=clock)
        self._storing = Storing(client)
        self._access = Access(client, view)
        self._mixins = Mixins(view, self._storing, self._access)
        self._creation = Creation(view, self._storing, self._mixins)
        scaling = Scaling(view, self._storing, self._access)
        self._changes = Changes(
            view, self._storing, self._access, self._creation, self._mixins, scaling, self._attributes
        )
        actions = Actions(client, view.directory, self.broker)
        self._invocations = Invocations(client, view, self._storing, scaling, actions, foreign, self._registrations)

    @property
    def synced(self) -> bool:
        """Whether everything is known."""
        return all(cache.synced.is_set() for cache in self.view.caches)

    def watch_age_seconds(self) -> float:
        """How long ago all that is known was last known to be kept true."""
        return max(cache.age_seconds() for cache in self.view.caches)

    async def run(self) -> None:
        """Keep what is known true until cancelled."""
        await self.view.run()

    def take(self, event: ReceivedEvent) -> None:
        """Take over what a worker tells of itself."""
        self._feed.take(event)
        self._registrations.take(event)

    @asynccontextmanager
    async def visible(self) -> AsyncIterator[None]:
        """See :class:`simyard.frontend.backend.Backend`. What was written before a refusal counts as well."""
        with recording() as record:
            try:
                yield
            except (OcciError, StatusError):
                await self.replicas.confirmed(record)
                raise
        await self.replicas.confirmed(record)

    async def catch_up(self, objects: Iterable[Written], told: Iterable[Told]) -> None:
        """Return when the copies here have what another replica has written.

        The watch has it soon; an object of which the watch is late is read from the API server.
        """
        caches = {cache.resource.plural: cache for cache in self.view.caches}
        wanted = [item for item in objects if item.resource in caches]

        def late() -> list[Written]:
            return [item for item in wanted if not caches[item.resource].reached(item.key, item.uid, item.version)]

        if not await self.view.until(lambda: not late(), WATCH_SECONDS):
            await each(late(), partial(self._read, caches))
        for item in told:
            worker = self.view.directory.worker_by_uid(item.uid)
            service = self.view.service_of(worker.service) if worker is not None else None
            if worker is not None and service is not None:
                known = self.view.values.of(worker)
                newer = {
                    name: value
                    for name, value in item.values.items()
                    if name not in known or known[name].time < item.time
                }
                self.view.values.record(worker, ClaimedAttributes(newer), service.interface, item.time)

    async def _read(self, caches: Mapping[str, Cache[Any]], item: Written) -> None:
        cache = caches[item.resource]
        found = await self._storing.get(cache, item.name, item.namespace)
        if found is None or found.metadata.uid != item.uid:
            cache.bury(item.key, item.uid)

    # What is sync

    @property
    def version(self) -> int:
        """See :class:`simyard.frontend.backend.Backend`."""
        return self.view.version

    def model(self) -> Model:
        """See :class:`simyard.frontend.backend.Backend`."""
        return self.view.model

    def entity(self, path: str) -> Entity | None:
        """See :class:`simyard.frontend.backend.Backend`."""
        return self.view.entity(path)

    def paths(self, location: str) -> tuple[str, ...]:
        """See :class:`simyard.frontend.backend.Backend`."""
        return self.view.paths(location)

    def entities(self, paths: Iterable[str]) -> Iterator[Entity]:
        """See :class:`simyard.frontend.backend.Backend`."""
        for path in paths:
            if (entity := self.view.entity(path)) is not None:
                yield entity

    def part_key(self, path: str) -> Hashable:
        """See :class:`simyard.frontend.backend.Backend`."""
        return self.view.part_key(path)

    def age_seconds(self, path: str) -> float | None:
        """See :class:`simyard.frontend.backend.Backend`."""
        observed = self.view.age_time(path)
        return max(0.0, self._clock() - observed) if observed is not None else None

    def stays(self, path: str) -> bool:
        """See :class:`simyard.frontend.backend.Backend`."""
        return self._changes.stays(path)

    # What may wait

    async def find(self, path: str) -> Entity | None:
        """See :class:`simyard.frontend.backend.Backend`: one question for the object that would have that path."""
        if (entity := self.view.entity(path)) is not None:
            return entity
        location, entity_id = split(path)
        directory, namespace = self.view.directory, self.view.namespace
        if location in (COMPUTES, AMQPLINKS) and is_id(entity_id):
            name = object_name(entity_id)
            found = await self._storing.get(directory.workers, name, namespace)
            if found is None and location == AMQPLINKS:
                await self._storing.get(self.view.links, name, namespace)
        elif location in (APPLICATIONS, COMPONENTS, COMPONENTLINKS):
            await self._relisting.read(directory.services if location == APPLICATIONS else directory.pools)
        return self.view.entity(path)

    def may(self, identity: Identity, verb: Verb, path: str, action: str = "") -> Coroutine[None, None, None]:
        """See :class:`simyard.frontend.backend.Backend` and :mod:`simyard.frontend.access`."""
        return self._access.may(identity, verb, path, action)

    async def create(self, identity: Identity, draft: Checked, *, key: str = "", exact: bool = False) -> Entity:
        """See :class:`simyard.frontend.backend.Backend`."""
        return await self._creation.create(draft, key, exact)

    async def update(
        self, identity: Identity, entity: Entity, update: Update, *, replace: bool, check: Check | None = None
    ) -> Entity:
        """See :class:`simyard.frontend.backend.Backend`."""
        return await self._changes.update(identity, entity, update, check)

    async def delete(self, identity: Identity, entities: Sequence[Entity], *, key: str = "") -> None:
        """See :meth:`simyard.frontend.changes.Changes.delete`."""
        await self._changes.delete(identity, entities, key)

    def was_deleted(self, path: str, key: str) -> bool:
        """See :class:`simyard.frontend.backend.Backend`."""
        return self._ended.under(path, key)

    async def act(
        self,
        identity: Identity,
        entities: Sequence[Entity],
        action: Action,
        attributes: Mapping[str, Value],
        *,
        wait: bool | None,
        key: str = "",
    ) -> Mapping[str, Value] | None:
        """See :class:`simyard.frontend.backend.Backend`."""
        return await self._invocations.act(identity, entities, action, attributes, wait=wait, key=key)

    async def refresh(self, entities: Sequence[Entity], seconds: float = 1.0) -> None:
        """See :class:`simyard.frontend.backend.Backend`."""
        workers: dict[str, dict[str, CachedWorker]] = {}
        async with asyncio.TaskGroup() as group:
            for entity in entities:
                worker = self.view.worker(entity.path)
                if worker is not None and worker.state.good:
                    workers.setdefault(worker.service, {})[worker.metadata.uid] = worker
                for link in self._pulled_links(entity.path):
                    group.create_task(self._pull(link, seconds))
            for name, asked in workers.items():
                if (service := self.view.service_of(name)) is not None:
                    names = [attribute.name for attribute in service.interface.attributes]
                    group.create_task(self._attributes.refresh(list(asked.values()), service, names, seconds))

    def is_due(self, path: str) -> bool:
        """See :class:`simyard.frontend.backend.Backend`."""
        if self._foreign is None or not len(self.view.links):  # every GET asks
            return False
        now = self._clock()
        return any(self.view.answers.is_due(link.metadata.uid, now) for link in self._pulled_links(path))

    async def pull(self, path: str, seconds: float = 1.0) -> None:
        """See :class:`simyard.frontend.backend.Backend`."""
        await asyncio.gather(*(self._pull(link, seconds) for link in self._pulled_links(path)))

    def _pulled_links(self, path: str) -> list[OcciLink]:
        """The links at a path, or from it, whose adapters are of Cloud4E."""
        location, _ = split(path)
        if location == AMQPLINKS:
            found = self.view.link(path)
            links = [found] if found is not None else []
        else:
            links = self.view.links.by("source", path) if location == COMPUTES else []
        return [link for link in links if str(queue_of(link)).startswith(SERVICE_QUEUES_PREFIX)]

    async def _pull(self, link: OcciLink, seconds: float) -> None:
        """Ask the adapter of a link, and keep in the object what has changed: so every frontend shows the same.

        Who is slower than another frontend keeps nothing, and shows what that one has kept.
        """
        view, metadata, queue, path = self.view, link.metadata, str(queue_of(link)), link_path(link)
        if self._foreign is None:
            return
        view.answers.asked(metadata.uid, self._clock())
        told = await self._foreign.pull(queue, view.model, timeout_seconds=seconds)
        if told is None:
            return
        now = self._clock()
        view.answers.answered(metadata.uid, now)
        values = told_by_mixins(link, view.mixins_of(path), told.attributes, view.model)
        current = view.links.get(metadata.namespace, metadata.name)
        known = pulled_of(current) if current is not None else None
        if current is None or values == (known.attributes if known is not None else {}):
            return
        annotation = Pulled(queue, now, values).annotation()
        if len(annotation) > MAX_PULLED_BYTES:
            log.warning(
                "%s: its adapter told %d bytes; more than %d are not kept", path, len(annotation), MAX_PULLED_BYTES
            )
            return
        version = {"resourceVersion": metadata.resource_version}
        try:
            async with self.visible():
                change = {"metadata": {"annotations": {ANNOTATION_OCCI_PULLED: annotation}, **version}}
                await self._storing.merge(view.links, link, change)
        except ConflictError:
            with suppress(OcciError):
                await self._storing.get(view.links, metadata.name, metadata.namespace)
        except OcciError as error:
            log.warning("%s: what its adapter told is not kept: %s", path, error)

    # User mixins

    async def define(self, identity: Identity, definitions: Sequence[Mixin | Action]) -> None:
        """See :class:`simyard.frontend.backend.Backend`."""
        await self._mixins.define(identity, definitions)

    async def undefine(self, identity: Identity, ids: Sequence[str]) -> None:
        """See :class:`simyard.frontend.backend.Backend`."""
        await self._mixins.undefine(ids)

    async def associate(self, identity: Identity, mixin: Mixin, paths: Sequence[str], *, replace: bool) -> None:
        """See :class:`simyard.frontend.backend.Backend`."""
        await self._mixins.associate(mixin, paths, replace=replace)

    async def dissociate(self, identity: Identity, mixin: Mixin, paths: Sequence[str]) -> None:
        """See :class:`simyard.frontend.backend.Backend`."""
        await self._mixins.dissociate(mixin, paths)
