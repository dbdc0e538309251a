# SPDX-License-Identifier: Apache-2.0
"""Builds the categories of a frontend: those of the standard, of the services and of the clients. Pure.

A service ``beam`` adds the following categories:

- the template ``http://simyard.dev/occi/os_tpl#beam``: a compute with this template runs the service;
- the mixin ``http://simyard.dev/occi/service/beam#interface`` on the service's computes and their amqplinks: the
attributes and
  actions of its interface, as ``cloud4e.NAME`` and ``http://cloud4e/beam/action#NAME`` (the Cloud4E binding);
- the mixin ``http://simyard.dev/occi/service/beam#master`` on the service's application, with ``start_workers``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace

from simyard.api.occi import OcciAttribute, OcciMixin
from simyard.api.quantities import parse_cores, parse_mebibytes
from simyard.api.simulation_service import Resources
from simyard.occi.model import Action, AttributeSpec, Category, Mixin, Model, Value, ValueType
from simyard.occi.standard import (
    AMQPLINK,
    APPLICATION,
    COMPONENT,
    COMPUTE,
    OS_TPL,
    RESOURCE_TPL,
    STANDARD,
    STORAGE,
    STORAGE_ACTION_SCHEME,
    STORAGELINK,
    STORAGELINK_ACTION_SCHEME,
)
from simyard.occi.values import drop_zero_fraction
from simyard.serving.objects import CachedService
from simyard_adapter.declarations import Value as Declared
from simyard_adapter.declarations import ValueType as DeclaredType

OS_TPL_SCHEME = "http://simyard.dev/occi/os_tpl#"
RESOURCE_TPL_SCHEME = "http://simyard.dev/occi/resource_tpl#"
INFRASTRUCTURE_SCHEME = "http://simyard.dev/occi/infrastructure#"
PLATFORM_SCHEME = "http://simyard.dev/occi/platform#"
PLATFORM_ACTION_SCHEME = "http://simyard.dev/occi/platform/action#"
WORKER = INFRASTRUCTURE_SCHEME + "worker"
SCALABLE = PLATFORM_SCHEME + "scalable"
START_WORKERS = "start_workers"
PREFIX = "cloud4e."
OBSERVED = "org.simyard.observed"

_TERM = re.compile(r"[a-z0-9_-]+")
_UNSAFE = re.compile(r"[^a-z0-9_-]+")
_UNTITLED = re.compile(r"[,;=\"\\\x00-\x1f]+")
_TYPES = {
    DeclaredType.STRING: ValueType.STRING,
    DeclaredType.INTEGER: ValueType.NUMBER,
    DeclaredType.NUMBER: ValueType.NUMBER,
    DeclaredType.BOOLEAN: ValueType.BOOLEAN,
    DeclaredType.ARRAY: ValueType.ARRAY,
    DeclaredType.OBJECT: ValueType.OBJECT,
    DeclaredType.FILE: ValueType.STRING,
}

SIZES: Mapping[str, Resources] = {
    "small": Resources(cpu=1, memory="1Gi"),
    "medium": Resources(cpu=2, memory="4Gi"),
    "large": Resources(cpu=4, memory="8Gi"),
    "huge": Resources(cpu=8, memory="16Gi"),
}
"""The size templates by their terms. The template ``default`` means the service's own size."""
DEFAULT_SIZE = "default"

SCALE = Action(
    PLATFORM_ACTION_SCHEME,
    "scale",
    "Set the number of workers",
    (
        AttributeSpec("replicas", ValueType.NUMBER, required=True, pattern="[0-9]{1,6}", description="Workers"),
        AttributeSpec("wait", ValueType.BOOLEAN, default=False, description="Answer when all of them are ready"),
    ),
)
_START_PARAMETERS = (
    AttributeSpec("n", ValueType.NUMBER, required=True, pattern="[0-9]{1,6}", description="Minimum of workers"),
    AttributeSpec("wait", ValueType.BOOLEAN, default=False, description="Answer when all of them are ready"),
)


_OF_COMPUTE = {spec.name: spec for category in STANDARD if category.id == COMPUTE for spec in category.attributes}


def _of_size(size: Resources) -> tuple[AttributeSpec, ...]:
    """Return the attributes that a size template sets, as the kind declares them."""
    gibibytes = parse_mebibytes(size.memory) / 1024
    values: Mapping[str, Value] = {
        "occi.compute.cores": parse_cores(size.cpu),
        "occi.compute.memory": drop_zero_fraction(gibibytes),
    }
    return tuple(replace(_OF_COMPUTE[name], default=value) for name, value in values.items())


def _shown(name: str, description: str, kind: ValueType = ValueType.STRING) -> AttributeSpec:
    return AttributeSpec(name, kind, mutable=False, description=description)


_SERVED = tuple(
    category
    for category in STANDARD
    if category.id not in (STORAGE, STORAGELINK)
    and category.scheme not in (STORAGE_ACTION_SCHEME, STORAGELINK_ACTION_SCHEME)
)
"""The categories of the standard that Simyard's objects can have; not storage, because sites do not report disks."""

_PROVIDED: tuple[Category, ...] = (
    Mixin(
        INFRASTRUCTURE_SCHEME,
        "worker",
        "Worker of Simyard",
        "/worker/",
        applies=(COMPUTE,),
        attributes=(
            _shown("org.simyard.worker", "Name of the Worker"),
            _shown("org.simyard.service", "Name of its SimulationService"),
            _shown("org.simyard.pool", "Name of its WorkerPool"),
            _shown("org.simyard.site", "Name of its CloudSite"),
            _shown("org.simyard.address", "Network address"),
        ),
    ),
    Mixin(
        PLATFORM_SCHEME,
        "scalable",
        "Workers of a service",
        "/scalable/",
        applies=(APPLICATION, COMPONENT),
        attributes=(
            _shown("org.simyard.replicas", "Desired number of workers", ValueType.NUMBER),
            _shown("org.simyard.ready", "Number of ready workers", ValueType.NUMBER),
        ),
        actions=(SCALE.id,),
    ),
    SCALE,
    *(
        Mixin(
            RESOURCE_TPL_SCHEME,
            term,
            f"{size.cpu} {'core' if size.cpu == 1 else 'cores'} and {str(size.memory).replace('Gi', ' GiB')}",
            f"/resource_tpl/{term}/",
            depends=(RESOURCE_TPL,),
            applies=(COMPUTE,),
            attributes=_of_size(size),
        )
        for term, size in SIZES.items()
    ),
    Mixin(
        RESOURCE_TPL_SCHEME,
        DEFAULT_SIZE,
        "The size that the service asks for",
        f"/resource_tpl/{DEFAULT_SIZE}/",
        depends=(RESOURCE_TPL,),
        applies=(COMPUTE,),
    ),
)


@dataclass(frozen=True, slots=True)
class ServiceCategories:
    """The categories of one service; ``actions`` are the ids of its actions by their names in the interface."""

    term: str
    template: Mixin
    interface: Mixin
    master: Mixin
    actions: Mapping[str, str]
    definitions: tuple[Action, ...]

    @property
    def all(self) -> tuple[Category, ...]:
        """All categories of the service."""
        return (self.template, self.interface, self.master, *self.definitions)

    @property
    def start_workers(self) -> str:
        """The id of ``start_workers``."""
        return self.master.actions[0]


class Catalogue:
    """The model of a frontend, with the categories of each service and the service of each category. Immutable.

    ``version`` is the version of the model.
    """

    def __init__(self, services: Iterable[CachedService], mixins: Iterable[OcciMixin], version: int) -> None:
        known = {service.metadata.name: service for service in services}
        terms = make_terms(known)
        self._of_service = {name: _categories(known[name], term) for name, term in terms.items()}
        self._services = {
            category.id: name
            for name, item in self._of_service.items()
            for category in (item.template, item.interface, item.master)
        }
        self._actions = {
            action: (service, name)
            for service, item in self._of_service.items()
            for name, action in item.actions.items()
        }
        self.model = Model(
            (
                *_SERVED,
                *_PROVIDED,
                *(category for item in self._of_service.values() for category in item.all),
                *(category for mixin in mixins for category in build_categories(mixin)),
            ),
            version,
        )

    def list_of_service(self, name: str) -> ServiceCategories | None:
        """Return the categories of a service."""
        return self._of_service.get(name)

    def find_service(self, mixin_id: str) -> str | None:
        """Return the name of the service to which a mixin belongs."""
        return self._services.get(mixin_id)

    def find_listing(self, mixin_id: str) -> Hashable:
        """Return the key under which :class:`Listings` has the members of a mixin of the provider."""
        if mixin_id in (OS_TPL, WORKER):
            return COMPUTE
        service = self._services.get(mixin_id)
        if service is None:
            return mixin_id
        item = self._of_service[service]
        of = {item.template.id: "computes", item.interface.id: "interface", item.master.id: "master"}
        return of[mixin_id], service

    def find_declared_action(self, action_id: str) -> tuple[str, str] | None:
        """Return the service of an action and the action's name in the interface; None if no interface declares it."""
        return self._actions.get(action_id)


def make_terms(names: Iterable[str]) -> dict[str, str]:
    """Return a term for each name; no two names share a term, and a name that is a valid term is its own term."""
    known = sorted(names)
    terms = {name: name for name in known if _TERM.fullmatch(name)}
    taken = set(terms)
    for name in known:
        if name in terms:
            continue
        digits = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
        plain = _UNSAFE.sub("-", name.lower()).strip("-")[:40] or "service"
        term = next(term for n in range(8, len(digits) + 1) if (term := f"{plain}-{digits[:n]}") not in taken)
        terms[name] = term
        taken.add(term)
    return terms


def make_title(text: str) -> str:
    """Return a title for a text, without the characters at which some clients split titles."""
    return " ".join(_UNTITLED.sub(" ", text).split())


def find_size_term(resources: Resources | None) -> str | None:
    """Return the term of the size template with this size; None if there is none."""
    if resources is None:
        return DEFAULT_SIZE
    wanted = parse_cores(resources.cpu), parse_mebibytes(resources.memory)
    return next(
        (term for term, size in SIZES.items() if wanted == (parse_cores(size.cpu), parse_mebibytes(size.memory))), None
    )


def build_categories(mixin: OcciMixin) -> Iterable[Mixin | Action]:
    """Return the categories that a client defined: the mixin, then its actions."""
    spec = mixin.spec
    actions = tuple(
        Action(item.scheme, item.term, item.title, tuple(map(_attribute, item.attributes))) for item in spec.actions
    )
    yield Mixin(
        spec.scheme,
        spec.term,
        spec.title,
        spec.location,
        tuple(spec.depends),
        tuple(spec.applies),
        tuple(map(_attribute, spec.attributes)),
        tuple(action.id for action in actions),
        user=True,
    )
    yield from actions


def _attribute(attribute: OcciAttribute) -> AttributeSpec:
    return AttributeSpec(
        attribute.name,
        ValueType(attribute.type),
        attribute.mutable,
        attribute.required,
        attribute.default,
        attribute.pattern,
        attribute.description,
    )


def _categories(service: CachedService, term: str) -> ServiceCategories:
    action_scheme = f"http://cloud4e/{term}/action#"
    service_scheme = f"http://simyard.dev/occi/service/{term}#"
    title = make_title(service.display_name) or service.metadata.name
    definitions = tuple(
        Action(
            action_scheme,
            item.name,
            make_title(item.description)[:128],
            tuple(_parameter(p, p.name) for p in item.parameters),
        )
        for item in service.interface.actions
    )
    interface = Mixin(
        service_scheme,
        "interface",
        title,
        f"/service/{term}/",
        applies=(COMPUTE, AMQPLINK),
        attributes=(
            *(_parameter(item, PREFIX + item.name, mutable=item.mutable) for item in service.interface.attributes),
            _shown(OBSERVED, "Time of observation of the oldest of these values"),
        ),
        actions=tuple(action.id for action in definitions),
    )
    start_workers = Action(action_scheme, START_WORKERS, "Start workers up to a number", _START_PARAMETERS)
    master = Mixin(
        service_scheme,
        "master",
        f"Workers of {title}",
        f"/master/{term}/",
        applies=(APPLICATION,),
        actions=(start_workers.id,),
    )
    template = Mixin(
        OS_TPL_SCHEME,
        term,
        title,
        f"/os_tpl/{term}/",
        depends=(OS_TPL, interface.id),
        applies=(COMPUTE,),
    )
    return ServiceCategories(
        term,
        template,
        interface,
        master,
        {item.name: action.id for item, action in zip(service.interface.actions, definitions, strict=True)},
        (*definitions, start_workers),
    )


def _parameter(declared: Declared, name: str, *, mutable: bool = True) -> AttributeSpec:
    """Return a declared value as an OCCI attribute, without its bounds and choices, which are checked later."""
    unit = f" ({declared.unit})" if declared.unit else ""
    return AttributeSpec(
        name,
        _TYPES[declared.type],
        mutable,
        declared.required,
        declared.default,
        declared.pattern,
        declared.description + unit,
        or_object=declared.type is DeclaredType.FILE,
    )
