"""Which kinds, mixins and attributes a request may name; shared by all checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set

from simyard.occi.errors import OcciError, shown
from simyard.occi.model import CORE_ATTRIBUTES, AttributeSpec, Kind, Mixin, Model, Value
from simyard.occi.standard import TEMPLATES

_MOST_NAMES = 12


def known_kind(kind_id: str, model: Model) -> Kind:
    """The kind of an id.

    Raises:
        OcciError: 400, it is unknown.
    """
    kind = model.kind(kind_id)
    if kind is None:
        raise OcciError(400, f"Category: the kind {shown(kind_id)} is unknown; see /-/")
    return kind


def mixins_of(mixin_ids: Iterable[str], kind: Kind, model: Model) -> tuple[Mixin, ...]:
    """The mixins of these ids, which must apply to the kind; of one sort of template there can be only one.

    Raises:
        OcciError: 400, one is unknown, or there are two templates; 403, one does not apply.
    """
    found: dict[str, Mixin] = {}
    taken: dict[str, str] = {}
    for mixin_id in mixin_ids:
        mixin = model.mixin(mixin_id)
        if mixin is None:
            raise OcciError(400, f"Category: the mixin {shown(mixin_id)} is unknown; see /-/")
        check_applies(mixin, kind, model)
        found[mixin_id] = mixin
        for parent in template_parents(mixin_id, model):
            other = taken.setdefault(parent, mixin_id)
            if other != mixin_id:
                raise OcciError(400, f"Category: {mixin_id} and {other} are both templates of {parent}; send one")
    return tuple(found.values())


def template_parents(mixin_id: str, model: Model) -> tuple[str, ...]:
    """Of which sorts (``os_tpl``, ``resource_tpl``, ...) a mixin is a template."""
    ancestors = model.lineage(mixin_id)[1:]
    return tuple(parent for parent in TEMPLATES if parent in ancestors)


def check_applies(mixin: Mixin, kind: Kind, model: Model) -> None:
    """A mixin applies where it and all that it depends on apply.

    Raises:
        OcciError: 403, it does not apply to the kind.
    """
    kinds = model.lineage(kind.id)
    for ancestor_id in model.lineage(mixin.id):
        ancestor = model.mixin(ancestor_id)
        if ancestor is not None and ancestor.applies and set(ancestor.applies).isdisjoint(kinds):
            raise OcciError(403, f"Category: the mixin {mixin.id} does not apply to the kind {kind.term}")


def declared(
    attributes: Mapping[str, Value], specs: Mapping[str, AttributeSpec], of_what: str
) -> Iterator[tuple[AttributeSpec, Value]]:
    """What is declared of each attribute, and its value; core attributes are left out.

    Raises:
        OcciError: 400, one is not declared.
    """
    for name, value in attributes.items():
        if name in CORE_ATTRIBUTES:
            continue
        yield spec_of(name, specs, of_what), value


def spec_of(name: str, specs: Mapping[str, AttributeSpec], of_what: str) -> AttributeSpec:
    """Return what is declared of one attribute.

    Raises:
        OcciError: 400, it is not declared.
    """
    spec = specs.get(name)
    if spec is None:
        names = [known for known in specs if known not in CORE_ATTRIBUTES]
        some = ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")
        raise OcciError(400, f"attribute {shown(name)}: {of_what} has none of that name; it has {some or 'none'}")
    return spec


def refuse_missing(specs: Iterable[AttributeSpec], present: Set[str], of_what: str) -> None:
    """Every required attribute must be present; core ones are checked where they are read.

    Raises:
        OcciError: 400, one is missing.
    """
    for spec in specs:
        if spec.required and spec.name not in present and spec.name not in CORE_ATTRIBUTES:
            raise OcciError(400, f"attribute {spec.name}: is required by {of_what}")
