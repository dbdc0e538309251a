"""POST: Workers that stand alone as computes, and links that clients make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

import orjson

from simyard.api import names
from simyard.api.base import Json, LocalReference, Metadata, find_condition
from simyard.api.cloud_site import CloudSite
from simyard.api.names import ConditionType
from simyard.api.occi import OcciLink
from simyard.api.worker_pool import Placement, WorkerPool, WorkerPoolSpec
from simyard.apiserver.objects import CachedService, CachedWorker
from simyard.build.worker import lone_worker
from simyard.frontend.catalogue import PREFIX
from simyard.frontend.computes import (
    AMQPLINKS,
    COMPUTES,
    CORES,
    HOSTNAME,
    MEMORY,
    USER_DATA_VALUE,
)
from simyard.frontend.identifiers import digest, new_id, object_name
from simyard.frontend.limits import MOST_OF_LINKS, check_lengths
from simyard.frontend.links import link_path
from simyard.frontend.machines import (
    keys_of,
    named_mixins,
    resources_of,
    taken,
    user_data_of,
)
from simyard.frontend.mixins import Mixins
from simyard.frontend.storing import Storing
from simyard.frontend.view import View
from simyard.kube.cache import Cache
from simyard.occi.errors import OcciError, shown
from simyard.occi.model import SUMMARY, TARGET, TITLE, Entity, Value
from simyard.occi.standard import (
    AMQPLINK,
    APPLICATION,
    COMPONENT,
    COMPONENTLINK,
    COMPUTE,
    NETWORK,
    NETWORKINTERFACE,
)
from simyard.occi.validation import Checked
from simyard.plan.placement import SiteState, permitted_sites, place
from simyard_adapter.declarations import InvalidValuesError, check_values
from simyard_sites.kubernetes.errors import AlreadyExistsError

MOST_KEPT_BYTES = 64 * 1024
T = TypeVar("T", CachedWorker, OcciLink)
_BY_THE_SITE = (NETWORK, NETWORKINTERFACE)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A compute that somebody wants, as parts of its Worker; ``kept`` are attributes that mean nothing to us."""

    service: CachedService
    spec: Mapping[str, object]
    kept: Mapping[str, Value]


class Creation:
    """Makes entities. Who may was asked before."""

    def __init__(self, view: View, storing: Storing, mixins: Mixins) -> None:
        self._view = view
        self._storing = storing
        self._mixins = mixins

    async def create(self, draft: Checked, key: str = "", exact: bool = False) -> Entity:
        """See :class:`simyard.frontend.backend.Backend`."""
        for kind in (draft.kind.id, *(link.kind.id for link in draft.links)):
            _check_kind(kind)
        if draft.kind.id == COMPUTE:
            return await self._compute(draft, key, exact)
        return await self._link(draft, draft.source, key, exact)

    async def link_all(self, links: tuple[Checked, ...], source: str, key: str = "") -> None:
        """Make links that start at an entity, all or none."""
        for link in links:
            _check_kind(link.kind.id)
        made: list[str] = []
        try:
            for number, link in enumerate(links):
                made.append((await self._link(link, source, f"{key}-link-{number}" if key else "")).path)
        except BaseException:
            for path in made:
                if (stored := self._view.link(path)) is not None:
                    await self._storing.delete(self._view.links, stored)
            raise

    async def _compute(self, draft: Checked, key: str, exact: bool) -> Entity:
        workers = self._view.directory.workers
        worker, is_new = await self._made_before(workers, draft.id, key), False
        if worker is None:
            worker, is_new = await self._store(workers, self._body(draft, key), draft.id, key, exact)
        path = self._view.path_of(worker)
        assert path is not None, "what was stored is in the view"
        try:
            await self.link_all(draft.links, path, key)
            await self._mixins.give([mixin.id for mixin in draft.mixins if mixin.user], path)
        except BaseException:
            if is_new:
                await self._storing.delete(workers, worker)
            raise
        return self._shown(path)

    def _body(self, draft: Checked, key: str) -> Callable[[str], Json]:
        """The Worker that becomes the compute, by the id of the compute."""
        wanted = self.wanted(draft)
        _check_licence(wanted.service)
        site, named = self._site(wanted), named_mixins(draft)
        return lambda entity_id: lone_worker(
            object_name(entity_id),
            self._view.namespace,
            {"serviceRef": {"name": wanted.service.metadata.name}, "site": site, **wanted.spec},
            _annotations(entity_id, key) | _kept(wanted.kept) | named,
            datetime.now(UTC),
        )

    def wanted(self, draft: Checked) -> Wanted:
        """What is wanted of a compute.

        Raises:
            OcciError: 400 or 409, and which attribute or mixin.
        """
        service = self._service(draft)
        attributes = dict(draft.attributes)
        given = {
            name.removeprefix(PREFIX): attributes.pop(name) for name in list(attributes) if name.startswith(PREFIX)
        }
        given = {name: value for name, value in given.items() if PREFIX + name in draft.given}
        try:
            values = check_values(given, service.interface.attributes, PREFIX.rstrip("."), partial=True)
        except InvalidValuesError as error:
            raise OcciError(400, f"attribute {error}") from None
        hostname = str(attributes.pop(HOSTNAME, ""))
        user_data = user_data_of(attributes)
        texts = {TITLE: draft.title, SUMMARY: draft.summary, HOSTNAME: hostname, USER_DATA_VALUE: user_data}
        check_lengths(texts)
        spec: dict[str, object] = {
            "title": draft.title,
            "summary": draft.summary,
            "hostname": hostname,
            "resources": resources_of(draft, service, *(taken(draft, attributes, name) for name in (CORES, MEMORY))),
            "userData": user_data,
            "sshPublicKeys": keys_of(attributes),
            "attributes": values,
        }
        return Wanted(service, {name: value for name, value in spec.items() if value}, attributes)

    def _service(self, draft: Checked) -> CachedService:
        """The service that a template or an interface names, or else the oldest that can be used."""
        catalogue = self._view.catalogue
        named = {name for mixin in draft.mixins if (name := catalogue.service_of(mixin.id)) is not None}
        if len(named) > 1:
            raise OcciError(400, f"Category: a compute runs one service, not {' and '.join(sorted(named))}")
        if named:
            service = self._view.service_of(named.pop())
            if service is None:
                raise OcciError(409, "the service of the template has just been removed")
            return service
        usable = [service for service in self._view.directory.services if service.state.good]
        if not usable:
            namespace = self._view.namespace
            raise OcciError(409, f"namespace {namespace} has no SimulationService that can be used: publish one first")
        return min(usable, key=lambda item: (item.metadata.creation_timestamp or datetime.now(UTC), item.metadata.name))

    def _site(self, wanted: Wanted) -> str:
        """Where the machine runs: at the emptiest of the sites that a pool without a choice of its own could use.

        Nobody can consent to an External site over OCCI, so none is used.
        """
        metadata = Metadata(name="occi", namespace=self._view.namespace)
        reference = LocalReference(name=wanted.service.metadata.name)
        alone = WorkerPool(metadata=metadata, spec=WorkerPoolSpec(service_ref=reference, placement=Placement()))
        states = {site.metadata.name: _state(site) for site in self._view.sites}
        choice = permitted_sites(alone, states, wanted.service.resources)
        if not choice.permitted:
            raise OcciError(503, f"no site can take the compute now: {choice.message}")
        return place(1, choice, own={})[0]

    async def _link(self, draft: Checked, source: str, key: str, exact: bool = False) -> Entity:
        links = self._view.links
        start = self._view.entity(source)
        if start is None or start.kind != COMPUTE:
            raise OcciError(400, f"attribute occi.core.source: {shown(source)} is no compute of ours")
        for mixin in draft.mixins:
            if not mixin.user:
                raise OcciError(403, f"{mixin.id} is the provider's: it is for links that the provider makes")
        check_lengths({TITLE: draft.title, TARGET: draft.target}, MOST_OF_LINKS)
        worker = self._view.worker(source)

        def body(entity_id: str) -> Json:
            return _occi_link(draft, source, worker, entity_id, key, self._view.namespace)

        link, is_new = await self._made_before(links, draft.id, key), False
        if link is None:
            link, is_new = await self._store(links, body, draft.id, key, exact)
        path = link_path(link)
        try:
            await self._mixins.give([mixin.id for mixin in draft.mixins], path)
        except BaseException:
            if is_new:
                await self._storing.delete(links, link)
            raise
        return self._shown(path)

    async def _made_before(self, cache: Cache[T], wanted: str, key: str) -> T | None:
        """What the same request has made when it was delivered before, here or to another frontend."""
        for entity_id in (wanted, new_id(key)) if key else ():
            if entity_id:
                found = await self._storing.get(cache, object_name(entity_id), self._view.namespace)
                if found is not None and _is_made_by(key, found):
                    return found
        return None

    async def _store(
        self, cache: Cache[T], body: Callable[[str], Json], wanted: str, key: str, exact: bool
    ) -> tuple[T, bool]:
        """Store an object under the id that a client wants, if nobody has it, else under a new one (but not if it must
        be ``exact``); and whether it is new, or what the same request has made at the same moment.
        """
        candidates = [] if exact else [new_id(key)]
        if wanted and await self._is_free(wanted, cache, key):
            candidates.insert(0, wanted)
        for entity_id in candidates:
            try:
                return await self._storing.create(cache, body(entity_id)), True
            except AlreadyExistsError:
                found = await self._storing.get(cache, object_name(entity_id), self._view.namespace)
                if key and found is not None and _is_made_by(key, found):
                    return found, False
        if exact:
            raise OcciError(409, f"id {wanted}: another entity has it, or gets it at this moment")
        raise OcciError(409, "another request creates the same entity at this moment; try again")

    async def _is_free(self, wanted: str, cache: Cache[T], key: str) -> bool:
        """Whether nobody has an id. A compute and its amqplink have the same, so no other amqplink may have it."""
        there = self._view.worker(COMPUTES + wanted) or self._view.link(AMQPLINKS + wanted)
        if there is not None:
            return bool(key) and _is_made_by(key, there)
        name, namespace = object_name(wanted), self._view.namespace
        if cache.resource is names.WORKERS:
            return await self._storing.get(self._view.links, name, namespace) is None
        return await self._storing.get(self._view.directory.workers, name, namespace) is None

    def _shown(self, path: str) -> Entity:
        entity = self._view.entity(path)
        if entity is None:
            raise OcciError(409, f"{path} was created, and deleted at the same time")
        return entity


def _is_made_by(key: str, item: CachedWorker | OcciLink) -> bool:
    return item.metadata.annotations.get(names.ANNOTATION_OCCI_KEY) == digest(key)


def kept_annotation(attributes: Mapping[str, Value]) -> str:
    """Attributes that mean nothing to the platform, as the annotation that keeps them.

    Raises:
        OcciError: 400, they are too many.
    """
    text = orjson.dumps(dict(attributes)).decode()
    if len(text) > MOST_KEPT_BYTES:
        raise OcciError(400, f"attributes: more than {MOST_KEPT_BYTES} bytes in all cannot be kept")
    return text


def _kept(attributes: Mapping[str, Value]) -> dict[str, str]:
    return {names.ANNOTATION_OCCI_ATTRIBUTES: kept_annotation(attributes)} if attributes else {}


def _annotations(entity_id: str, key: str) -> dict[str, str]:
    made_by = {names.ANNOTATION_OCCI_KEY: digest(key)} if key else {}
    return {names.ANNOTATION_OCCI_ID: entity_id, **made_by}


def _check_kind(kind: str) -> None:
    """Refuse, and say so, what cannot be made.

    Raises:
        OcciError: 501.
    """
    if kind in (COMPUTE, AMQPLINK):
        return
    term = kind.rpartition("#")[2]
    if kind in _BY_THE_SITE:
        raise OcciError(501, f"{term}: the sites give every machine its network; none can be made or attached")
    if kind in (APPLICATION, COMPONENT, COMPONENTLINK):
        remedy = "vendors publish SimulationServices, and start_workers of an application makes its component"
        raise OcciError(501, f"{term}: cannot be made over OCCI; {remedy}")
    raise OcciError(501, f"{term}: entities of this kind cannot be made here; compute and amqplink can")


def _check_licence(service: CachedService) -> None:
    """Every compute takes a seat; those who wait already go first.

    Raises:
        OcciError: 409, there is none left.
    """
    if service.seats is not None and service.taken >= service.seats:
        raise OcciError(
            409,
            f"{service.metadata.name}: its licence has {service.seats} seats, and {service.taken} are taken or waited"
            " for; delete a compute, or scale a component in",
        )


def _state(site: CloudSite) -> SiteState:
    capacity = find_condition(site.status.conditions, ConditionType.CAPACITY_AVAILABLE)
    return SiteState(site, site.status.workers.total, exhausted=capacity is not None and capacity.status == "False")


def _occi_link(
    draft: Checked, source: str, worker: CachedWorker | None, entity_id: str, key: str, namespace: str
) -> Json:
    """An OcciLink. It goes with the Worker that it starts at."""
    owner = []
    if worker is not None:
        reference = {"apiVersion": names.API_VERSION, "kind": names.WORKERS.kind}
        owner = [{**reference, "name": worker.metadata.name, "uid": worker.metadata.uid}]
    return {
        "apiVersion": names.OCCI_LINKS.api_version,
        "kind": names.OCCI_LINKS.kind,
        "metadata": {
            "name": object_name(entity_id),
            "namespace": namespace,
            "annotations": _annotations(entity_id, key),
            "ownerReferences": owner,
        },
        "spec": {
            "kind": draft.kind.id,
            "source": source,
            "target": draft.target,
            "targetKind": list(draft.target_kind),
            "title": draft.title,
            "attributes": dict(draft.attributes),
        },
    }
