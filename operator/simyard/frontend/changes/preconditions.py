# SPDX-License-Identifier: Apache-2.0
"""Computes entity tags, and checks the conditions of requests on them (RFC 9110, 8.8.3 and 13). Pure.

A tag has two parts, ``"STATE-RENDERING"``. ``If-None-Match`` of a GET compares both. ``If-Match`` compares only the
first part, a digest of everything that clients can change. A service changes its own attributes at any moment; if
``If-Match`` compared them too, a client could seldom change a title. Both parts are digests of the shown content, so
every frontend computes the same tag, and every change of a rendering changes the tag.

An entity may change between the check of a condition and the write. The check (:func:`make_check`) therefore runs
before each attempt to write, and the write contains the resource version of the checked object.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Set

from simyard.frontend.backend import Backend, Precondition
from simyard.frontend.exchange import OcciRequest
from simyard.occi.errors import OcciError
from simyard.occi.model import Entity, Model, Resource
from simyard.occi.rendering import Rendered
from simyard.occi.values import encode_json

_TAG = re.compile(r'([^\s,"]*+)"([!#-~]*)"')
_STRONG = frozenset({""})
_WEAK_OR_STRONG = frozenset({"", "W/"})
_CONDITIONS = frozenset({"if-match", "if-none-match"})


def compute_state_digest(entity: Entity, model: Model) -> str:
    """Return the first part of an entity's tag."""
    specs = model.collect_specs((*entity.mixins, entity.kind))
    changeable = {name: value for name, value in entity.attributes.items() if name not in specs or specs[name].mutable}
    own = [entity.title, *((entity.summary,) if isinstance(entity, Resource) else (entity.source, entity.target))]
    links = [(link.path, link.target, link.mixins) for link in entity.links] if isinstance(entity, Resource) else []
    return _digest(encode_json([entity.kind, entity.id, entity.mixins, own, changeable, links]))


def build_tag(rendered: Rendered, state: str = "") -> str:
    """Return the tag of a rendering, with quotes; ``state`` is the state digest of the entity in the rendering."""
    return f'"{state}-{_digest(rendered.body, *(value.encode() for _, value in rendered.headers))}"'


def is_known(request: OcciRequest, tag: str) -> bool:
    """Return true if ``If-None-Match`` of a GET has this tag, so that the response is 304."""
    return request.get_header("if-none-match") is not None and _matches(request, "if-none-match", tag, _WEAK_OR_STRONG)


def make_check(request: OcciRequest, backend: Backend, path: str) -> Precondition | None:
    """Return a function that checks the conditions of a request on the entity at a path; None without conditions."""
    if not any(name in _CONDITIONS for name, _ in request.headers):
        return None

    def check() -> None:
        now = backend.get_entity(path)
        check_conditions(request, None if now is None else compute_state_digest(now, backend.get_model()))

    return check


def check_conditions(request: OcciRequest, state: str | None) -> None:
    """Check the conditions of a request against the state of its entity; ``state`` is None if there is no entity.

    ``If-Match`` compares strongly: a weak tag never matches (RFC 9110, 13.1.1). ``If-None-Match`` compares weakly.

    Raises:
        OcciError: 412.
    """
    wanted = request.get_header("if-match")
    if wanted is not None and (state is None or not _matches(request, "if-match", f'"{state}-"', _STRONG)):
        raise OcciError(412, "If-Match: the entity has changed or is gone; read it again, then change it")
    if (
        state is not None
        and request.get_header("if-none-match") is not None
        and _matches(request, "if-none-match", f'"{state}-"', _WEAK_OR_STRONG)
    ):
        raise OcciError(412, "If-None-Match: the entity still has this tag; nothing was changed")


def refuse_conditions(request: OcciRequest) -> None:
    """Refuse conditions on a target without a tag, such as a collection, except ``If-Match: *``.

    Raises:
        OcciError: 412.
    """
    for name in _CONDITIONS:
        value = request.get_header(name)
        if value is not None and (name, value.strip()) != ("if-match", "*"):
            raise OcciError(412, f"{name.title()}: only an entity has a tag; send the request to the entity's own path")


def _matches(request: OcciRequest, name: str, tag: str, prefixes: Set[str]) -> bool:
    """Return true if a header contains the tag, or only its first part, after one of the prefixes."""
    state = tag[1:].partition("-")[0]
    for value in (value for known, value in request.headers if known == name):
        if value.strip() == "*":
            return True
        for prefix, given in _TAG.findall(value):
            if prefix not in prefixes:
                continue
            if f'"{given}"' == tag or (tag.endswith('-"') and given.partition("-")[0] == state):
                return True
    return False


def _digest(*parts: bytes) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part)
        digest.update(b"\0")
    return digest.hexdigest()
