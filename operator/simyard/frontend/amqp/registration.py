# SPDX-License-Identifier: Apache-2.0
"""Translates registrations of foreign service adapters (Cloud4E binding) into requests for the handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeGuard

import orjson

from simyard.frontend.entities.computes import AMQPLINKS
from simyard.frontend.exchange import OcciRequest, OcciResponse
from simyard.occi.errors import OcciError
from simyard.occi.model import SOURCE, TARGET, Draft, Model, strip_base
from simyard.occi.negotiation import Rendering, choose_rendering, read_content_type
from simyard.occi.parsing import parse
from simyard.occi.rendering import render_locations
from simyard.occi.standard import STANDARD
from simyard.occi.values import format_value

JSON = Rendering.JSON.value
_MODEL = Model(STANDARD)
"""The categories of the standard, which are enough to find the id in a request. The handlers use the complete model."""
Handle = Callable[[OcciRequest], Awaitable[OcciResponse]]


def accept_registrations(handle: Handle) -> Handle:
    """Return a handler that also accepts the registrations of foreign service adapters, and calls ``handle``.

    If the id of a link in ``POST /amqplink/`` exists already, the handler replaces the link, because an adapter sends
    it again after a restart. One message may also be a whole registration: a JSON document of ``mixins`` and
    ``actions`` (definitions, as for ``POST /-/``) and ``links``, each with an ``id``. The handler defines the mixins,
    then creates or replaces every link; if the message arrives again, nothing changes. The response is that of the last
    request, or of the first refused request.
    """

    async def handle_registration(request: OcciRequest) -> OcciResponse:
        if request.method != "POST" or request.path != AMQPLINKS or request.query:
            return await handle(request)
        if parts := _split_registration(request):
            for part in parts:
                response = await _replace(handle, part)
                if response.status >= 400:
                    break
            return response
        if (path := _path_asked_for(request)) and await _is_there(handle, request, path):
            rendering = choose_rendering(request.get_header("accept"))
            response = await _replace(handle, _build_put(request, path))
            return response if response.status >= 400 else _location_response(request, path, rendering)
        return await handle(request)

    return handle_registration


async def _replace(handle: Handle, request: OcciRequest) -> OcciResponse:
    """Send PUT of a link; if the adapter now serves a different compute, delete the old link first.

    Source and target of a link cannot change. This function therefore deletes the old link, but only if the new compute
    exists and the ends of the two links differ.
    """
    response = await handle(request)
    if request.method != "PUT" or response.status != 403 or not await _connects_others(handle, request):
        return response
    deleted = await handle(replace(request, method="DELETE", headers=(), body=b"", key=""))
    return deleted if deleted.status >= 400 else await handle(request)


async def _connects_others(handle: Handle, request: OcciRequest) -> bool:
    """Return true if the existing link has a different source or target than the link in the request."""
    get_request = replace(request, method="GET", headers=(("accept", JSON),), body=b"", key="")
    shown = await handle(get_request)
    draft = _draft(request)
    source = strip_base(format_value(draft.attributes.get(SOURCE, "")), request.base)
    if shown.status != 200 or not source:
        return False
    link = orjson.loads(shown.body)
    if link["source"]["location"] != source:
        return (await handle(replace(get_request, path=source))).status == 200
    target = draft.attributes.get(TARGET)
    return target is not None and link["target"]["location"] != strip_base(format_value(target), request.base)


def _draft(request: OcciRequest) -> Draft:
    """Return the content of a request.

    If it cannot be read, return an empty draft: the handlers then report the error.
    """
    try:
        return parse(read_content_type(request.get_header("content-type")), request.headers, request.body, _MODEL)
    except OcciError:
        return Draft()


def _path_asked_for(request: OcciRequest) -> str:
    """Return the path of the single link in a request, by its id; "" if the link has no id."""
    draft = _draft(request)
    asked_for = draft.attributes.get("occi.core.id")
    return AMQPLINKS + asked_for if _is_id(asked_for) and not draft.members else ""


async def _is_there(handle: Handle, request: OcciRequest, path: str) -> bool:
    return (await handle(replace(request, method="GET", path=path, headers=(), body=b"", key=""))).status == 200


def _build_put(request: OcciRequest, path: str) -> OcciRequest:
    headers = tuple(header for header in request.headers if header[0] != "accept")
    return replace(request, method="PUT", path=path, headers=headers)


def _location_response(request: OcciRequest, path: str, rendering: Rendering) -> OcciResponse:
    """Return the response to the creation of a link, although the link existed already."""
    rendered = render_locations([path], rendering, request.base)
    headers = (*rendered.headers, ("Location", request.base + path))
    return OcciResponse(200, rendered.body, rendered.content_type, headers)


def _split_registration(request: OcciRequest) -> tuple[OcciRequest, ...]:
    """Return the requests of a registration; none if the request is not one."""
    media_type = (request.get_header("content-type") or "").partition(";")[0].strip().lower()
    is_json = media_type in (JSON, "application/json")
    if not is_json:
        return ()
    try:
        document = orjson.loads(request.body)
    except orjson.JSONDecodeError:
        return ()
    if not isinstance(document, dict):
        return ()
    mixins, links = document.get("mixins"), document.get("links")
    if not _are_objects(mixins) or not _are_objects(links):
        return ()
    ids = [name for link in links if _is_id(name := link.get("id"))]
    if len(ids) < len(links):
        return ()
    definitions = {"mixins": mixins, "actions": document.get("actions") or []}
    return (
        replace(request, path="/-/", body=orjson.dumps(definitions), key=_part_key(request, "mixins")),
        *(
            replace(
                request,
                method="PUT",
                path=AMQPLINKS + name,
                body=orjson.dumps(link),
                key=_part_key(request, name),
            )
            for name, link in zip(ids, links, strict=True)
        ),
    )


def _part_key(request: OcciRequest, part: str) -> str:
    return request.key and f"{request.key}-{part}"


def _are_objects(value: object) -> TypeGuard[list[dict[str, object]]]:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _is_id(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and bool(value) and "/" not in value
