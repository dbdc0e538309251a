# SPDX-License-Identifier: Apache-2.0
"""Renders application/occi+json (GFD.226) in the flat form.

The output has no empty lists, because the OGF's JSON schema forbids empty arrays of ids. It has no ``pattern`` of an
attribute, because this schema requires a JSON schema there, and rOCCI's copy of it requires a string.
"""

from __future__ import annotations

from collections.abc import Iterable

from simyard.occi.model import Action, AttributeSpec, Category, Entity, Json, Kind, Link, Mixin, Resource

Object = dict[str, Json]


def make_model_object(categories: Iterable[Category]) -> Object:
    """Return an object with the kinds, mixins and actions among the categories."""
    kinds: list[Json] = []
    mixins: list[Json] = []
    actions: list[Json] = []
    for category in categories:
        match category:
            case Kind():
                kinds.append(_kind(category))
            case Mixin():
                mixins.append(_mixin(category))
            case Action():
                actions.append(_category(category))
    return _lists(kinds=kinds, mixins=mixins, actions=actions)


def make_entity_object(entity: Entity) -> Object:
    """Return the object of a resource with its links, or of a link."""
    return _resource(entity) if isinstance(entity, Resource) else _link(entity)


def _resource(resource: Resource) -> Object:
    found: Object = {"kind": resource.kind, "id": resource.id}
    if resource.title:
        found["title"] = resource.title
    if resource.summary:
        found["summary"] = resource.summary
    found["attributes"] = {**resource.attributes}
    found |= _lists(
        mixins=[*resource.mixins],
        actions=[*resource.actions],
        links=[_link(link, resource.kind) for link in resource.links],
    )
    return found


def _link(link: Link, source_kind: str = "") -> Object:
    source: Object = {"location": link.source}
    target: Object = {"location": link.target}
    if link.source_kind or source_kind:
        source["kind"] = link.source_kind or source_kind
    if link.target_kind:
        target["kind"] = link.target_kind[0]
    found: Object = {"kind": link.kind, "id": link.id, "source": source, "target": target}
    if link.title:
        found["title"] = link.title
    found["attributes"] = {**link.attributes}
    found |= _lists(mixins=[*link.mixins], actions=[*link.actions])
    return found


def _category(category: Category) -> Object:
    found: Object = {"term": category.term, "scheme": category.scheme}
    if category.title:
        found["title"] = category.title
    found["attributes"] = {spec.name: _description(spec) for spec in category.attributes}
    return found


def _kind(kind: Kind) -> Object:
    found: Object = {**_category(kind), **_lists(actions=[*kind.actions])}
    if kind.parent:
        found["parent"] = kind.parent
    if kind.location:
        found["location"] = kind.location
    return found


def _mixin(mixin: Mixin) -> Object:
    lists = _lists(depends=[*mixin.depends], applies=[*mixin.applies], actions=[*mixin.actions])
    return {**_category(mixin), **lists, "location": mixin.location}


def _description(spec: AttributeSpec) -> Object:
    found: Object = {"mutable": spec.mutable, "required": spec.required, "type": spec.type.value}
    if spec.default is not None:
        found["default"] = spec.default
    if spec.description:
        found["description"] = spec.description
    return found


def _lists(**lists: list[Json]) -> Object:
    """Return the lists by name, without empty lists."""
    return {name: items for name, items in lists.items() if items}
