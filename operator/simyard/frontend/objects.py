"""The backend of the handlers: our objects as OCCI (:class:`simyard.frontend.backend.Backend`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from simyard.apiserver.actions import Actions
from simyard.apiserver.attributes import Attributes
from simyard.apiserver.broker import BrokerLink
from simyard.apiserver.feed import AttributeFeed
from simyard.apiserver.objects import CachedWorker
from simyard.frontend.access import Access
from simyard.frontend.actions import Foreign, Invocations
from simyard.frontend.backend import Verb
from simyard.frontend.changes import Changes
from simyard.frontend.computes import AMQPLINKS, COMPUTES, QUEUE
from simyard.frontend.creation import Creation
from simyard.frontend.ended import Ended
from simyard.frontend.exchange import Identity
from simyard.frontend.identifiers import is_id, object_name
from simyard.frontend.mixins import Mixins
from simyard.frontend.registered import Registrations
from simyard.frontend.relisting import Relisting
from simyard.frontend.scaling import Scaling
from simyard.frontend.services import APPLICATIONS, COMPONENTLINKS, COMPONENTS
from simyard.frontend.storing import Storing
from simyard.frontend.view import View, split
from simyard.messaging.events import ReceivedEvent
from simyard.occi.model import Action, Draft, Entity, Mixin, Model, Value
from simyard.occi.validation import Checked, Update
from simyard_sites.kubernetes.client import KubeClient


class ForeignAdapters(Foreign, Protocol):
    """What the Cloud4E binding does for links that clients made."""

    async def pull(self, queue: str, model: Model, *, timeout_seconds: float) -> Draft | None:
        """The link as its adapter sees it; None when the adapter does not say."""


class Objects:
    """Entities of one namespace, or of one ``service`` of it. ``run`` must run meanwhile, and that of ``broker``.

    ``foreign``: how to speak with service adapters that registered themselves; None: not at all.
    """

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        service: str = "",
        *,
        foreign: ForeignAdapters | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.view = view = View(client, namespace, service)
        self._ended = Ended(view)
        self._feed, self._registrations = AttributeFeed(view.directory, view.values), Registrations(view.look)
        self.broker = BrokerLink(self.take)
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

    async def take(self, events: Sequence[ReceivedEvent]) -> None:
        """Take over what workers tell of themselves."""
        await self._feed.take(events)
        self._registrations.take(events)

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

    async def update(self, identity: Identity, entity: Entity, update: Update, *, replace: bool) -> Entity:
        """See :class:`simyard.frontend.backend.Backend`."""
        return await self._changes.update(identity, entity, update)

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
                elif worker is None and self._foreign is not None and split(entity.path)[0] == AMQPLINKS:
                    group.create_task(self._pull(self._foreign, entity, seconds))
            for name, asked in workers.items():
                if (service := self.view.service_of(name)) is not None:
                    names = [attribute.name for attribute in service.interface.attributes]
                    group.create_task(self._attributes.refresh(list(asked.values()), service, names, seconds))

    async def _pull(self, foreign: ForeignAdapters, link: Entity, seconds: float) -> None:
        queue = link.attributes.get(QUEUE)
        if not isinstance(queue, str):
            return
        told = await foreign.pull(queue, self.view.model, timeout_seconds=seconds)
        if told is not None and self.view.link(link.path) is not None:
            self.view.pulled.record(link.path, dict(told.attributes), self._clock())

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
