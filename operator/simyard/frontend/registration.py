"""Registrations of foreign service adapters, as the Cloud4E binding has them, in the handlers' terms."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeGuard

import orjson

from simyard.frontend.computes import AMQPLINKS
from simyard.frontend.exchange import OcciRequest, OcciResponse
from simyard.occi.errors import OcciError
from simyard.occi.model import SOURCE, TARGET, Draft, Model, path_of
from simyard.occi.negotiation import Rendering, choose, content_type
from simyard.occi.parsing import parse
from simyard.occi.rendering import render_locations
from simyard.occi.standard import STANDARD
from simyard.occi.values import text_of

JSON = Rendering.JSON.value
_MODEL = Model(STANDARD)
"""Enough to find the id in a request; the handlers read it by the model as it is."""
Handle = Callable[[OcciRequest], Awaitable[OcciResponse]]


def registering(handle: Handle) -> Handle:
    """Handlers that take registrations as service adapters send them.

    ``POST /amqplink/`` of a link whose id is there already replaces it, as an adapter does that starts again. And one
    message may be a whole registration: a JSON document of ``mixins`` and ``actions`` (definitions, as for ``POST
    /-/``) and ``links``, each with an ``id``: the mixins are defined, then every link is created or replaced. Sent
    again, it changes nothing. The answer is that of the last request, or of the first that is refused.
    """

    async def handle_registration(request: OcciRequest) -> OcciResponse:
        if request.method != "POST" or request.path != AMQPLINKS or request.query:
            return await handle(request)
        if parts := _parts(request):
            for part in parts:
                response = await _replace(handle, part)
                if response.status >= 400:
                    break
            return response
        if (path := _path_asked_for(request)) and await _is_there(handle, request, path):
            rendering = choose(request.header("accept"))
            response = await _replace(handle, _replacing(request, path))
            return response if response.status >= 400 else _located(request, path, rendering)
        return await handle(request)

    return handle_registration


async def _replace(handle: Handle, request: OcciRequest) -> OcciResponse:
    """PUT of a link. What it connects cannot change: an adapter that serves another compute now gets a new link.

    The old one goes only if the other compute is there and the link is what stands in the way.
    """
    response = await handle(request)
    if request.method != "PUT" or response.status != 403 or not await _connects_others(handle, request):
        return response
    deleted = await handle(replace(request, method="DELETE", headers=(), body=b"", key=""))
    return deleted if deleted.status >= 400 else await handle(request)


async def _connects_others(handle: Handle, request: OcciRequest) -> bool:
    """Whether a link that is there starts or ends at another entity than the one in a request."""
    asked = replace(request, method="GET", headers=(("accept", JSON),), body=b"", key="")
    shown = await handle(asked)
    draft = _draft(request)
    source = path_of(text_of(draft.attributes.get(SOURCE, "")), request.base)
    if shown.status != 200 or not source:
        return False
    link = orjson.loads(shown.body)
    if link["source"]["location"] != source:
        return (await handle(replace(asked, path=source))).status == 200
    target = draft.attributes.get(TARGET)
    return target is not None and link["target"]["location"] != path_of(text_of(target), request.base)


def _draft(request: OcciRequest) -> Draft:
    """What is in a request; nothing if it cannot be read: then the handlers say what is wrong."""
    try:
        return parse(content_type(request.header("content-type")), request.headers, request.body, _MODEL)
    except OcciError:
        return Draft()


def _path_asked_for(request: OcciRequest) -> str:
    """The path of the one link in a request, by its id; empty without."""
    draft = _draft(request)
    asked_for = draft.attributes.get("occi.core.id")
    return AMQPLINKS + asked_for if _is_id(asked_for) and not draft.members else ""


async def _is_there(handle: Handle, request: OcciRequest, path: str) -> bool:
    return (await handle(replace(request, method="GET", path=path, headers=(), body=b"", key=""))).status == 200


def _replacing(request: OcciRequest, path: str) -> OcciRequest:
    headers = tuple(header for header in request.headers if header[0] != "accept")
    return replace(request, method="PUT", path=path, headers=headers)


def _located(request: OcciRequest, path: str, rendering: Rendering) -> OcciResponse:
    """What a creation answers, for a link that was there."""
    rendered = render_locations([path], rendering, request.base)
    headers = (*rendered.headers, ("Location", request.base + path))
    return OcciResponse(200, rendered.body, rendered.content_type, headers)


def _parts(request: OcciRequest) -> tuple[OcciRequest, ...]:
    """The requests of a registration; none if it is not one."""
    media_type = (request.header("content-type") or "").partition(";")[0].strip().lower()
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
