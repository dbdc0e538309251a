"""Entities, collections, the model, locations and errors, in every rendering.

What renders an entity takes the model, because the Category lines of an instance show locations (section 12.8).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from simyard.occi.errors import OcciError
from simyard.occi.grammar import UNSAFE_IN_HEADERS
from simyard.occi.json_rendering import entity_object, model_object
from simyard.occi.model import Category, Entity, Model
from simyard.occi.negotiation import Rendering
from simyard.occi.text_rendering import LOCATION, Line, body_of, category_line, entity_lines, headers_of
from simyard.occi.values import json_of

_CONTENT_TYPES = {
    Rendering.TEXT_PLAIN: "text/plain; charset=utf-8",
    Rendering.TEXT_OCCI: "text/occi; charset=utf-8",
    Rendering.URI_LIST: "text/uri-list; charset=utf-8",
    Rendering.JSON: "application/occi+json",
}


@dataclass(frozen=True, slots=True)
class Rendered:
    """A response's body, its Content-Type, and headers beside it (only text/occi has some; they are ASCII).

    ``tag`` is its entity tag with the quotes, "" without one.
    """

    body: bytes
    content_type: str
    headers: tuple[tuple[str, str], ...] = ()
    tag: str = ""


def render_entity(entity: Entity, rendering: Rendering, base: str, model: Model) -> Rendered:
    """One entity. ``base`` (``https://host:port``) is for renderings that need absolute URIs; none does today.

    Raises:
        OcciError: 400 for text/uri-list.
    """
    if rendering is Rendering.TEXT_OCCI:
        return _in_headers(entity_lines(entity, model, UNSAFE_IN_HEADERS))
    if rendering is Rendering.URI_LIST:
        raise OcciError(400, "text/uri-list has listings only; accept text/plain for an entity")
    return Rendered(render_entity_part(entity, rendering, model), _CONTENT_TYPES[rendering])


def render_entity_part(entity: Entity, rendering: Rendering, model: Model) -> bytes:
    """One entity for :func:`render_collection`, in text/plain or JSON.

    It depends on nothing but the entity and the model, so that it can be cached.

    Raises:
        OcciError: 406 for the other renderings, which list locations only (:func:`render_locations`).
    """
    if rendering is Rendering.TEXT_PLAIN:
        return body_of(entity_lines(entity, model))
    if rendering is Rendering.JSON:
        return json_of(entity_object(entity))
    raise _no_full_listing(rendering)


def render_collection(
    resources: Iterable[bytes], links: Iterable[bytes], rendering: Rendering, *, of_links: bool = False
) -> Rendered:
    """Entities in full: the parts of resources and those of links, in text/plain (an empty line between two) or JSON.

    In JSON an empty collection has the key ``resources``, or ``links`` where it is one ``of_links``.

    Raises:
        OcciError: 406 for the other renderings.
    """
    if rendering is Rendering.TEXT_PLAIN:
        return Rendered(b"\n".join((*resources, *links)), _CONTENT_TYPES[rendering])
    if rendering is Rendering.JSON:
        parts = {b"resources": b",".join(resources), b"links": b",".join(links)}
        empty = b"links" if of_links else b"resources"
        shown = [name for name, items in parts.items() if items] or [empty]
        lists = b",".join(b'"' + name + b'":[' + parts[name] + b"]" for name in shown)
        return Rendered(b"{" + lists + b"}", _CONTENT_TYPES[rendering])
    raise _no_full_listing(rendering)


def render_model(categories: Iterable[Category], rendering: Rendering, known: Model | None = None) -> Rendered:
    """Categories in the order given, as ``/-/`` shows them (``model.ordered``, or a part of it).

    In text a ``rel`` to what is not in ``known`` is left out; by default that is the categories themselves, which is
    right for a whole model: give the model with a part of it.

    Raises:
        OcciError: 400 for text/uri-list.
    """
    shown = tuple(categories)
    if rendering is Rendering.JSON:
        return Rendered(json_of(model_object(shown)), _CONTENT_TYPES[rendering])
    if rendering is Rendering.URI_LIST:
        raise OcciError(400, "text/uri-list has listings only; accept text/plain for categories")
    among = known or Model(shown)
    if rendering is Rendering.TEXT_OCCI:
        return _in_headers(category_line(category, among, UNSAFE_IN_HEADERS) for category in shown)
    return Rendered(body_of(category_line(category, among) for category in shown), _CONTENT_TYPES[rendering])


def render_locations(paths: Iterable[str], rendering: Rendering, base: str) -> Rendered:
    """A listing of absolute URIs: X-OCCI-Location lines or one header, a uri-list, or a JSON array of strings.

    ``base`` stands before each path.
    """
    root = base.rstrip("/")
    match rendering:
        case Rendering.TEXT_PLAIN:
            start = f"{LOCATION}: {root}"
            body = "".join([f"{start}{path}\n" for path in paths])
        case Rendering.URI_LIST:
            body = "".join([f"{root}{path}\n" for path in paths])
        case Rendering.TEXT_OCCI:
            return _in_headers((LOCATION, root + path) for path in paths)
        case Rendering.JSON:
            return Rendered(json_of([root + path for path in paths]), _CONTENT_TYPES[rendering])
    return Rendered(body.encode(), _CONTENT_TYPES[rendering])


def render_error(status: int, message: str, rendering: Rendering) -> Rendered:
    """One line of text/plain, or an object with ``code`` and ``message`` where JSON was asked for."""
    line = OcciError(status, message).message
    if rendering is Rendering.JSON:
        return Rendered(json_of({"code": status, "message": line}), _CONTENT_TYPES[rendering])
    return Rendered(f"{line}\n".encode(), _CONTENT_TYPES[Rendering.TEXT_PLAIN])


def _in_headers(lines: Iterable[Line]) -> Rendered:
    return Rendered(b"OK", _CONTENT_TYPES[Rendering.TEXT_OCCI], headers_of(lines))


def _no_full_listing(rendering: Rendering) -> OcciError:
    return OcciError(406, f"{rendering} lists locations only; accept text/plain or application/occi+json")
