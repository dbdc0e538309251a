"""Entity tags, and the conditions of requests on them (RFC 9110, 8.8.3 and 13). Pure.

A tag has two parts, ``"STATE-RENDERING"``. The second is of the rendering, for ``If-None-Match`` of a GET. The first is
of what clients can change: ``If-Match`` compares it alone, since a service changes its own attributes at any moment,
and a client that changes a title would otherwise seldom come through. Both are digests of what is shown, so every
frontend has the same, and no change of a rendering can be forgotten.
"""

from __future__ import annotations

import hashlib
import re

from simyard.frontend.exchange import OcciRequest
from simyard.occi.errors import OcciError
from simyard.occi.model import Entity, Model, Resource
from simyard.occi.rendering import Rendered
from simyard.occi.values import json_of

_TAG = re.compile(r'(?:W/)?"([!#-~]*)"')
_CONDITIONS = frozenset({"if-match", "if-none-match"})


def state_of(entity: Entity, model: Model) -> str:
    """Return the first part of an entity's tag."""
    specs = model.specs((*entity.mixins, entity.kind))
    changeable = {name: value for name, value in entity.attributes.items() if name not in specs or specs[name].mutable}
    own = [entity.title, *((entity.summary,) if isinstance(entity, Resource) else (entity.source, entity.target))]
    links = [(link.path, link.target, link.mixins) for link in entity.links] if isinstance(entity, Resource) else []
    return _digest(json_of([entity.kind, entity.id, entity.mixins, own, changeable, links]))


def tag_of(rendered: Rendered, state: str = "") -> str:
    """Return the tag of a rendering, quotes included; ``state``: of the entity that it shows."""
    return f'"{state}-{_digest(rendered.body, *(value.encode() for _, value in rendered.headers))}"'


def is_known(request: OcciRequest, tag: str) -> bool:
    """Return whether the client of a GET has this rendering already: 304 is enough."""
    return request.header("if-none-match") is not None and _matches(request, "if-none-match", tag)


def is_conditional(request: OcciRequest) -> bool:
    """Return whether a request sets conditions."""
    return any(name in _CONDITIONS for name, _ in request.headers)


def check_conditions(request: OcciRequest, state: str | None) -> None:
    """Check what a request that changes an entity says of the entity's state; None: there is no entity.

    Raises:
        OcciError: 412.
    """
    wanted = request.header("if-match")
    if wanted is not None and (state is None or not _matches(request, "if-match", f'"{state}-"')):
        raise OcciError(412, "If-Match: it is not as it was then (any more); read it again, then change it")
    if (
        state is not None
        and request.header("if-none-match") is not None
        and _matches(request, "if-none-match", f'"{state}-"')
    ):
        raise OcciError(412, "If-None-Match: it is there as it was then; nothing was changed")


def refuse_conditions(request: OcciRequest) -> None:
    """Refuse conditions on what has no tag, a collection for instance, but for ``If-Match: *``.

    Raises:
        OcciError: 412.
    """
    for name in _CONDITIONS:
        value = request.header(name)
        if value is not None and (name, value.strip()) != ("if-match", "*"):
            raise OcciError(412, f"{name.title()}: only an entity has a tag; send the request to the entity's own path")


def _matches(request: OcciRequest, name: str, tag: str) -> bool:
    """Return whether a header names a tag, or its first part when the tag has no second."""
    state = tag[1:].partition("-")[0]
    for value in (value for known, value in request.headers if known == name):
        if value.strip() == "*":
            return True
        for given in _TAG.findall(value):
            if f'"{given}"' == tag or (tag.endswith('-"') and given.partition("-")[0] == state):
                return True
    return False


def _digest(*parts: bytes) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part)
        digest.update(b"\0")
    return digest.hexdigest()
