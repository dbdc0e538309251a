"""POST: Workers that stand alone as computes, and links that clients make."""

from __future__ import annotations

import base64
import binascii
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
from simyard.api.simulation_service import Resources
from simyard.api.worker_pool import Placement, WorkerPool, WorkerPoolSpec
from simyard.apiserver.objects import CachedService, CachedWorker
from simyard.build.worker import lone_worker
from simyard.frontend.catalogue import PREFIX, RESOURCE_TPL_SCHEME, SIZES
from simyard.frontend.computes import COMPUTES, CORES, HOSTNAME, MEMORY, SSH_PUBLIC_KEY
from simyard.frontend.identifiers import digest, new_id, object_name
from simyard.frontend.links import link_path
from simyard.frontend.mixins import Mixins
from simyard.frontend.storing import Storing
from simyard.frontend.view import View
from simyard.kube.cache import Cache
from simyard.occi.errors import OcciError, shown
from simyard.occi.model import Entity, Value
from simyard.occi.standard import (
    AMQPLINK,
    APPLICATION,
    COMPONENT,
    COMPONENTLINK,
    COMPUTE,
    NETWORK,
    NETWORKINTERFACE,
    STORAGE,
    STORAGELINK,
)
from simyard.occi.validation import Checked
from simyard.plan.placement import SiteState, permitted_sites, place
from simyard_adapter.declarations import InvalidValuesError, check_values
from simyard_sites.kubernetes.errors import AlreadyExistsError

USER_DATA_VALUE = "occi.compute.userdata"
OPENSTACK_USER_DATA_VALUE = "org.openstack.compute.user_data"
OPENSTACK_KEY_VALUE = "org.openstack.credentials.publickey.data"
MOST_HOSTNAME_CHARACTERS = 253
MOST_KEYS = 16
MOST_KEPT_BYTES = 64 * 1024
T = TypeVar("T", CachedWorker, OcciLink)
_BY_THE_SITE = (NETWORK, STORAGE, NETWORKINTERFACE, STORAGELINK)


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

    async def create(self, draft: Checked, key: str = "") -> Entity:
        """See :class:`simyard.frontend.backend.Backend`."""
        for kind in (draft.kind.id, *(link.kind.id for link in draft.links)):
            _check_kind(kind)
        if draft.kind.id == COMPUTE:
            return await self._compute(draft, key)
        return await self._link(draft, draft.source, key)

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

    async def _compute(self, draft: Checked, key: str) -> Entity:
        wanted = self.wanted(draft)
        _check_licence(wanted.service)
        site = self._site(wanted)
        workers = self._view.directory.workers

        def body(entity_id: str) -> Json:
            return lone_worker(
                object_name(entity_id),
                self._view.namespace,
                {"serviceRef": {"name": wanted.service.metadata.name}, "site": site, **wanted.spec},
                _annotations(entity_id, key) | _kept(wanted.kept),
                datetime.now(UTC),
            )

        worker, is_new = await self._store(workers, body, draft.id, COMPUTES, key)
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
        if len(hostname) > MOST_HOSTNAME_CHARACTERS:
            raise OcciError(400, f"attribute {HOSTNAME}: has more than {MOST_HOSTNAME_CHARACTERS} characters")
        spec: dict[str, object] = {
            "title": draft.title,
            "summary": draft.summary,
            "hostname": hostname,
            "resources": _resources(draft, service, attributes.pop(CORES, None), attributes.pop(MEMORY, None)),
            "userData": _user_data(attributes),
            "sshPublicKeys": _keys(attributes),
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

    async def _link(self, draft: Checked, source: str, key: str) -> Entity:
        links = self._view.links
        start = self._view.entity(source)
        if start is None or start.kind != COMPUTE:
            raise OcciError(400, f"attribute occi.core.source: {shown(source)} is no compute of ours")
        for mixin in draft.mixins:
            if not mixin.user:
                raise OcciError(403, f"{mixin.id} is the provider's: it is for links that the provider makes")
        worker = self._view.worker(source)

        def body(entity_id: str) -> Json:
            return _occi_link(draft, source, worker, entity_id, key, self._view.namespace)

        link, is_new = await self._store(links, body, draft.id, f"/{draft.kind.term}/", key)
        path = link_path(link)
        try:
            await self._mixins.give([mixin.id for mixin in draft.mixins], path)
        except BaseException:
            if is_new:
                await self._storing.delete(links, link)
            raise
        return self._shown(path)

    async def _store(
        self, cache: Cache[T], body: Callable[[str], Json], wanted: str, location: str, key: str
    ) -> tuple[T, bool]:
        """Store an object under the id that a client wants, if nobody has it, else under a new one; and whether it is
        new, or what the same request has made before.
        """
        candidates = [new_id(key)]
        if wanted and (key or self._view.entity(location + wanted) is None):
            candidates.insert(0, wanted)  # with a key: it may be there because this very request has made it
        for entity_id in candidates:
            try:
                return await self._storing.create(cache, body(entity_id)), True
            except AlreadyExistsError:
                found = await self._storing.get(cache, object_name(entity_id), self._view.namespace)
                made_by = found.metadata.annotations.get(names.ANNOTATION_OCCI_KEY) if found is not None else None
                if key and found is not None and made_by == digest(key):
                    return found, False
        raise OcciError(409, "another request creates the same entity at this moment; try again")

    def _shown(self, path: str) -> Entity:
        entity = self._view.entity(path)
        if entity is None:
            raise OcciError(409, f"{path} was created, and deleted at the same time")
        return entity


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
        raise OcciError(501, f"{term}: the sites give every machine its network and disk; none can be made or attached")
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


def _resources(draft: Checked, service: CachedService, cores: Value | None, memory: Value | None) -> Json | None:
    """The size that is asked for; None: the service's own."""
    terms = [mixin.term for mixin in draft.mixins if mixin.scheme == RESOURCE_TPL_SCHEME]
    template = SIZES.get(terms[0]) if terms else None
    if cores is None and memory is None:
        return template.to_json() if template is not None else None
    base = template or service.resources
    mebibytes = round(float(str(memory)) * 1024) if memory is not None else 0
    if memory is not None and mebibytes < 1:
        raise OcciError(400, f"attribute {MEMORY}: {memory} GB is less than 1 MiB")
    return Resources(
        cpu=int(str(cores)) if cores is not None else base.cpu,
        memory=f"{mebibytes}Mi" if memory is not None else base.memory,
    ).to_json()


def _user_data(attributes: dict[str, Value]) -> str:
    """The user data, out of the attributes."""
    plain = str(attributes.pop(USER_DATA_VALUE, ""))
    encoded = str(attributes.pop(OPENSTACK_USER_DATA_VALUE, ""))
    if not encoded:
        return plain
    try:
        return base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        raise OcciError(400, f"attribute {OPENSTACK_USER_DATA_VALUE}: is not UTF-8 text in base64") from None


def _keys(attributes: dict[str, Value]) -> list[str]:
    """The public keys, one per line, out of the attributes."""
    texts = [str(attributes.pop(name, "")) for name in (SSH_PUBLIC_KEY, OPENSTACK_KEY_VALUE)]
    keys = [line.strip() for text in texts for line in text.splitlines() if line.strip()]
    if len(keys) > MOST_KEYS:
        raise OcciError(400, f"attribute {SSH_PUBLIC_KEY}: has more than {MOST_KEYS} keys")
    return keys


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
