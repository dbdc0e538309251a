# SPDX-License-Identifier: Apache-2.0
"""Defines the core model (GFD.183): categories, entities, and drafts of the entities that clients send. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

Value: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json]"
"""A JSON value. An integer has at most 64 bits, and a float is finite."""

Json: TypeAlias = "Value | None"
"""Any JSON value, or null."""

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
"""Attributes that are fields of an entity, and never in its ``attributes``."""
ENDS = frozenset({SOURCE, SOURCE_KIND, TARGET, TARGET_KIND})
"""Attributes of the two ends of a link.

A link inside a resource has this resource as its source; its target is a field of the link.
"""


class ValueType(enum.StrEnum):
    """A type of attributes, with its name in the JSON rendering."""

    STRING = "string"
    NUMBER = "number"
    BOOLEAN = "boolean"
    ARRAY = "array"
    OBJECT = "object"


@dataclass(frozen=True, slots=True)
class AttributeSpec:
    """The declaration of an attribute.

    Clients can set the attribute at any time if it is ``mutable``. If it is ``required`` and not ``mutable``, they set
    it only at creation. They can never set an attribute that is neither. ``pattern`` is a regular expression of RE2 for
    the whole value of a string; "" permits every value. ``or_object`` permits a JSON object in place of a string.
    """

    name: str
    type: ValueType = ValueType.STRING
    mutable: bool = True
    required: bool = False
    default: Value | None = None
    pattern: str = ""
    description: str = ""
    or_object: bool = False


@dataclass(frozen=True, slots=True)
class Action:
    """An action on an entity; the attributes of the action are its parameters."""

    scheme: str
    term: str
    title: str = ""
    attributes: tuple[AttributeSpec, ...] = ()

    @property
    def id(self) -> str:
        """The scheme and the term of the category."""
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
        """The scheme and the term of the category."""
        return self.scheme + self.term


@dataclass(frozen=True, slots=True)
class Mixin:
    """A category that adds attributes and actions to entities, or only tags them.

    ``depends`` are ids of mixins, ``applies`` ids of kinds (empty: every kind), and ``actions`` ids of actions.
    ``user`` is true for mixins that clients defined.
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
        """The scheme and the term of the category."""
        return self.scheme + self.term


Category: TypeAlias = Kind | Mixin | Action


@dataclass(frozen=True, slots=True)
class Link:
    """A link from a resource of this server to any URI.

    ``kind``, ``mixins``, ``actions`` and ``source_kind`` are ids; ``actions`` are the actions that apply now.
    ``target_kind`` contains the id of the target's kind, followed by the ids of its mixins. ``path`` and ``source`` are
    paths such as ``/compute/<id>``; ``target`` is a path or any URI.
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
    """A resource with its outgoing links; all other fields have the same meaning as in :class:`Link`."""

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
    """A link inside a resource that a client sent; ``attributes`` includes core attributes such as ``occi.core.id``."""

    target: str = ""
    target_kind: tuple[str, ...] = ()
    path: str = ""
    kind: str = ""
    mixins: tuple[str, ...] = ()
    attributes: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Draft:
    """The content of a request in any rendering, parsed but not checked; only values have the types of the model.

    Attributes:
        kind: id of the kind; "" without a kind, or with several kinds (see ``definitions``).
        mixins: ids of the mixins.
        attributes: values by name, with core attributes such as ``occi.core.id`` and ``occi.core.title``.
        links: the links inside a resource.
        action: id of the action; "" without an action, or with several actions.
        actions: ids of the applicable actions in the rendering of an entity. Clients send these ids only when they send
            a rendering back; the server ignores them.
        locations: the URIs of X-OCCI-Location lines, of a text/uri-list or of a JSON array, as sent (see
            :func:`strip_base`).
        definitions: all Category lines as categories, or the kinds, mixins and actions of a JSON document.
        members: the entities of a JSON collection, unless it has exactly one.
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
        """The drafts of a batch: the members, or only this draft."""
        return self.members or (self,)


def strip_base(uri: str, *bases: str) -> str:
    """Return the path of a URI that begins with a base (``https://host:port``); return other URIs unchanged."""
    for base in bases:
        prefix = base.rstrip("/")
        if uri.startswith(prefix + "/"):
            return uri[len(prefix) :]
    return uri


class Model:
    """An immutable set of categories. If two categories have the same id or location, the first one counts.

    ``kinds``, ``mixins``, ``actions``, and ``ordered`` (all of them) start with the core kinds, and list ancestors
    before descendants, because some clients require this order. ``object_attributes`` are the names of attributes whose
    values are objects. The caller chooses ``version``, as a key for caches of values that depend on the model.
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
            spec.name for c in ranked for spec in c.attributes if spec.type is ValueType.OBJECT or spec.or_object
        )
        self._by_location: dict[str, Kind | Mixin] = {}
        located: tuple[Kind | Mixin, ...] = (*self.kinds, *self.mixins)
        for category in located:
            if category.location:
                self._by_location.setdefault(category.location, category)

    def find_category(self, category_id: str) -> Category | None:
        """Return the category with an id (scheme and term); None if it is unknown."""
        return self._by_id.get(category_id)

    def find_by_location(self, location: str) -> Kind | Mixin | None:
        """Return the kind or mixin with a location such as ``/compute/``; None if there is none."""
        return self._by_location.get(location)

    def has_location_below(self, path: str) -> bool:
        """Return true if a category has its location at or below a path such as ``/`` or ``/os_tpl/``."""
        return any(location.startswith(path) for location in self._by_location)

    def find_kind(self, category_id: str) -> Kind | None:
        """Return the kind with an id; None if it is unknown."""
        found = self._by_id.get(category_id)
        return found if isinstance(found, Kind) else None

    def find_mixin(self, category_id: str) -> Mixin | None:
        """Return the mixin with an id; None if it is unknown."""
        found = self._by_id.get(category_id)
        return found if isinstance(found, Mixin) else None

    def find_action(self, category_id: str) -> Action | None:
        """Return the action with an id; None if it is unknown."""
        found = self._by_id.get(category_id)
        return found if isinstance(found, Action) else None

    def list_lineage(self, category_id: str) -> tuple[str, ...]:
        """Return the ids of a category and of its ancestors.

        These are the parents of a kind, or the mixins on which a mixin depends.
        """
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
            if category_id in self._by_id:  # clients' unknown ids would fill the cache
                self._lineages[category_id] = known
        return known

    def collect_specs(self, category_ids: Sequence[str]) -> Mapping[str, AttributeSpec]:
        """Return the declarations of these categories and their ancestors, by the attribute's name.

        If two declarations have the same name, that of the earlier category counts, and that of a descendant counts
        before those of its ancestors. Callers pass templates before the kind, because defaults of templates override
        those of the kind. A user mixin never overrides declarations of the provider, because it could make immutable
        attributes mutable.
        """
        key = tuple(category_ids)
        known = self._specs.get(key)
        if known is None:
            categories = [
                self._by_id[ancestor] for name in key for ancestor in self.list_lineage(name) if ancestor in self._by_id
            ]
            found: dict[str, AttributeSpec] = {}
            for category in sorted(categories, key=lambda c: isinstance(c, Mixin) and c.user):
                for spec in category.attributes:
                    found.setdefault(spec.name, spec)
            known = MappingProxyType(found)
            if len(self._specs) < _MAX_CACHED_SPECS and all(name in self._by_id for name in key):
                self._specs[key] = known
        return known

    def _ancestors_first(self, category_ids: Iterable[str]) -> list[Category]:
        ranked: dict[str, Category] = {}
        for category_id in category_ids:
            for ancestor in reversed(self.list_lineage(category_id)):
                if ancestor in self._by_id:
                    ranked.setdefault(ancestor, self._by_id[ancestor])
        return list(ranked.values())


_MAX_CACHED_SPECS = 1000
