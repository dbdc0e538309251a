# SPDX-License-Identifier: Apache-2.0
"""Reads categories from JSON: kinds, mixins and actions with their attributes, in the flat or the nested form."""

from __future__ import annotations

from collections.abc import Iterator

from simyard.occi import grammar
from simyard.occi.errors import OcciError, quote_input
from simyard.occi.model import Action, AttributeSpec, Category, Json, Kind, Mixin, ValueType
from simyard.occi.values import MAX_DEPTH, check_bounds

_DESCRIPTION = frozenset({"mutable", "required", "type", "pattern", "default", "description", "unique", "multiple"})
_TYPES = {
    "string": ValueType.STRING,
    "number": ValueType.NUMBER,
    "integer": ValueType.NUMBER,
    "float": ValueType.NUMBER,
    "boolean": ValueType.BOOLEAN,
    "array": ValueType.ARRAY,
    "object": ValueType.OBJECT,
    "hash": ValueType.OBJECT,
}


def read_definition(data: dict[str, Json], plural: str, where: str) -> Category:
    """Return the category in a member of ``kinds``, ``mixins`` or ``actions``.

    Raises:
        OcciError: 400, with the problem and its place.
    """
    scheme, term = _text(data, "scheme", where), _text(data, "term", where)
    if not grammar.TERM.fullmatch(term) or not grammar.URI.fullmatch(scheme):
        raise OcciError(
            400,
            f"{where}: {quote_input(scheme + term)} is no category: the scheme is a URI that ends in #, then a term",
        )
    title = _text(data, "title", where)
    specs = tuple(_specs(data.get("attributes"), f"{where}.attributes"))
    if plural == "actions":
        return Action(scheme, term, title, specs)
    location = _text(data, "location", where)
    if location:
        grammar.check_uri(location, f"{where}.location")
    actions = _references(data.get("actions"), f"{where}.actions")
    rel = (*_references(data.get("rel"), f"{where}.rel"), *_references(data.get("related"), f"{where}.related"))
    if plural == "kinds":
        parent = (*_references(data.get("parent"), f"{where}.parent"), *rel)
        return Kind(scheme, term, title, location, parent[0] if parent else "", specs, actions)
    depends = (*_references(data.get("depends"), f"{where}.depends"), *rel)
    applies = _references(data.get("applies"), f"{where}.applies")
    return Mixin(scheme, term, title, location, tuple(dict.fromkeys(depends)), applies, specs, actions)


def _specs(data: Json, where: str) -> Iterator[AttributeSpec]:
    if data is None:
        return
    if not isinstance(data, dict):
        raise OcciError(400, f"{where}: must be an object")
    waiting: list[tuple[str, Json, int]] = [(name, item, 0) for name, item in reversed(data.items())]
    while waiting:
        name, item, depth = waiting.pop()
        if item is None:
            item = {}
        if not isinstance(item, dict):
            return  # the members are values in the older form of an invocation, not descriptions
        if depth > MAX_DEPTH or not grammar.ATTRIBUTE_NAME.fullmatch(name):
            raise OcciError(400, f"{where}: {quote_input(name)} is no name of an attribute")
        described = {
            key.lower(): value
            for key, value in item.items()
            if key.lower() in _DESCRIPTION
            and (key.lower() == "default" or not isinstance(value, dict) or _is_schema(key.lower(), value))
        }
        nested = [(key, value) for key, value in item.items() if key.lower() not in described]
        if described or not nested:
            yield _spec(name, described, f"{where}: {quote_input(name)}")
        waiting.extend((f"{name}.{key}", value, depth + 1) for key, value in reversed(nested))


def _spec(name: str, described: dict[str, Json], where: str) -> AttributeSpec:
    type_name = described.get("type") or "string"
    wanted = _TYPES.get(type_name.lower()) if isinstance(type_name, str) else None
    if wanted is None:
        raise OcciError(400, f"{where}: the type is none of {', '.join(ValueType)}")
    pattern, description = described.get("pattern") or "", described.get("description") or ""
    if isinstance(pattern, dict):
        inner = pattern.get("pattern")
        pattern = f"(?s:.*)(?:{inner})(?s:.*)" if isinstance(inner, str) else ""
    if not isinstance(pattern, str) or not isinstance(description, str):
        raise OcciError(400, f"{where}: pattern and description must be strings")
    flags = [described.get(key) for key in ("mutable", "required")]
    mutable, required = (default if flag is None else flag for flag, default in zip(flags, (True, False), strict=True))
    if not isinstance(mutable, bool) or not isinstance(required, bool):
        raise OcciError(400, f"{where}: mutable and required must be true or false")
    default = described.get("default")
    check_bounds(default, f"{where}: the default")
    return AttributeSpec(name, wanted, mutable, required, default, pattern, description)


def _is_schema(name: str, value: dict[str, Json]) -> bool:
    """Return true if a member of a description is a JSON schema, which GFD.226 uses as a pattern.

    The schema's own ``pattern`` matches anywhere in the value (JSON schema, 5.2.3); the pattern of an attribute matches
    the whole value.
    """
    return name == "pattern" and ("$schema" in value or isinstance(value.get("pattern"), str))


def _references(data: Json, where: str) -> tuple[str, ...]:
    """Return the ids in ``data``: a string, an object with scheme and term, or an array of these."""
    found: list[str] = []
    for item in data if isinstance(data, list) else [] if data is None else [data]:
        text = f"{item.get('scheme')}{item.get('term')}" if isinstance(item, dict) else item
        if not isinstance(text, str):
            raise OcciError(400, f"{where}: must be ids of categories")
        if text:
            found.append(grammar.check_uri(text, where))
    return tuple(dict.fromkeys(found))


def _text(data: dict[str, Json], name: str, where: str) -> str:
    value = data.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise OcciError(400, f"{where}.{name}: must be a string")
    return value
