# SPDX-License-Identifier: Apache-2.0
"""Checks the kinds, mixins and attributes in a request. All other checks of requests use these functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set

from simyard.occi.errors import OcciError, quote_input
from simyard.occi.model import CORE_ATTRIBUTES, AttributeSpec, Kind, Mixin, Model, Value
from simyard.occi.standard import TEMPLATES

_MAX_NAMES = 12


def find_kind(kind_id: str, model: Model) -> Kind:
    """Return the kind with an id.

    Raises:
        OcciError: 400, the kind is unknown.
    """
    kind = model.find_kind(kind_id)
    if kind is None:
        raise OcciError(400, f"Category: the kind {quote_input(kind_id)} is unknown; see /-/")
    return kind


def find_mixins(mixin_ids: Iterable[str], kind: Kind, model: Model) -> tuple[Mixin, ...]:
    """Return the mixins with these ids, which must apply to the kind and contain at most one template of each sort.

    Raises:
        OcciError: 400, a mixin is unknown, or two mixins are templates of the same sort; 403, a mixin does not apply.
    """
    found: dict[str, Mixin] = {}
    taken: dict[str, str] = {}
    for mixin_id in mixin_ids:
        mixin = model.find_mixin(mixin_id)
        if mixin is None:
            raise OcciError(400, f"Category: the mixin {quote_input(mixin_id)} is unknown; see /-/")
        check_applies(mixin, kind, model)
        found[mixin_id] = mixin
        for parent in find_template_parents(mixin_id, model):
            other = taken.setdefault(parent, mixin_id)
            if other != mixin_id:
                raise OcciError(400, f"Category: {mixin_id} and {other} are both templates of {parent}; send one")
    return tuple(found.values())


def find_template_parents(mixin_id: str, model: Model) -> tuple[str, ...]:
    """Return the ids of the template mixins (``os_tpl``, ``resource_tpl``, ...) on which a mixin depends."""
    ancestors = model.list_lineage(mixin_id)[1:]
    return tuple(parent for parent in TEMPLATES if parent in ancestors)


def check_applies(mixin: Mixin, kind: Kind, model: Model) -> None:
    """Check that a mixin, and all mixins that it depends on, apply to a kind.

    Raises:
        OcciError: 403, the mixin does not apply to the kind.
    """
    kinds = model.list_lineage(kind.id)
    for ancestor_id in model.list_lineage(mixin.id):
        ancestor = model.find_mixin(ancestor_id)
        if ancestor is not None and ancestor.applies and set(ancestor.applies).isdisjoint(kinds):
            raise OcciError(403, f"Category: the mixin {mixin.id} does not apply to the kind {kind.term}")


def match_declarations(
    attributes: Mapping[str, Value], specs: Mapping[str, AttributeSpec], of_what: str
) -> Iterator[tuple[AttributeSpec, Value]]:
    """Yield the declaration and the value of each attribute, except core attributes.

    Raises:
        OcciError: 400, an attribute is not declared.
    """
    for name, value in attributes.items():
        if name in CORE_ATTRIBUTES:
            continue
        yield find_spec(name, specs, of_what), value


def find_spec(name: str, specs: Mapping[str, AttributeSpec], of_what: str) -> AttributeSpec:
    """Return the declaration of an attribute.

    Raises:
        OcciError: 400, the attribute is not declared.
    """
    spec = specs.get(name)
    if spec is None:
        names = [known for known in specs if known not in CORE_ATTRIBUTES]
        some = ", ".join(names[:_MAX_NAMES]) + (", ..." if len(names) > _MAX_NAMES else "")
        raise OcciError(400, f"attribute {quote_input(name)}: {of_what} has none of that name; it has {some or 'none'}")
    return spec


def refuse_missing(specs: Iterable[AttributeSpec], present: Set[str], of_what: str) -> None:
    """Raise an error if a required attribute is missing. Core attributes are checked where they are read.

    Raises:
        OcciError: 400, a required attribute is missing.
    """
    for spec in specs:
        if spec.required and spec.name not in present and spec.name not in CORE_ATTRIBUTES:
            raise OcciError(400, f"attribute {spec.name}: is required by {of_what}")
