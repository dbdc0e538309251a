# SPDX-License-Identifier: Apache-2.0
"""Renders categories, entities and locations as text (GFD.185 section 3.2)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from simyard.occi.grammar import UNSAFE, quote
from simyard.occi.model import (
    ID,
    RESOURCE,
    SOURCE,
    SOURCE_KIND,
    SUMMARY,
    TARGET,
    TARGET_KIND,
    TITLE,
    Action,
    AttributeSpec,
    Category,
    Entity,
    Kind,
    Link,
    Mixin,
    Model,
    Resource,
    Value,
)
from simyard.occi.values import format_value

Line = tuple[str, str]
"""The name of a field and its value."""

CATEGORY, LINK, ATTRIBUTE, LOCATION = "Category", "Link", "X-OCCI-Attribute", "X-OCCI-Location"


def join_body(lines: Iterable[Line]) -> bytes:
    """Return a text/plain body with one line for each field."""
    return "".join([f"{name}: {value}\n" for name, value in lines]).encode("utf-8", "replace")


def join_headers(lines: Iterable[Line]) -> tuple[tuple[str, str], ...]:
    """Return headers for text/occi: one header for each name, with values joined by ``, ``."""
    found: dict[str, list[str]] = {}
    for name, value in lines:
        found.setdefault(name, []).append(value)
    return tuple((name, ", ".join(values)) for name, values in found.items())


def render_category(category: Category, known: Model | None, unsafe: re.Pattern[str] = UNSAFE) -> Line:
    """Return a category with all details, as in ``/-/``.

    The line has no ``rel`` to a category that is not in ``known``, because clients fail on such a ``rel``.
    """
    match category:
        case Kind():
            text = _reference(category.scheme, category.term, "kind")
            rel, location, actions = category.parent, category.location, category.actions
        case Mixin():
            text = _reference(category.scheme, category.term, "mixin")
            rel, location, actions = " ".join(category.depends[:1]), category.location, category.actions
        case Action():
            text = _reference(category.scheme, category.term, "action")
            rel, location, actions = "", "", ()
    if category.title:
        text += f"; title={quote(category.title, unsafe)}"
    if rel and (known is None or known.find_category(rel) is not None):
        text += f'; rel="{rel}"'
    if location:
        text += f'; location="{location}"'
    if category.attributes:
        text += f'; attributes="{" ".join(map(_spec, category.attributes))}"'
    if actions:
        text += f'; actions="{" ".join(actions)}"'
    return CATEGORY, text


def render_entity_lines(entity: Entity, model: Model, unsafe: re.Pattern[str] = UNSAFE) -> list[Line]:
    """Return the lines of an entity: categories with locations, applicable actions, links, then attributes.

    GFD.229 (5.4) defines this order, with the links to actions before other links.
    """
    lines = [(CATEGORY, _instance(entity.kind, "kind", model))]
    lines.extend((CATEGORY, _instance(mixin, "mixin", model)) for mixin in entity.mixins)
    lines.extend((LINK, f'<{entity.path}?action={name.rpartition("#")[2]}>; rel="{name}"') for name in entity.actions)
    if isinstance(entity, Resource):
        lines.extend((LINK, _link(link, unsafe)) for link in entity.links)
    lines.append((ATTRIBUTE, f"{ID}={quote(entity.id, unsafe)}"))
    if entity.title:
        lines.append((ATTRIBUTE, f"{TITLE}={quote(entity.title, unsafe)}"))
    if isinstance(entity, Resource):
        if entity.summary:
            lines.append((ATTRIBUTE, f"{SUMMARY}={quote(entity.summary, unsafe)}"))
    else:
        lines.extend((ATTRIBUTE, f"{name}={quote(value, unsafe)}") for name, value in _ends(entity))
    lines.extend((ATTRIBUTE, f"{name}={render_value(value, unsafe)}") for name, value in entity.attributes.items())
    return lines


def render_value(value: Value, unsafe: re.Pattern[str] = UNSAFE) -> str:
    """Return the text of a value: numbers and booleans without quotes, all other values with quotes."""
    if isinstance(value, str):
        return quote(value, unsafe)
    text = format_value(value)
    if isinstance(value, (list, dict)) or text in ("inf", "-inf", "nan"):
        return quote(text, unsafe)
    return text


def _reference(scheme: str, term: str, class_name: str) -> str:
    return f'{term}; scheme="{scheme}"; class="{class_name}"'


def _instance(category_id: str, class_name: str, model: Model) -> str:
    category = model.find_category(category_id)
    if category is None or isinstance(category, Action):
        scheme, _, term = category_id.rpartition("#")
        return _reference(f"{scheme}#", term, class_name)
    text = _reference(category.scheme, category.term, class_name)
    return f'{text}; location="{category.location}"' if category.location else text


def _ends(link: Link) -> Iterator[tuple[str, str]]:
    yield SOURCE, link.source
    if link.source_kind:
        yield SOURCE_KIND, link.source_kind
    yield TARGET, link.target
    if link.target_kind:
        yield TARGET_KIND, link.target_kind[0]


def _link(link: Link, unsafe: re.Pattern[str]) -> str:
    """Return the value of a Link line.

    Source and target are also attributes, because several clients read them there.
    """
    rel = " ".join(link.target_kind) or RESOURCE
    category = " ".join((link.kind, *link.mixins))
    parts = [f'<{link.target}>; rel="{rel}"; self="{link.path}"; category="{category}"; {ID}={quote(link.id, unsafe)}']
    if link.title:
        parts.append(f"{TITLE}={quote(link.title, unsafe)}")
    parts.extend(f"{name}={quote(end, unsafe)}" for name, end in ((SOURCE, link.source), (TARGET, link.target)))
    parts.extend(f"{name}={render_value(value, unsafe)}" for name, value in link.attributes.items())
    return "; ".join(parts)


def _spec(spec: AttributeSpec) -> str:
    properties = " ".join(
        name for name, is_so in (("immutable", not spec.mutable), ("required", spec.required)) if is_so
    )
    return f"{spec.name}{{{properties}}}" if properties else spec.name
