# SPDX-License-Identifier: Apache-2.0
"""Builds the responses to requests that change something. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from simyard.frontend.exchange import OcciResponse
from simyard.frontend.reading import respond
from simyard.occi.model import Action, Entity, Link, Model, Value
from simyard.occi.negotiation import Rendering
from simyard.occi.rendering import Rendered, render_collection, render_entity_part, render_locations
from simyard.occi.text_rendering import ATTRIBUTE, join_body, join_headers, render_value
from simyard.occi.values import encode_json


def render_entities(entities: Sequence[Entity], rendering: Rendering, base: str, model: Model) -> Rendered:
    """Return entities as listings show them: in full in JSON, as locations in all other formats."""
    if rendering is not Rendering.JSON:
        return render_locations([entity.path for entity in entities], rendering, base)
    parts = [(isinstance(entity, Link), render_entity_part(entity, rendering, model)) for entity in entities]
    resources, links = ([part for is_link, part in parts if is_link is wanted] for wanted in (False, True))
    return render_collection(resources, links, rendering)


def make_empty_response(rendering: Rendering) -> OcciResponse:
    """Return the response to a request that succeeded and has no result."""
    if rendering is Rendering.JSON:
        return OcciResponse(200, b"{}", "application/occi+json")
    if rendering is Rendering.URI_LIST:
        return OcciResponse(200, b"", "text/uri-list; charset=utf-8")
    return OcciResponse(200, b"OK", f"{rendering}; charset=utf-8")


def make_creation_response(entities: Sequence[Entity], rendering: Rendering, base: str) -> OcciResponse:
    """Return the response with the locations of created entities.

    It is text/plain even if the client accepts only JSON.
    """
    rendering = Rendering.TEXT_PLAIN if rendering is Rendering.JSON else rendering
    paths = [entity.path for entity in entities]
    headers = (("Location", base + paths[0]),) if len(paths) == 1 else ()
    return respond(render_locations(paths, rendering, base), headers, 201)


def make_result_response(action: Action, result: Mapping[str, Value], rendering: Rendering) -> OcciResponse:
    """Return the response with the result of an action: an invocation in JSON, or attributes in text."""
    if rendering is Rendering.JSON:
        return OcciResponse(200, encode_json({"action": action.id, "attributes": result}), rendering)
    if rendering is Rendering.URI_LIST:
        return make_empty_response(rendering)
    lines = [(ATTRIBUTE, f"{name}={render_value(value)}") for name, value in result.items()]
    if rendering is Rendering.TEXT_OCCI:
        return dataclasses.replace(make_empty_response(rendering), headers=join_headers(lines))
    return OcciResponse(200, join_body(lines), f"{rendering}; charset=utf-8")
