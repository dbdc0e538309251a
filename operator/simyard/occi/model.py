"""The core model (GFD.183): categories, entities, and what a client sent. Plain data, no I/O."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

Value: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json]"
"""A JSON value; integers have at most 64 bits, floats are finite."""

Json: TypeAlias = "Value | None"
"""Any JSON."""

ENTITY = "http://schemas.ogf.org/occi/core#entity"
RESOURCE = "http://schemas.ogf.org/occi/core#resource"
LINK = "http://schemas.ogf.org/occi/core#link"

ID = "occi.core.id"
TITLE = "occi.core.title"
SUMMARY = "occi.core.summary"
SOURCE = "occi.core.source"
TARGET = "occi.core.target"
SOURCE_KIND = "occi.core.source.kind"
TARGET_KIND = "occi.core.target.kind"
CORE_ATTRIBUTES = frozenset({ID, TITLE, SUMMARY, SOURCE, TARGET, SOURCE_KIND, TARGET_KIND})
"""Attributes that entities have as fields of their own, never in ``attributes``."""
ENDS = frozenset({SOURCE, SOURCE_KIND, TARGET, TARGET_KIND})
"""Those of links. A link inside a resource starts there and has its target as a field."""


class ValueType(enum.StrEnum):
    """Types of attributes, as the JSON rendering names them."""

    STRING = "string"
    NUMBER = "number"
    BOOLEAN = "boolean"
    ARRAY = "array"
    OBJECT = "object"


@dataclass(frozen=True, slots=True)
class AttributeSpec:
    """What is declared of an attribute.

    Clients set it at any time (``mutable``), only at creation (``required`` and not ``mutable``), or never (neither).
    ``pattern`` is a regular expression of RE2 for the whole value of a string; "" permits everything.
    """

    name: str
    type: ValueType = ValueType.STRING
    mutable: bool = True
    required: bool = False
    default: Value | None = None
    pattern: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class Action:
    """Something that can be done to an entity; its parameters are its attributes."""

    scheme: str
    term: str
    title: str = ""
    attributes: tuple[AttributeSpec, ...] = ()

    @property
    def id(self) -> str:
        """Scheme and term."""
        return self.scheme + self.term


@dataclass(frozen=True, slots=True)
class Kind:
    """The type of an entity. ``parent`` and ``actions`` are ids; ``location`` is a path such as ``/compute/``."""

    scheme: str
    term: str
    title: str = ""
    location: str = ""
    parent: str = ""
    attributes: tuple[AttributeSpec, ...] = ()
    actions: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Scheme and term."""
        return self.scheme + self.term


@dataclass(frozen=True, slots=True)
class Mixin:
    """What adds attributes and actions to entities, or only marks them.

    ``depends`` are ids of mixins, ``applies`` of kinds (none: every kind), ``actions`` of actions. ``user`` tells those
    that clients made from the provider's.
    """

    scheme: str
    term: str
    title: str = ""
    location: str = ""
    depends: tuple[str, ...] = ()
    applies: tuple[str, ...] = ()
    attributes: tuple[AttributeSpec, ...] = ()
    actions: tuple[str, ...] = ()
    user: bool = False

    @property
    def id(self) -> str:
        """Scheme and term."""
        return self.scheme + self.term


Category: TypeAlias = Kind | Mixin | Action


@dataclass(frozen=True, slots=True)
class Link:
    """A link from a resource of ours.

    ``kind``, ``mixins``, ``actions`` and ``source_kind`` are ids, ``actions`` those that can be invoked now;
    ``target_kind`` is the id of the target's kind and then those of its mixins. ``path`` and ``source`` are paths such
    as ``/compute/<id>``; ``target`` is a path, or any URI.
    """

    kind: str
    id: str
    path: str
    source: str
    target: str
    mixins: tuple[str, ...] = ()
    attributes: Mapping[str, Value] = field(default_factory=dict)
    actions: tuple[str, ...] = ()
    title: str = ""
    target_kind: tuple[str, ...] = ()
    source_kind: str = ""


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource with its outgoing links. Ids and paths as in :class:`Link`; the ``source`` of its links is itself."""

    kind: str
    id: str
    path: str
    mixins: tuple[str, ...] = ()
    attributes: Mapping[str, Value] = field(default_factory=dict)
    actions: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    title: str = ""
    summary: str = ""


Entity: TypeAlias = Resource | Link


@dataclass(frozen=True, slots=True)
class DraftLink:
    """A link inside a resource, as a client sent it. ``attributes`` has the core ones too (``occi.core.id``)."""

    target: str = ""
    target_kind: tuple[str, ...] = ()
    path: str = ""
    kind: str = ""
    mixins: tuple[str, ...] = ()
    attributes: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Draft:
    """What a client sent, in any rendering; nothing of it is checked against the model but the types of values.

    ``kind`` and ``action`` are ids, each "" if there is none or more than one (then see ``definitions``).
    ``attributes`` has the core ones too: ``occi.core.id``, ``.title``, ``.summary``, ``.source``, ``.target``.
    ``actions`` are those that a rendering of an entity calls applicable; requests say them only when a client sends
    back what it got, and they mean nothing. ``locations`` are the URIs of X-OCCI-Location lines, of a text/uri-list, or
    of a JSON array, as sent (see :func:`path_of`). ``definitions`` are all Category lines as categories, or the kinds,
    mixins and actions of a JSON document. ``members`` are the entities of a JSON collection unless it has exactly one.
    """

    kind: str = ""
    mixins: tuple[str, ...] = ()
    attributes: Mapping[str, Value] = field(default_factory=dict)
    links: tuple[DraftLink, ...] = ()
    action: str = ""
    actions: tuple[str, ...] = ()
    locations: tuple[str, ...] = ()
    definitions: tuple[Category, ...] = ()
    members: tuple[Draft, ...] = ()

    @property
    def each(self) -> tuple[Draft, ...]:
        """The entities of a batch: the members, or this one alone."""
        return self.members or (self,)


def path_of(uri: str, *bases: str) -> str:
    """The path of a URI below one of the bases (``https://host:port``); any other is given back as it is."""
    for base in bases:
        prefix = base.rstrip("/")
        if uri.startswith(prefix + "/"):
            return uri[len(prefix) :]
    return uri


class Model:
    """An immutable set of categories. Of two with one id, or with one location, the first counts.

    ``kinds``, ``mixins``, ``actions``, and ``ordered`` (all of them) begin with the core kinds and have ancestors
    before descendants, as some clients demand. ``object_attributes`` are the names of attributes whose values are
    objects. ``version`` is the caller's, for what is cached about a model.
    """

    __slots__ = (
        *("_by_id", "_by_location", "_lineages", "_specs"),
        *("actions", "kinds", "mixins", "object_attributes", "ordered", "version"),
    )

    def __init__(self, categories: Iterable[Category], version: int = 0) -> None:
        by_id: dict[str, Category] = {}
        for given in categories:
            by_id.setdefault(given.id, given)
        self.version = version
        self._by_id = by_id
        self._lineages: dict[str, tuple[str, ...]] = {}
        self._specs: dict[tuple[str, ...], Mapping[str, AttributeSpec]] = {}
        core = [name for name in (ENTITY, RESOURCE, LINK) if name in by_id]
        ranked = self._ancestors_first([*core, *by_id])
        self.kinds = tuple(c for c in ranked if isinstance(c, Kind))
        self.mixins = tuple(c for c in ranked if isinstance(c, Mixin))
        self.actions = tuple(c for c in ranked if isinstance(c, Action))
        self.ordered: tuple[Category, ...] = (*self.kinds, *self.mixins, *self.actions)
        self.object_attributes = frozenset(
            spec.name for c in ranked for spec in c.attributes if spec.type is ValueType.OBJECT
        )
        self._by_location: dict[str, Kind | Mixin] = {}
        located: tuple[Kind | Mixin, ...] = (*self.kinds, *self.mixins)
        for category in located:
            if category.location:
                self._by_location.setdefault(category.location, category)

    def by_id(self, category_id: str) -> Category | None:
        """The category of an id (scheme and term)."""
        return self._by_id.get(category_id)

    def at(self, location: str) -> Kind | Mixin | None:
        """The kind or mixin of a location such as ``/compute/``."""
        return self._by_location.get(location)

    def leads(self, path: str) -> bool:
        """Return whether a category has its location at or below a path such as ``/`` or ``/os_tpl/``."""
        return any(location.startswith(path) for location in self._by_location)

    def kind(self, category_id: str) -> Kind | None:
        """The kind of an id."""
        found = self._by_id.get(category_id)
        return found if isinstance(found, Kind) else None

    def mixin(self, category_id: str) -> Mixin | None:
        """The mixin of an id."""
        found = self._by_id.get(category_id)
        return found if isinstance(found, Mixin) else None

    def action(self, category_id: str) -> Action | None:
        """The action of an id."""
        found = self._by_id.get(category_id)
        return found if isinstance(found, Action) else None

    def lineage(self, category_id: str) -> tuple[str, ...]:
        """The id itself, then those of its ancestors: a kind's parents, the mixins that a mixin depends on."""
        known = self._lineages.get(category_id)
        if known is None:
            found: dict[str, None] = {}
            waiting = [category_id]
            while waiting:
                current = waiting.pop(0)
                if current in found:
                    continue
                found[current] = None
                match self._by_id.get(current):
                    case Kind(parent=parent) if parent:
                        waiting.append(parent)
                    case Mixin(depends=depends):
                        waiting.extend(depends)
            known = tuple(found)
            if category_id in self._by_id:  # ids that clients invent are not kept
                self._lineages[category_id] = known
        return known

    def specs(self, category_ids: Sequence[str]) -> Mapping[str, AttributeSpec]:
        """What these categories and their ancestors declare, by name.

        Of two declarations of one name the earlier category's counts, and a descendant's before its ancestor's: give
        templates before the kind (their defaults override its). A user's mixin never overrides the provider, or it
        could make mutable what is not.
        """
        key = tuple(category_ids)
        known = self._specs.get(key)
        if known is None:
            categories = [
                self._by_id[ancestor] for name in key for ancestor in self.lineage(name) if ancestor in self._by_id
            ]
            found: dict[str, AttributeSpec] = {}
            for category in sorted(categories, key=lambda c: isinstance(c, Mixin) and c.user):
                for spec in category.attributes:
                    found.setdefault(spec.name, spec)
            known = MappingProxyType(found)
            if len(self._specs) < _MOST_CACHED_SPECS and all(name in self._by_id for name in key):
                self._specs[key] = known
        return known

    def _ancestors_first(self, category_ids: Iterable[str]) -> list[Category]:
        ranked: dict[str, Category] = {}
        for category_id in category_ids:
            for ancestor in reversed(self.lineage(category_id)):
                if ancestor in self._by_id:
                    ranked.setdefault(ancestor, self._by_id[ancestor])
        return list(ranked.values())


_MOST_CACHED_SPECS = 1000
