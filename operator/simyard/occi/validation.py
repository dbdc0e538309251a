"""What may be created, changed, invoked and defined: sections 6, 7 and 12 of the contract, on GFD.183. Pure."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from simyard.occi.applicability import (
    check_applies,
    declared,
    known_kind,
    mixins_of,
    refuse_missing,
    template_parents,
)
from simyard.occi.definitions import check_definitions, check_removals
from simyard.occi.errors import OcciError, shown
from simyard.occi.grammar import checked_uri
from simyard.occi.invocations import action_of_term, check_invocation
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
from simyard.occi.values import check, coerce, text_of

__all__ = [
    "Checked",
    "Update",
    "action_of_term",
    "check_association",
    "check_creation",
    "check_definitions",
    "check_invocation",
    "check_removals",
    "check_update",
]

STANDARD_PREFIX = "occi."
QUEUE = "occi.amqplink.queue"
_SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,252}+")
_URN = "urn:uuid:"


@dataclass(frozen=True, slots=True)
class Checked:
    """An entity that may be created.

    ``attributes`` are complete: the client's, then defaults of mixins, then those of the kind; without core ones.
    ``given`` are the names that the client itself gave. ``id`` is the one that it asked for, "" if none or one that
    is not safe in a URL. A link has ``source`` (as sent; "" for an inline one), ``target``, ``target_kind``.
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
    """A change of an entity that is permitted: only what differs.

    ``attributes`` are to be set, ``removed`` (names) to be taken away. ``mixins`` are to be associated, and
    ``dissociated`` (ids) to be removed: user mixins that a full update does not name, and the template that another one
    replaces. ``title`` and ``summary`` are None if they stay. ``links`` are new ones (partial updates only).
    """

    attributes: Mapping[str, Value] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()
    mixins: tuple[Mixin, ...] = ()
    dissociated: tuple[str, ...] = ()
    links: tuple[Checked, ...] = ()
    title: str | None = None
    summary: str | None = None


def check_creation(draft: Draft, model: Model) -> Checked:
    """One entity that a client wants (of a batch: each of ``draft.each``).

    Raises:
        OcciError: 400 or 403.
    """
    if draft.action or any(isinstance(category, Action) for category in draft.definitions):
        raise OcciError(400, "Category: an action is invoked with ?action= on an entity, not created")
    if not draft.kind:
        count = sum(isinstance(category, Kind) for category in draft.definitions) or "none"
        raise OcciError(400, f"Category: exactly one kind must be named, not {count}")
    kind = known_kind(draft.kind, model)
    if kind.id == ENTITY:
        raise OcciError(400, "Category: entity is abstract; name a kind that is derived from it")
    checked = _checked(kind, mixins_of(draft.mixins, kind, model), draft.attributes, model)
    if LINK not in model.lineage(kind.id):
        _refuse_ends(draft, kind)
        return dataclasses.replace(checked, links=tuple(_inline(link, model) for link in draft.links))
    target_kind = text_of(draft.attributes.get(TARGET_KIND, "")).split()
    return dataclasses.replace(
        checked,
        source=_end(draft.attributes, SOURCE),
        target=_end(
            draft.attributes, TARGET, target_of_queue(checked.attributes.get(QUEUE)) if kind.id == AMQPLINK else ""
        ),
        target_kind=tuple(checked_uri(kind_id, f"attribute {TARGET_KIND}") for kind_id in target_kind),
    )


def check_update(draft: Draft, entity: Entity, model: Model, replace: bool) -> Update:
    """A partial update (POST), or a full one (PUT, ``replace``), of an entity.

    What is immutable may be sent unchanged, so that a rendering can be sent back (section 12.12); links that are there
    stay, and those in a PUT are not looked at. Nor are immutable attributes in a PUT that are not the standard's: those
    of a running service are others from moment to moment.

    Raises:
        OcciError: 400 or 403.
    """
    if draft.action:
        raise OcciError(400, "Category: an action is invoked with ?action=, not by an update")
    if draft.members:
        raise OcciError(400, f"{entity.path}: an update is of one entity, not of {len(draft.members)}")
    if draft.kind and draft.kind != entity.kind:
        raise OcciError(400, f"Category: {entity.path} is of the kind {entity.kind}, which cannot change")
    kind = known_kind(entity.kind, model)
    _check_core(draft, entity, kind)
    named = mixins_of(draft.mixins, kind, model)
    added = tuple(mixin for mixin in named if mixin.id not in entity.mixins)
    gone = _dissociated(entity, named, added, model, replace)
    kept = tuple(mixin for mixin in entity.mixins if mixin not in gone)
    specs = model.specs((*(mixin.id for mixin in added), *kept, kind.id))
    brought = model.specs(tuple(mixin.id for mixin in added))
    changed: dict[str, Value] = {}
    for spec, value in declared(draft.attributes, specs, entity.path):
        if spec.name in entity.attributes and _same(entity.attributes[spec.name], coerce(value, spec.type)):
            continue
        if not spec.mutable and not (spec.required and spec.name in brought):
            if replace and not spec.name.startswith(STANDARD_PREFIX):
                continue
            raise OcciError(403, f"attribute {spec.name}: is immutable")
        changed[spec.name] = check(value, spec)
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
    """Whether a mixin may be given to an entity.

    Raises:
        OcciError: 403, it does not apply.
    """
    check_applies(mixin, known_kind(entity.kind, model), model)


def _checked(kind: Kind, mixins: tuple[Mixin, ...], attributes: Mapping[str, Value], model: Model) -> Checked:
    specs = model.specs((*(mixin.id for mixin in mixins), kind.id))
    values: dict[str, Value] = {}
    for spec, value in declared(attributes, specs, f"the kind {kind.term} with these mixins"):
        if not spec.mutable and not spec.required:
            raise OcciError(403, f"attribute {spec.name}: is immutable")
        values[spec.name] = check(value, spec)
    given = frozenset(values)
    for spec in specs.values():
        if spec.default is not None and spec.name not in CORE_ATTRIBUTES:
            values.setdefault(spec.name, spec.default)
    refuse_missing(specs.values(), values.keys(), f"the kind {kind.term} with these mixins")
    asked = text_of(attributes.get(ID, "")).removeprefix(_URN)
    return Checked(
        kind,
        mixins,
        values,
        given,
        id=asked if _SAFE_ID.fullmatch(asked) else "",
        title=text_of(attributes.get(TITLE, "")),
        summary=text_of(attributes.get(SUMMARY, "")),
    )


def _inline(link: DraftLink, model: Model) -> Checked:
    if not link.target:
        raise OcciError(400, f"Link {shown(link.path)}: has no target")
    where = f"Link to {shown(link.target)}"
    for uri in (link.target, *link.target_kind):
        checked_uri(uri, where)
    kind = known_kind(link.kind or LINK, model)
    if LINK not in model.lineage(kind.id):
        raise OcciError(400, f"{where}: {kind.term} is no kind of link")
    checked = _checked(kind, mixins_of(link.mixins, kind, model), link.attributes, model)
    return dataclasses.replace(checked, target=link.target, target_kind=link.target_kind)


def _refuse_ends(draft: Draft, kind: Kind) -> None:
    for name in (SOURCE, TARGET):
        if name in draft.attributes:
            raise OcciError(400, f"attribute {name}: {kind.term} is no link")


def target_of_queue(queue: object) -> str:
    """Where an amqplink leads that does not say it: adapters of Cloud4E name their queue only (section 11)."""
    return f"amqp:///{quote(queue)}" if isinstance(queue, str) else ""


def _end(attributes: Mapping[str, Value], name: str, default: str = "") -> str:
    end = text_of(attributes.get(name, "")) or default
    if not end:
        raise OcciError(400, f"attribute {name}: is required by every link")
    return checked_uri(end, f"attribute {name}")


def _check_core(draft: Draft, entity: Entity, kind: Kind) -> None:
    """The identifier and the ends of a link stay as they are."""
    asked = text_of(draft.attributes.get(ID, entity.id)).removeprefix(_URN)
    if asked != entity.id.removeprefix(_URN):
        raise OcciError(403, f"attribute {ID}: is immutable")
    if isinstance(entity, Resource):
        _refuse_ends(draft, kind)
        return
    for name, end in ((SOURCE, entity.source), (TARGET, entity.target)):
        if not _is_at(text_of(draft.attributes.get(name, end)), end):
            raise OcciError(403, f"attribute {name}: is immutable; delete the link and make another")


def _dissociated(
    entity: Entity, named: Iterable[Mixin], added: Iterable[Mixin], model: Model, replace: bool
) -> tuple[str, ...]:
    new_templates = {parent for mixin in added for parent in template_parents(mixin.id, model)}
    kept = {mixin.id for mixin in named}
    gone = []
    for mixin_id in entity.mixins:
        mixin = model.mixin(mixin_id)
        is_unnamed = replace and mixin is not None and mixin.user and mixin_id not in kept
        if is_unnamed or not new_templates.isdisjoint(template_parents(mixin_id, model)):
            gone.append(mixin_id)
    return tuple(gone)


def _add_defaults(
    changed: dict[str, Value], entity: Entity, draft: Draft, added: Iterable[Mixin], model: Model
) -> None:
    """Defaults of mixins that are added; those of a template win over what the entity has."""
    for mixin in added:
        wins = bool(template_parents(mixin.id, model))
        for spec in model.specs((mixin.id,)).values():
            if spec.default is None or spec.name in draft.attributes:
                continue
            if spec.name not in entity.attributes or (wins and not _same(entity.attributes[spec.name], spec.default)):
                changed.setdefault(spec.name, spec.default)


def _removed(
    changed: dict[str, Value], entity: Entity, draft: Draft, specs: Mapping[str, AttributeSpec]
) -> frozenset[str]:
    """What a full update leaves out: it goes back to its default, or goes away."""
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
    asked = text_of(draft.attributes.get(name, "" if replace else present))
    return asked if asked != present else None


def _is_at(uri: str, path: str) -> bool:
    """Whether a URI is a path of ours, with or without scheme and host."""
    return uri == path or ("://" in uri and path.startswith("/") and uri.endswith(path))


def _same(left: Value, right: Value) -> bool:
    return left == right and isinstance(left, bool) == isinstance(right, bool)
