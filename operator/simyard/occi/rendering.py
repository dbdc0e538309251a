# SPDX-License-Identifier: Apache-2.0
"""Renders entities, collections, the model, locations and errors.

The rendering of an entity needs the model, because its Category lines show the locations of categories.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from simyard.occi.errors import OcciError
from simyard.occi.grammar import UNSAFE_IN_HEADERS
from simyard.occi.json_rendering import make_entity_object, make_model_object
from simyard.occi.model import Category, Entity, Model
from simyard.occi.negotiation import Rendering
from simyard.occi.text_rendering import LOCATION, Line, join_body, join_headers, render_category, render_entity_lines
from simyard.occi.values import encode_json

_CONTENT_TYPES = {
    Rendering.TEXT_PLAIN: "text/plain; charset=utf-8",
    Rendering.TEXT_OCCI: "text/occi; charset=utf-8",
    Rendering.URI_LIST: "text/uri-list; charset=utf-8",
    Rendering.JSON: "application/occi+json",
}


@dataclass(frozen=True, slots=True)
class Rendered:
    """The body, the Content-Type and further headers of a response. Only text/occi has further headers, in ASCII.

    ``tag`` is the entity tag with the quotes; "" without a tag.
    """

    body: bytes
    content_type: str
    headers: tuple[tuple[str, str], ...] = ()
    tag: str = ""


def render_entity(entity: Entity, rendering: Rendering, base: str, model: Model) -> Rendered:
    """Render one entity.

    ``base`` (``https://host:port``) is for renderings with absolute URIs; no rendering uses it at present.

    Raises:
        OcciError: 400, the rendering is text/uri-list.
    """
    if rendering is Rendering.TEXT_OCCI:
        return _in_headers(render_entity_lines(entity, model, UNSAFE_IN_HEADERS))
    if rendering is Rendering.URI_LIST:
        raise OcciError(400, "text/uri-list has listings only; accept text/plain for an entity")
    return Rendered(render_entity_part(entity, rendering, model), _CONTENT_TYPES[rendering])


def render_entity_part(entity: Entity, rendering: Rendering, model: Model) -> bytes:
    """Render one entity for :func:`render_collection`, in text/plain or JSON.

    The result depends only on the entity and the model, so that callers can cache it.

    Raises:
        OcciError: 406, the rendering lists only locations (:func:`render_locations`).
    """
    if rendering is Rendering.TEXT_PLAIN:
        return join_body(render_entity_lines(entity, model))
    if rendering is Rendering.JSON:
        return encode_json(make_entity_object(entity))
    raise _no_full_listing(rendering)


def render_collection(
    resources: Iterable[bytes], links: Iterable[bytes], rendering: Rendering, *, of_links: bool = False
) -> Rendered:
    """Join rendered resources and links to a collection, in text/plain (with empty lines between them) or JSON.

    In JSON an empty collection has the key ``resources``, or ``links`` for a collection ``of_links``.

    Raises:
        OcciError: 406, the rendering lists only locations.
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
    """Render categories for ``/-/`` in the given order (``model.ordered``, or a part of it).

    The text renderings omit a ``rel`` to a category that is not in ``known``. By default, ``known`` is a model of
    ``categories``; if these are a part of a model, pass the whole model as ``known``.

    Raises:
        OcciError: 400, the rendering is text/uri-list.
    """
    shown = tuple(categories)
    if rendering is Rendering.JSON:
        return Rendered(encode_json(make_model_object(shown)), _CONTENT_TYPES[rendering])
    if rendering is Rendering.URI_LIST:
        raise OcciError(400, "text/uri-list has listings only; accept text/plain for categories")
    among = known or Model(shown)
    if rendering is Rendering.TEXT_OCCI:
        return _in_headers(render_category(category, among, UNSAFE_IN_HEADERS) for category in shown)
    return Rendered(join_body(render_category(category, among) for category in shown), _CONTENT_TYPES[rendering])


def render_locations(paths: Iterable[str], rendering: Rendering, base: str) -> Rendered:
    """Render a listing of absolute URIs, which consist of ``base`` and a path.

    The listing is X-OCCI-Location lines, one X-OCCI-Location header, a uri-list, or a JSON array of strings.
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
            return Rendered(encode_json([root + path for path in paths]), _CONTENT_TYPES[rendering])
    return Rendered(body.encode(), _CONTENT_TYPES[rendering])


def render_error(status: int, message: str, rendering: Rendering) -> Rendered:
    """Render an error: an object with ``code`` and ``message`` in JSON, and one line of text/plain otherwise."""
    line = OcciError(status, message).message
    if rendering is Rendering.JSON:
        return Rendered(encode_json({"code": status, "message": line}), _CONTENT_TYPES[rendering])
    return Rendered(f"{line}\n".encode(), _CONTENT_TYPES[Rendering.TEXT_PLAIN])


def _in_headers(lines: Iterable[Line]) -> Rendered:
    return Rendered(b"OK", _CONTENT_TYPES[Rendering.TEXT_OCCI], join_headers(lines))


def _no_full_listing(rendering: Rendering) -> OcciError:
    return OcciError(406, f"{rendering} lists locations only; accept text/plain or application/occi+json")
