# SPDX-License-Identifier: Apache-2.0
"""Reads the content of a request: the body or the OCCI headers, and the query. Pure.

The frontend ignores no part of a request: a deletion that ignored a line of its filter would delete too many entities.
It therefore reads OCCI headers whatever the Content-Type is, and refuses a part that occurs twice or has no meaning.
"""

from __future__ import annotations

from collections.abc import Iterable

from simyard.frontend.exchange import OcciRequest
from simyard.occi.errors import OcciError, quote_input
from simyard.occi.model import ID, Draft, Model
from simyard.occi.negotiation import Rendering, read_content_type
from simyard.occi.parsing import parse

_FIELDS = frozenset({"category", "link", "x-occi-attribute", "x-occi-location", "x_occi_attribute", "x_occi_location"})
_NOTHING = Draft()


def read_draft(request: OcciRequest, model: Model) -> Draft:
    """Return the content of the body or of the OCCI headers; an empty draft if the request has neither.

    Raises:
        OcciError: 400 or 413, the content cannot be read; 400, the request has both.
    """
    has_fields = any(name in _FIELDS for name, _ in request.headers)
    if not request.body:
        return parse(Rendering.TEXT_OCCI, request.headers, b"", model) if has_fields else _NOTHING
    rendering = read_content_type(request.get_header("content-type"))
    if rendering is Rendering.TEXT_OCCI:
        if not has_fields:
            raise OcciError(400, "Content-Type: text/occi is read from headers; for a body, send text/plain")
    elif has_fields:
        raise OcciError(400, "the request has OCCI headers and a body; send only one of them")
    return parse(rendering, request.headers, request.body, model)


def refuse_query(request: OcciRequest, known: frozenset[str] = frozenset()) -> None:
    """Raise an error if the query has a field that is not in ``known``.

    Raises:
        OcciError: 400.
    """
    for name in request.query:
        if name not in known:
            what = f"a {request.method} of {quote_input(request.path)}"
            raise OcciError(400, f"?{quote_input(name)} has no meaning for {what}; nothing was done; leave it out")


def read_locations(draft: Draft, model: Model) -> tuple[str, ...] | None:
    """Return the locations of the entities in a request, as sent; None if there are none.

    A request selects entities by X-OCCI-Location, by a text/uri-list, by an array of URIs, or as members of a
    collection in JSON.

    Raises:
        OcciError: 400, one of several members has neither a location nor a kind and an id.
    """
    if draft.locations:
        return draft.locations
    return tuple(_names(draft.members, model)) if draft.members else None


def read_members(draft: Draft, model: Model) -> tuple[str, ...]:
    """Return the locations of the entities in a request for a mixin. The request can also contain a single entity.

    Raises:
        OcciError: 400, the request has content, but selects no entities.
    """
    return () if draft == _NOTHING else read_locations(draft, model) or tuple(_names((draft,), model))


def refuse_unselective(draft: Draft) -> None:
    """Raise an error if the request has content that does not select members of a collection.

    Raises:
        OcciError: 400.
    """
    is_filtered_by_action = any(category.id == draft.action for category in draft.definitions)
    if draft.links or draft.actions or (draft.action and not is_filtered_by_action):
        raise OcciError(
            400,
            "links and actions do not select entities: send their X-OCCI-Location, or a Category and"
            " X-OCCI-Attribute as a filter; nothing was done",
        )


def _names(members: Iterable[Draft], model: Model) -> Iterable[str]:
    for member in members:
        kind, name = model.find_kind(member.kind), member.attributes.get(ID)
        if member.locations:
            yield from member.locations
        elif kind is not None and kind.location and isinstance(name, str):
            yield kind.location + name.removeprefix("urn:uuid:")
        else:
            raise OcciError(400, "the request names no entities: send X-OCCI-Location, one per entity")
