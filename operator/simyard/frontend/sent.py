"""What a request says beside its path: in the body or in headers, and in the query. Pure.

Nothing that a client says is passed over: a deletion that overlooks one line deletes everything else as well. So OCCI
headers count whatever the Content-Type says, and what stands in two places, or means nothing here, is refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from simyard.frontend.exchange import OcciRequest
from simyard.occi.errors import OcciError, shown
from simyard.occi.model import ID, Draft, Model
from simyard.occi.negotiation import Rendering, content_type
from simyard.occi.parsing import parse

_FIELDS = frozenset({"category", "link", "x-occi-attribute", "x-occi-location", "x_occi_attribute", "x_occi_location"})
_NOTHING = Draft()


def draft_of(request: OcciRequest, model: Model) -> Draft:
    """Return what the body or the OCCI headers say; an empty draft if neither says anything.

    Raises:
        OcciError: 400 or 413, it cannot be read; 400, there are both.
    """
    has_fields = any(name in _FIELDS for name, _ in request.headers)
    if not request.body:
        return parse(Rendering.TEXT_OCCI, request.headers, b"", model) if has_fields else _NOTHING
    rendering = content_type(request.header("content-type"))
    if rendering is Rendering.TEXT_OCCI:
        if not has_fields:
            raise OcciError(400, "Content-Type: text/occi is read from headers; for a body, send text/plain")
    elif has_fields:
        raise OcciError(400, "OCCI headers and a body: which of them counts is not clear; send one of them")
    return parse(rendering, request.headers, request.body, model)


def refuse_query(request: OcciRequest, known: frozenset[str] = frozenset()) -> None:
    """Refuse a query that says more than a request can honour.

    Raises:
        OcciError: 400.
    """
    for name in request.query:
        if name not in known:
            what = f"a {request.method} of {shown(request.path)}"
            raise OcciError(400, f"?{shown(name)} means nothing for {what}; leave it out; nothing was done")


def names_of(draft: Draft, model: Model) -> tuple[str, ...] | None:
    """Return the locations of the entities that a request names, as sent; None if it names none.

    Entities are named by X-OCCI-Location, a text/uri-list, an array of URIs, or as the members of a collection in JSON.

    Raises:
        OcciError: 400, one of several members has neither a location nor a kind and an id.
    """
    if draft.locations:
        return draft.locations
    return tuple(_names(draft.members, model)) if draft.members else None


def member_names(draft: Draft, model: Model) -> tuple[str, ...]:
    """Return the locations of the entities that a request names for a mixin, where a single entity is named as well.

    Raises:
        OcciError: 400, the request says something, but not which entities.
    """
    return () if draft == _NOTHING else names_of(draft, model) or tuple(_names((draft,), model))


def refuse_unselective(draft: Draft) -> None:
    """Refuse what a filter of members cannot honour.

    Raises:
        OcciError: 400.
    """
    is_filtered_by_action = any(category.id == draft.action for category in draft.definitions)
    if draft.links or draft.actions or (draft.action and not is_filtered_by_action):
        raise OcciError(
            400,
            "links and actions do not say which entities are meant: send their X-OCCI-Location, or a Category and"
            " X-OCCI-Attribute as a filter; nothing was done",
        )


def _names(members: Iterable[Draft], model: Model) -> Iterable[str]:
    for member in members:
        kind, name = model.kind(member.kind), member.attributes.get(ID)
        if member.locations:
            yield from member.locations
        elif kind is not None and kind.location and isinstance(name, str):
            yield kind.location + name.removeprefix("urn:uuid:")
        else:
            raise OcciError(400, "which entities are meant is not said: send X-OCCI-Location, one per entity")
