# SPDX-License-Identifier: Apache-2.0
"""Checks creations, updates and associations (GFD.183). Pure."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from simyard.occi.applicability import (
    check_applies,
    find_kind,
    find_mixins,
    find_template_parents,
    match_declarations,
    refuse_missing,
)
from simyard.occi.definitions import check_definitions, check_removals
from simyard.occi.errors import OcciError, quote_input
from simyard.occi.grammar import check_uri
from simyard.occi.invocations import check_invocation, find_action
from simyard.occi.model import (
    CORE_ATTRIBUTES,
    ENTITY,
    ID,
    LINK,
    SOURCE,
    SUMMARY,
    TARGET,
    TARGET_KIND,
    TITLE,
    Action,
    AttributeSpec,
    Draft,
    DraftLink,
    Entity,
    Kind,
    Link,
    Mixin,
    Model,
    Resource,
    Value,
)
from simyard.occi.standard import AMQPLINK
from simyard.occi.values import check_value, coerce, format_value

__all__ = [
    "Checked",
    "Update",
    "check_association",
    "check_creation",
    "check_definitions",
    "check_invocation",
    "check_removals",
    "check_update",
    "find_action",
]

STANDARD_PREFIX = "occi."
QUEUE = "occi.amqplink.queue"
_SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,252}+")
_URN = "urn:uuid:"


@dataclass(frozen=True, slots=True)
class Checked:
    """The checked content of an entity to create.

    ``attributes`` has the values of the client, the defaults of mixins and the defaults of the kind; earlier ones
    override later ones. It has no core attributes. ``given`` contains the names that the client sent. ``id`` is the
    requested id; "" if there is none or if it is not safe in a URL. A link has ``source`` (as sent; "" for an inline
    link), ``target`` and ``target_kind``.
    """

    kind: Kind
    mixins: tuple[Mixin, ...] = ()
    attributes: Mapping[str, Value] = field(default_factory=dict)
    given: frozenset[str] = frozenset()
    links: tuple[Checked, ...] = ()
    id: str = ""
    title: str = ""
    summary: str = ""
    source: str = ""
    target: str = ""
    target_kind: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Update:
    """The checked change of an entity: only the parts that differ from the present entity.

    Attributes:
        attributes: values to set.
        removed: names of attributes to remove.
        mixins: mixins to associate.
        dissociated: ids of mixins to remove: user mixins that are missing in a full update, and replaced templates.
        links: links to create (partial updates only).
        title: the new title; None if it stays.
        summary: the new summary; None if it stays.
    """

    attributes: Mapping[str, Value] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()
    mixins: tuple[Mixin, ...] = ()
    dissociated: tuple[str, ...] = ()
    links: tuple[Checked, ...] = ()
    title: str | None = None
    summary: str | None = None


def check_creation(draft: Draft, model: Model) -> Checked:
    """Check a draft of one entity to create (for a batch, call this for each of ``draft.each``).

    Raises:
        OcciError: 400 or 403.
    """
    if draft.action or any(isinstance(category, Action) for category in draft.definitions):
        raise OcciError(400, "Category: an action is invoked with ?action= on an entity, not created")
    if not draft.kind:
        count = sum(isinstance(category, Kind) for category in draft.definitions) or "none"
        raise OcciError(400, f"Category: exactly one kind must be named, not {count}")
    kind = find_kind(draft.kind, model)
    if kind.id == ENTITY:
        raise OcciError(400, "Category: entity is abstract; name a kind that is derived from it")
    checked = _checked(kind, find_mixins(draft.mixins, kind, model), draft.attributes, model)
    if LINK not in model.list_lineage(kind.id):
        _refuse_ends(draft, kind)
        return dataclasses.replace(checked, links=tuple(_inline(link, model) for link in draft.links))
    target_kind = format_value(draft.attributes.get(TARGET_KIND, "")).split()
    return dataclasses.replace(
        checked,
        source=_end(draft.attributes, SOURCE),
        target=_end(
            draft.attributes, TARGET, make_queue_target(checked.attributes.get(QUEUE)) if kind.id == AMQPLINK else ""
        ),
        target_kind=tuple(check_uri(kind_id, f"attribute {TARGET_KIND}") for kind_id in target_kind),
    )


def check_update(draft: Draft, entity: Entity, model: Model, replace: bool) -> Update:
    """Check a partial update (POST) or a full update (PUT, ``replace``) of an entity.

    Clients may send immutable attributes unchanged, so that they can send a rendering back. An update never removes
    links, and a PUT ignores links. A PUT also ignores immutable attributes that are not from the standard, because a
    running service can change them at any moment.

    Raises:
        OcciError: 400 or 403.
    """
    if draft.action:
        raise OcciError(400, "Category: an action is invoked with ?action=, not by an update")
    if draft.members:
        raise OcciError(400, f"{entity.path}: an update is of one entity, not of {len(draft.members)}")
    if draft.kind and draft.kind != entity.kind:
        raise OcciError(400, f"Category: {entity.path} is of the kind {entity.kind}, which cannot change")
    kind = find_kind(entity.kind, model)
    _check_core(draft, entity, kind)
    named = find_mixins(draft.mixins, kind, model)
    added = tuple(mixin for mixin in named if mixin.id not in entity.mixins)
    gone = _dissociated(entity, named, added, model, replace)
    kept = tuple(mixin for mixin in entity.mixins if mixin not in gone)
    specs = model.collect_specs((*(mixin.id for mixin in added), *kept, kind.id))
    brought = model.collect_specs(tuple(mixin.id for mixin in added))
    changed: dict[str, Value] = {}
    for spec, value in match_declarations(draft.attributes, specs, entity.path):
        if spec.name in entity.attributes and _same(entity.attributes[spec.name], coerce(value, spec.type)):
            continue
        if not spec.mutable and not (spec.required and spec.name in brought):
            if replace and not spec.name.startswith(STANDARD_PREFIX):
                continue
            raise OcciError(403, f"attribute {spec.name}: is immutable")
        changed[spec.name] = check_value(value, spec)
    _add_defaults(changed, entity, draft, added, model)
    refuse_missing(brought.values(), entity.attributes.keys() | changed.keys(), "the mixins that are added")
    removed = _removed(changed, entity, draft, specs) if replace else frozenset()
    return Update(
        attributes=changed,
        removed=removed,
        mixins=added,
        dissociated=gone,
        links=() if replace or isinstance(entity, Link) else _new_links(draft, entity, model),
        title=_text(draft, TITLE, entity.title, replace),
        summary=_text(draft, SUMMARY, entity.summary, replace) if isinstance(entity, Resource) else None,
    )


def check_association(mixin: Mixin, entity: Entity, model: Model) -> None:
    """Check that a mixin may be associated with an entity.

    Raises:
        OcciError: 403, the mixin does not apply to the entity's kind.
    """
    check_applies(mixin, find_kind(entity.kind, model), model)


def _checked(kind: Kind, mixins: tuple[Mixin, ...], attributes: Mapping[str, Value], model: Model) -> Checked:
    specs = model.collect_specs((*(mixin.id for mixin in mixins), kind.id))
    values: dict[str, Value] = {}
    for spec, value in match_declarations(attributes, specs, f"the kind {kind.term} with these mixins"):
        if not spec.mutable and not spec.required:
            raise OcciError(403, f"attribute {spec.name}: is immutable")
        values[spec.name] = check_value(value, spec)
    given = frozenset(values)
    for spec in specs.values():
        if spec.default is not None and spec.name not in CORE_ATTRIBUTES:
            values.setdefault(spec.name, spec.default)
    refuse_missing(specs.values(), values.keys(), f"the kind {kind.term} with these mixins")
    asked = format_value(attributes.get(ID, "")).removeprefix(_URN)
    return Checked(
        kind,
        mixins,
        values,
        given,
        id=asked if _SAFE_ID.fullmatch(asked) else "",
        title=format_value(attributes.get(TITLE, "")),
        summary=format_value(attributes.get(SUMMARY, "")),
    )


def _inline(link: DraftLink, model: Model) -> Checked:
    if not link.target:
        raise OcciError(400, f"Link {quote_input(link.path)}: has no target")
    where = f"Link to {quote_input(link.target)}"
    for uri in (link.target, *link.target_kind):
        check_uri(uri, where)
    kind = find_kind(link.kind or LINK, model)
    if LINK not in model.list_lineage(kind.id):
        raise OcciError(400, f"{where}: {kind.term} is no kind of link")
    checked = _checked(kind, find_mixins(link.mixins, kind, model), link.attributes, model)
    return dataclasses.replace(checked, target=link.target, target_kind=link.target_kind)


def _refuse_ends(draft: Draft, kind: Kind) -> None:
    for name in (SOURCE, TARGET):
        if name in draft.attributes:
            raise OcciError(400, f"attribute {name}: {kind.term} is no link")


def make_queue_target(queue: object) -> str:
    """Return the default target of an amqplink; adapters of Cloud4E send only the name of their queue."""
    return f"amqp:///{quote(queue)}" if isinstance(queue, str) else ""


def _end(attributes: Mapping[str, Value], name: str, default: str = "") -> str:
    end = format_value(attributes.get(name, "")) or default
    if not end:
        raise OcciError(400, f"attribute {name}: is required by every link")
    return check_uri(end, f"attribute {name}")


def _check_core(draft: Draft, entity: Entity, kind: Kind) -> None:
    """Check that an update changes neither the identifier nor the ends of a link."""
    asked = format_value(draft.attributes.get(ID, entity.id)).removeprefix(_URN)
    if asked != entity.id.removeprefix(_URN):
        raise OcciError(403, f"attribute {ID}: is immutable")
    if isinstance(entity, Resource):
        _refuse_ends(draft, kind)
        return
    for name, end in ((SOURCE, entity.source), (TARGET, entity.target)):
        if not _is_at(format_value(draft.attributes.get(name, end)), end):
            raise OcciError(403, f"attribute {name}: is immutable; delete the link and make another")


def _dissociated(
    entity: Entity, named: Iterable[Mixin], added: Iterable[Mixin], model: Model, replace: bool
) -> tuple[str, ...]:
    new_templates = {parent for mixin in added for parent in find_template_parents(mixin.id, model)}
    kept = {mixin.id for mixin in named}
    gone = []
    for mixin_id in entity.mixins:
        mixin = model.find_mixin(mixin_id)
        is_unnamed = replace and mixin is not None and mixin.user and mixin_id not in kept
        if is_unnamed or not new_templates.isdisjoint(find_template_parents(mixin_id, model)):
            gone.append(mixin_id)
    return tuple(gone)


def _add_defaults(
    changed: dict[str, Value], entity: Entity, draft: Draft, added: Iterable[Mixin], model: Model
) -> None:
    """Add the defaults of new mixins to ``changed``; defaults of a template replace values of the entity."""
    for mixin in added:
        wins = bool(find_template_parents(mixin.id, model))
        for spec in model.collect_specs((mixin.id,)).values():
            if spec.default is None or spec.name in draft.attributes:
                continue
            if spec.name not in entity.attributes or (wins and not _same(entity.attributes[spec.name], spec.default)):
                changed.setdefault(spec.name, spec.default)


def _removed(
    changed: dict[str, Value], entity: Entity, draft: Draft, specs: Mapping[str, AttributeSpec]
) -> frozenset[str]:
    """Return the attributes to remove after a full update; reset attributes with a default in ``changed``."""
    removed = set()
    for name, value in entity.attributes.items():
        spec = specs.get(name)
        if spec is None or not spec.mutable or name in draft.attributes or name in changed:
            continue
        if spec.default is not None:
            if not _same(value, spec.default):
                changed[name] = spec.default
        elif spec.required:
            raise OcciError(400, f"attribute {name}: is required, and a full update must have it")
        else:
            removed.add(name)
    return frozenset(removed)


def _new_links(draft: Draft, entity: Resource, model: Model) -> tuple[Checked, ...]:
    present = [link.path for link in entity.links]
    return tuple(
        _inline(link, model)
        for link in draft.links
        if not link.path or not any(_is_at(link.path, path) for path in present)
    )


def _text(draft: Draft, name: str, present: str, replace: bool) -> str | None:
    asked = format_value(draft.attributes.get(name, "" if replace else present))
    return asked if asked != present else None


def _is_at(uri: str, path: str) -> bool:
    """Return true if a URI is the given path, with or without scheme and host."""
    return uri == path or ("://" in uri and path.startswith("/") and uri.endswith(path))


def _same(left: Value, right: Value) -> bool:
    return left == right and isinstance(left, bool) == isinstance(right, bool)
