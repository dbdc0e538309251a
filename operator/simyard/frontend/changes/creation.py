# SPDX-License-Identifier: Apache-2.0
"""Creates computes, which are Workers without a pool, and links."""

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
from simyard.frontend.changes.machine_fields import (
    build_mixins_annotation,
    pop_given,
    pop_keys,
    pop_user_data,
    read_resources,
)
from simyard.frontend.changes.storing import ObjectStore
from simyard.frontend.changes.text_limits import MAX_LINK_CHARACTERS, check_lengths
from simyard.frontend.entities.catalogue import PREFIX
from simyard.frontend.entities.computes import (
    AMQPLINKS,
    COMPUTES,
    CORES,
    HOSTNAME,
    MEMORY,
    USER_DATA_VALUE,
)
from simyard.frontend.entities.identifiers import compute_digest, make_id, make_object_name
from simyard.frontend.entities.links import link_path
from simyard.frontend.entities.mixins import Mixins
from simyard.frontend.entities.view import View
from simyard.kube.cache import Cache
from simyard.manifests.worker import build_lone_worker
from simyard.occi.conflicts import ConflictCause, OcciConflictError
from simyard.occi.errors import OcciError, quote_input
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
from simyard.plan.placement import SiteState, choose_sites, place_workers
from simyard.serving.objects import CachedService, CachedWorker
from simyard_adapter.declarations import InvalidValuesError, check_values
from simyard_sites.kubernetes.errors import AlreadyExistsError

MAX_KEPT_ATTRIBUTES_BYTES = 64 * 1024
T = TypeVar("T", CachedWorker, OcciLink)
_BY_THE_SITE = (NETWORK, NETWORKINTERFACE)


@dataclass(frozen=True, slots=True)
class RequestedCompute:
    """The parts of the Worker for a requested compute; ``kept`` are the attributes that Simyard does not use."""

    service: CachedService
    spec: Mapping[str, object]
    kept: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class IdClaim:
    """The OCCI id that a client asks for, and the idempotency key of its request.

    Attributes:
        wanted: the id; "" if the frontend chooses it.
        key: the idempotency key; "" if the request has none.
        exact: true if the entity gets the wanted id or is not created; false if it gets another id when the wanted id
            is taken.
    """

    wanted: str
    key: str = ""
    exact: bool = False

    def is_of_creator(self, item: CachedWorker | OcciLink) -> bool:
        """Return true if this request has created the object, in an earlier delivery."""
        return bool(self.key) and item.metadata.annotations.get(names.ANNOTATION_OCCI_KEY) == compute_digest(self.key)

    def build_annotations(self, entity_id: str) -> dict[str, str]:
        """Return the annotations in which an object keeps its id and the request that has created it."""
        created_by = {names.ANNOTATION_OCCI_KEY: compute_digest(self.key)} if self.key else {}
        return {names.ANNOTATION_OCCI_ID: entity_id, **created_by}


class Creation:
    """A creator of entities. Its caller has checked the rights."""

    def __init__(self, view: View, store: ObjectStore, mixins: Mixins) -> None:
        self._view = view
        self._store = store
        self._mixins = mixins

    async def create(self, draft: Checked, key: str = "", exact: bool = False) -> Entity:
        """Create an entity with its inline links: see :meth:`simyard.frontend.backend.Backend.create`."""
        for kind in (draft.kind.id, *(link.kind.id for link in draft.links)):
            _check_kind(kind)
        claim = IdClaim(draft.id, key, exact)
        if draft.kind.id == COMPUTE:
            return await self._create_compute(draft, claim)
        return await self._create_link(draft, draft.source, claim)

    async def create_links(self, links: tuple[Checked, ...], source: str, key: str = "") -> None:
        """Create all links that start at an entity; if one fails, create no link."""
        for link in links:
            _check_kind(link.kind.id)
        made: list[str] = []
        try:
            for number, link in enumerate(links):
                claim = IdClaim(link.id, f"{key}-link-{number}" if key else "")
                made.append((await self._create_link(link, source, claim)).path)
        except BaseException:
            for path in made:
                if (stored := self._view.link(path)) is not None:
                    await self._store.delete(self._view.links, stored)
            raise

    async def _create_compute(self, draft: Checked, claim: IdClaim) -> Entity:
        workers = self._view.directory.workers
        worker, is_new = await self._find_created(workers, claim), False
        if worker is None:
            worker, is_new = await self._store_under_id(workers, self._worker_body(draft, claim), claim)
        path = self._view.get_path(worker)
        assert path is not None, "the view has every stored Worker"
        try:
            await self.create_links(draft.links, path, claim.key)
            await self._mixins.add_to_entity([mixin.id for mixin in draft.mixins if mixin.user], path)
        except BaseException:
            if is_new:
                await self._store.delete(workers, worker)
            raise
        return self._require_entity(path)

    def _worker_body(self, draft: Checked, claim: IdClaim) -> Callable[[str], Json]:
        """Return a function from the id of the compute to the manifest of its Worker."""
        requested = self._requested_compute(draft)
        _check_licence(requested.service)
        site, named = self._site(requested), build_mixins_annotation(draft)
        return lambda entity_id: build_lone_worker(
            make_object_name(entity_id),
            self._view.namespace,
            {"serviceRef": {"name": requested.service.metadata.name}, "site": site, **requested.spec},
            claim.build_annotations(entity_id) | _kept_annotations(requested.kept) | named,
            datetime.now(UTC),
        )

    def _requested_compute(self, draft: Checked) -> RequestedCompute:
        """Return the compute that a client asks for.

        Raises:
            OcciError: 400 or 409, with the attribute or mixin that is wrong.
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
        user_data = pop_user_data(attributes)
        texts = {TITLE: draft.title, SUMMARY: draft.summary, HOSTNAME: hostname, USER_DATA_VALUE: user_data}
        check_lengths(texts)
        spec: dict[str, object] = {
            "title": draft.title,
            "summary": draft.summary,
            "hostname": hostname,
            "resources": read_resources(
                draft, service, *(pop_given(draft, attributes, name) for name in (CORES, MEMORY))
            ),
            "userData": user_data,
            "sshPublicKeys": pop_keys(attributes),
            "attributes": values,
        }
        return RequestedCompute(service, {name: value for name, value in spec.items() if value}, attributes)

    def _service(self, draft: Checked) -> CachedService:
        """Return the service that the request names by a template or interface, else the oldest available one."""
        catalogue = self._view.catalogue
        named = {name for mixin in draft.mixins if (name := catalogue.find_service(mixin.id)) is not None}
        if len(named) > 1:
            raise OcciError(400, f"Category: a compute runs one service, not {' and '.join(sorted(named))}")
        if named:
            service = self._view.get_service(named.pop())
            if service is None:
                raise OcciConflictError(
                    ConflictCause.SERVICE_GONE,
                    "the SimulationService of the template was deleted at this moment; choose another template",
                )
            return service
        usable = [service for service in self._view.directory.services if service.state.good]
        if not usable:
            namespace = self._view.namespace
            raise OcciConflictError(
                ConflictCause.SERVICE_GONE,
                f"namespace {namespace} has no SimulationService that is available: publish one first",
            )
        return min(usable, key=lambda item: (item.metadata.creation_timestamp or datetime.now(UTC), item.metadata.name))

    def _site(self, requested: RequestedCompute) -> str:
        """Return the name of the emptiest site that a pool without placement rules could use.

        The method never returns an External site, because users cannot give consent over OCCI.
        """
        metadata = Metadata(name="occi", namespace=self._view.namespace)
        reference = LocalReference(name=requested.service.metadata.name)
        alone = WorkerPool(metadata=metadata, spec=WorkerPoolSpec(service_ref=reference, placement=Placement()))
        states = {site.metadata.name: _state(site) for site in self._view.sites}
        choice = choose_sites(alone, states, requested.service.resources)
        if not choice.permitted:
            raise OcciError(503, f"no site can run the compute now: {choice.message}")
        return place_workers(1, choice, own={})[0]

    async def _create_link(self, draft: Checked, source: str, claim: IdClaim) -> Entity:
        links = self._view.links
        start = self._view.find_entity(source)
        if start is None or start.kind != COMPUTE:
            raise OcciError(400, f"attribute occi.core.source: {quote_input(source)} is not a compute of this frontend")
        for mixin in draft.mixins:
            if not mixin.user:
                raise OcciError(403, f"{mixin.id} is a mixin of the provider: clients' links cannot have it")
        check_lengths({TITLE: draft.title, TARGET: draft.target}, MAX_LINK_CHARACTERS)
        worker = self._view.find_worker(source)

        def body(entity_id: str) -> Json:
            metadata = {
                "name": make_object_name(entity_id),
                "namespace": self._view.namespace,
                "annotations": claim.build_annotations(entity_id),
                "ownerReferences": [_owner_reference(worker)] if worker is not None else [],
            }
            return _occi_link(draft, source, metadata)

        link, is_new = await self._find_created(links, claim), False
        if link is None:
            link, is_new = await self._store_under_id(links, body, claim)
        path = link_path(link)
        try:
            await self._mixins.add_to_entity([mixin.id for mixin in draft.mixins], path)
        except BaseException:
            if is_new:
                await self._store.delete(links, link)
            raise
        return self._require_entity(path)

    async def _find_created(self, cache: Cache[T], claim: IdClaim) -> T | None:
        """Return the object that an earlier delivery of this request created at any frontend; None without one."""
        for entity_id in (claim.wanted, make_id(claim.key)) if claim.key else ():
            if entity_id:
                found = await self._store.get(cache, make_object_name(entity_id), self._view.namespace)
                if found is not None and claim.is_of_creator(found):
                    return found
        return None

    async def _store_under_id(self, cache: Cache[T], body: Callable[[str], Json], claim: IdClaim) -> tuple[T, bool]:
        """Store an object under the id that the client wants, or under a new id.

        The object gets a new id only if the wanted id is in use and the claim is not exact. The result is the object,
        and true if this call created it; false if another delivery of the request created it at the same moment.
        """
        candidates = [] if claim.exact else [make_id(claim.key)]
        if claim.wanted and await self._is_free(cache, claim):
            candidates.insert(0, claim.wanted)
        for entity_id in candidates:
            try:
                return await self._store.create(cache, body(entity_id)), True
            except AlreadyExistsError:
                found = await self._store.get(cache, make_object_name(entity_id), self._view.namespace)
                if found is not None and claim.is_of_creator(found):
                    return found, False
        if claim.exact:
            raise OcciConflictError(
                ConflictCause.ID_IN_USE,
                f"id {claim.wanted}: another entity has it, or gets it at this moment; choose another id",
            )
        raise OcciConflictError(
            ConflictCause.CONCURRENT_CHANGE, "another request creates the same entity at this moment; try again"
        )

    async def _is_free(self, cache: Cache[T], claim: IdClaim) -> bool:
        """Return true if no entity has the wanted id.

        A compute and its amqplink have the same id, so no other amqplink may have this id.
        """
        there = self._view.find_worker(COMPUTES + claim.wanted) or self._view.link(AMQPLINKS + claim.wanted)
        if there is not None:
            return claim.is_of_creator(there)
        name, namespace = make_object_name(claim.wanted), self._view.namespace
        if cache.resource is names.WORKERS:
            return await self._store.get(self._view.links, name, namespace) is None
        return await self._store.get(self._view.directory.workers, name, namespace) is None

    def _require_entity(self, path: str) -> Entity:
        entity = self._view.find_entity(path)
        if entity is None:
            raise OcciConflictError(
                ConflictCause.CONCURRENT_CHANGE, f"{path} was created, and deleted at the same moment"
            )
        return entity


def build_kept_annotation(attributes: Mapping[str, Value]) -> str:
    """Return the annotation that keeps attributes which Simyard does not use.

    Raises:
        OcciError: 400, they are too large.
    """
    text = orjson.dumps(dict(attributes)).decode()
    if len(text) > MAX_KEPT_ATTRIBUTES_BYTES:
        raise OcciError(
            400,
            f"attributes: together they have more than {MAX_KEPT_ATTRIBUTES_BYTES} bytes; send fewer or shorter ones",
        )
    return text


def _kept_annotations(attributes: Mapping[str, Value]) -> dict[str, str]:
    return {names.ANNOTATION_OCCI_ATTRIBUTES: build_kept_annotation(attributes)} if attributes else {}


def _check_kind(kind: str) -> None:
    """Refuse a kind whose entities clients cannot create.

    Raises:
        OcciError: 501.
    """
    if kind in (COMPUTE, AMQPLINK):
        return
    term = kind.rpartition("#")[2]
    if kind in _BY_THE_SITE:
        raise OcciError(501, f"{term}: the sites give every machine its network; clients cannot create or attach one")
    if kind in (APPLICATION, COMPONENT, COMPONENTLINK):
        remedy = "vendors publish SimulationServices, and start_workers of an application creates its component"
        raise OcciError(501, f"{term}: clients cannot create this entity over OCCI; {remedy}")
    raise OcciError(501, f"{term}: entities of this kind cannot be created here; compute and amqplink can")


def _check_licence(service: CachedService) -> None:
    """Raise an error if the service has no free seat, or if workers of pools wait for all free seats.

    Raises:
        OcciError: 409.
    """
    if service.seats is not None and service.taken >= service.seats:
        raise OcciConflictError(
            ConflictCause.NO_FREE_SEAT,
            f"{service.metadata.name}: its licence has {service.seats} seats, and {service.taken} are occupied or"
            " waited for; delete a compute, or scale a component in",
        )


def _state(site: CloudSite) -> SiteState:
    capacity = find_condition(site.status.conditions, ConditionType.CAPACITY_AVAILABLE)
    return SiteState(site, site.status.workers.total, exhausted=capacity is not None and capacity.status == "False")


def _owner_reference(worker: CachedWorker) -> Json:
    """Return the owner reference to a Worker, so that Kubernetes deletes the links from the Worker together with it."""
    metadata = worker.metadata
    reference = {"apiVersion": names.API_VERSION, "kind": names.WORKERS.kind}
    return {**reference, "name": metadata.name, "uid": metadata.uid}


def _occi_link(draft: Checked, source: str, metadata: Json) -> Json:
    """Return the OcciLink for a link."""
    return {
        "apiVersion": names.OCCI_LINKS.api_version,
        "kind": names.OCCI_LINKS.kind,
        "metadata": metadata,
        "spec": {
            "kind": draft.kind.id,
            "source": source,
            "target": draft.target,
            "targetKind": list(draft.target_kind),
            "title": draft.title,
            "attributes": dict(draft.attributes),
        },
    }
