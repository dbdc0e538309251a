# SPDX-License-Identifier: Apache-2.0
"""Filters listings by the Category and X-OCCI-Attribute headers of a GET (GFD.185 section 3.4.3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from simyard.occi.errors import OcciError, quote_input
from simyard.occi.model import (
    CORE_ATTRIBUTES,
    ID,
    SOURCE,
    SOURCE_KIND,
    SUMMARY,
    TARGET,
    TARGET_KIND,
    TITLE,
    Category,
    Draft,
    Entity,
    Model,
    Resource,
    Value,
)
from simyard.occi.text_parsing import group_ids
from simyard.occi.values import format_value, parse_number


@dataclass(frozen=True, slots=True)
class Filter:
    """The filter of a listing: entities with one of the ``kinds`` (None: any) and all mixins, actions and attributes.

    For each requested mixin, ``mixins`` contains its id and the ids of the mixins that depend on it, so that a filter
    by ``os_tpl`` finds all templates. ``attributes`` are names and values, compared as text or as numbers.
    """

    kinds: frozenset[str] | None = None
    mixins: tuple[frozenset[str], ...] = ()
    actions: frozenset[str] = frozenset()
    attributes: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return self.kinds is not None or bool(self.mixins or self.actions or self.attributes)


def make_filter(draft: Draft, model: Model) -> Filter:
    """Return the filter of a GET. Its truth value is false if it has no conditions. A kind includes its descendants.

    Raises:
        OcciError: 400, a category is unknown.
    """
    kinds, mixins, actions = group_ids(draft.definitions)
    kinds = kinds or ((draft.kind,) if draft.kind else ())
    mixins = tuple(dict.fromkeys((*mixins, *draft.mixins)))
    for category_id in (*kinds, *mixins, *actions):
        if model.find_category(category_id) is None:
            raise _unknown(category_id)
    return Filter(
        frozenset(kind.id for kind in model.kinds if not set(kinds).isdisjoint(model.list_lineage(kind.id)))
        if kinds
        else None,
        tuple(
            frozenset(other.id for other in model.mixins if mixin in model.list_lineage(other.id)) for mixin in mixins
        ),
        frozenset(actions),
        tuple((name, format_value(value)) for name, value in draft.attributes.items()),
    )


def matches(entity: Entity, wanted: Filter) -> bool:
    """Return true if an entity matches a filter."""
    if wanted.kinds is not None and entity.kind not in wanted.kinds:
        return False
    if any(family.isdisjoint(entity.mixins) for family in wanted.mixins):
        return False
    if not wanted.actions.issubset(entity.actions):
        return False
    for name, text in wanted.attributes:
        value = _attribute(entity, name)
        if value is None or not _equal(value, text):
            return False
    return True


def _equal(value: Value, text: str) -> bool:
    """Return true if a value equals the text of a client, as text or as a number."""
    if format_value(value) == text:
        return True
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == parse_number(text)


def select(categories: Iterable[Category], draft: Draft) -> tuple[Category, ...]:
    """Return the categories that a GET on ``/-/`` selects; all categories if the GET has no filter.

    Raises:
        OcciError: 400, a category is unknown.
    """
    wanted = {category.id for category in draft.definitions} | {*draft.mixins}
    if draft.kind:
        wanted.add(draft.kind)
    if draft.action:
        wanted.add(draft.action)
    found = tuple(category for category in categories if not wanted or category.id in wanted)
    if unknown := wanted - {category.id for category in found}:
        raise _unknown(min(unknown))
    return found


def _unknown(category_id: str) -> OcciError:
    return OcciError(400, f"filter: the category {quote_input(category_id)} is unknown; see /-/")


def _attribute(entity: Entity, name: str) -> Value | None:
    if name in entity.attributes:
        return entity.attributes[name]
    if name not in CORE_ATTRIBUTES:
        return None
    known = {ID: entity.id, TITLE: entity.title}
    if isinstance(entity, Resource):
        known[SUMMARY] = entity.summary
    else:
        known |= {SOURCE: entity.source, SOURCE_KIND: entity.source_kind, TARGET: entity.target}
        known[TARGET_KIND] = entity.target_kind[0] if entity.target_kind else ""
    return known.get(name) or None
