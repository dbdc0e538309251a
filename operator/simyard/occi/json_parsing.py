# SPDX-License-Identifier: Apache-2.0
"""Parses application/occi+json: the flat form of OCCI 1.2 (GFD.226), and the older nested form."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import orjson

from simyard.occi import grammar
from simyard.occi.errors import OcciError, quote_input
from simyard.occi.json_definitions import read_definition
from simyard.occi.model import (
    CORE_ATTRIBUTES,
    ENDS,
    ID,
    SOURCE,
    SOURCE_KIND,
    SUMMARY,
    TARGET,
    TARGET_KIND,
    TITLE,
    Category,
    Draft,
    DraftLink,
    Json,
    Model,
    Value,
    ValueType,
)
from simyard.occi.text_parsing import MAX_CATEGORIES, group_ids
from simyard.occi.values import MAX_DEPTH, check_bounds, coerce

_DOCUMENT = frozenset({"resources", "links", "kinds", "mixins", "actions"})
_ENTITY = frozenset(
    {
        *("kind", "id", "mixins", "attributes", "actions", "links", "title", "summary", "location"),
        *("source", "target", "rel", "action"),
    }
)


def read_json(body: bytes, model: Model) -> Draft:
    """Return the draft of a JSON document; an empty document is an empty draft.

    Raises:
        OcciError: 400 or 413, with the problem and its place.
    """
    if not body.strip():
        return Draft()
    try:
        document: Json = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise OcciError(400, f"the body is not JSON: {error}") from None
    _refuse_repeated(body)
    if isinstance(document, list):
        return Draft(locations=tuple(_uri(item, f"[{place}]") for place, item in enumerate(document)))
    if not isinstance(document, dict):
        raise OcciError(400, "the body is neither a JSON object nor an array of locations")
    if _is_collection(document):
        return _collection(document, model)
    return _entity(document, "", model)


def _refuse_repeated(body: bytes) -> None:
    """Raise an error if an object has a name twice: some parsers use the first member, others the last (RFC 8259, 4).

    Raises:
        OcciError: 400, an object has a name twice.
    """

    def once(pairs: list[tuple[str, object]]) -> None:
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise OcciError(400, f"the body has {quote_input(name)} twice in one object")
            seen.add(name)

    try:
        json.loads(body, object_pairs_hook=once)
    except RecursionError:
        raise OcciError(400, f"the body is nested deeper than {MAX_DEPTH} levels") from None


def _is_collection(document: dict[str, Json]) -> bool:
    if document.keys() & {"resources", "kinds"}:
        return True
    if document.keys() & {"kind", "action", "id", "attributes", "source", "target", "title", "summary"}:
        return False
    return any(isinstance(item, dict) for name in ("links", "mixins", "actions") for item in _list(document, name, ""))


def _collection(document: dict[str, Json], model: Model) -> Draft:
    _refuse_unknown(document, _DOCUMENT, "")
    members = tuple(
        _entity(_object(item, f"{name}[{place}]"), f"{name}[{place}].", model)
        for name in ("resources", "links")
        for place, item in enumerate(_list(document, name, ""))
    )
    definitions: list[Category] = []
    mixins: list[str] = []
    invoked: list[dict[str, Json]] = []
    for name in ("kinds", "mixins", "actions"):
        for place, item in enumerate(_list(document, name, "")):
            if len(definitions) + len(mixins) == MAX_CATEGORIES:
                raise OcciError(413, f"{name}[{place}]: more than {MAX_CATEGORIES} categories")
            where = f"{name}[{place}]"
            if isinstance(item, str) and name == "mixins":
                mixins.append(_uri(item, where))
            elif name == "actions" and isinstance(item, dict) and "action" in item:
                invoked.append(item)
            else:
                definitions.append(read_definition(_object(item, where), name, where))
    if invoked:
        if len(invoked) > 1 or members or definitions:
            raise OcciError(400, "actions: invoke exactly one action, in a document without any other member")
        return _entity(invoked[0], "actions[0].", model)
    kinds, defined, actions = group_ids(definitions)
    draft = Draft(
        kind=kinds[0] if len(kinds) == 1 else "",
        mixins=tuple(dict.fromkeys((*mixins, *defined))),
        action=actions[0] if len(actions) == 1 else "",
        definitions=tuple(definitions),
        members=members,
        attributes=_invocation_values(document, definitions, model) if len(actions) == 1 and not members else {},
    )
    if len(members) == 1 and not definitions and not mixins:
        return members[0]
    return draft


def _invocation_values(document: dict[str, Json], definitions: list[Category], model: Model) -> Mapping[str, Value]:
    """Return the parameters in the older form of an invocation: one action whose attributes are values."""
    if any(category.attributes for category in definitions):
        return {}
    (item, *_) = _list(document, "actions", "")
    attributes = item.get("attributes") if isinstance(item, dict) else None
    return dict(_flat(attributes, "actions[0].attributes", model))


def _entity(data: dict[str, Json], prefix: str, model: Model) -> Draft:
    _refuse_unknown(data, _ENTITY, prefix)
    kind = _category_id(data.get("kind"), f"{prefix}kind")
    mixins = _ids(data, "mixins", prefix)
    action = _category_id(data.get("action"), f"{prefix}action")
    actions = tuple(
        _category_id(item, f"{prefix}actions[{place}]")
        for place, item in enumerate(_list(data, "actions", prefix))
        if isinstance(item, str) or (isinstance(item, dict) and "term" in item)
    )
    location = data.get("location")
    return Draft(
        kind=kind,
        mixins=mixins,
        attributes=_attributes(data, prefix, model, (*mixins, kind, action)),
        links=tuple(
            _link(item, f"{prefix}links[{place}]", model) for place, item in enumerate(_list(data, "links", prefix))
        ),
        action=action,
        actions=actions,
        locations=() if location is None else (_uri(location, f"{prefix}location"),),
    )


def _link(item: Json, where: str, model: Model) -> DraftLink:
    if isinstance(item, str):
        return DraftLink(path=_uri(item, where))
    data = _object(item, where)
    prefix = f"{where}."
    _refuse_unknown(data, _ENTITY, prefix)
    kind = _category_id(data.get("kind"), f"{prefix}kind")
    mixins = _ids(data, "mixins", prefix)
    attributes = _attributes(data, prefix, model, (*mixins, kind))
    target, target_kind = attributes.get(TARGET, ""), attributes.get(TARGET_KIND, "")
    location = data.get("location")
    return DraftLink(
        target=str(target),
        target_kind=tuple(str(target_kind).split()),
        path="" if location is None else _uri(location, f"{prefix}location"),
        kind=kind,
        mixins=mixins,
        attributes={name: value for name, value in attributes.items() if name not in ENDS},
    )


def _attributes(data: dict[str, Json], prefix: str, model: Model, category_ids: tuple[str, ...]) -> Mapping[str, Value]:
    specs = model.collect_specs(category_ids)
    found: dict[str, Value] = {}

    def put(name: str, value: Value, where: str) -> None:
        if not grammar.ATTRIBUTE_NAME.fullmatch(name):
            raise OcciError(400, f"{where}: {quote_input(name)} is no name of an attribute")
        if name in CORE_ATTRIBUTES:
            value = _string(coerce(value, ValueType.STRING), f"{where}: {name}")
        elif name in specs:
            value = coerce(value, specs[name].type)
        if found.setdefault(name, value) != value:
            raise OcciError(400, f"{where}: the attribute {name} is given twice")

    for name, field in ((ID, "id"), (TITLE, "title"), (SUMMARY, "summary"), (TARGET_KIND, "rel")):
        if data.get(field) is not None:
            put(name, _string(data[field], prefix + field), prefix + field)
    for name, kind_name, field in ((SOURCE, SOURCE_KIND, "source"), (TARGET, TARGET_KIND, "target")):
        end = data.get(field)
        if isinstance(end, dict):
            _refuse_unknown(end, frozenset({"location", "kind"}), f"{prefix}{field}.")
            kind = _category_id(end.get("kind"), f"{prefix}{field}.kind")
            if kind:
                put(kind_name, kind, f"{prefix}{field}.kind")
            end = end.get("location")
        if end is not None:
            put(name, _uri(end, f"{prefix}{field}.location"), f"{prefix}{field}")
    for name, value in _flat(data.get("attributes"), f"{prefix}attributes", model):
        put(name, value, f"{prefix}attributes")
    return found


def _flat(attributes: Json, where: str, model: Model) -> Iterator[tuple[str, Value]]:
    """Yield names and values of attributes in the flat or the older nested form.

    An object is the nested form, unless the model has an attribute of this name whose value is an object.
    """
    if attributes is None:
        return
    waiting: list[tuple[str, Json, int]] = [("", _object(attributes, where), 0)]
    while waiting:
        name, value, depth = waiting.pop()
        if isinstance(value, dict) and (not name or name not in model.object_attributes):
            if depth > MAX_DEPTH:
                raise OcciError(400, f"{where}: is nested deeper than {MAX_DEPTH} levels")
            if name and not value:
                yield name, {}
            prefix = f"{name}." if name else ""
            if len(prefix) > 255:
                raise OcciError(400, f"{where}: {quote_input(name)} is too long for the name of an attribute")
            waiting.extend((prefix + key, item, depth + 1) for key, item in reversed(value.items()))
            continue
        if value is None:
            raise OcciError(400, f"{where}: {quote_input(name)} is null; leave out what has no value")
        check_bounds(value, f"{where}: {quote_input(name)}")
        yield name, value


def _ids(data: dict[str, Json], name: str, prefix: str) -> tuple[str, ...]:
    items = _list(data, name, prefix)
    if len(items) > MAX_CATEGORIES:
        raise OcciError(413, f"{prefix}{name}: more than {MAX_CATEGORIES} categories")
    found = (_category_id(item, f"{prefix}{name}[{place}]") for place, item in enumerate(items))
    return tuple(dict.fromkeys(found))


def _category_id(item: Json, where: str) -> str:
    """Return the id in a string, or in an object with scheme and term (the older form); "" if there is no id."""
    if item is None:
        return ""
    if isinstance(item, dict):
        return _uri(_string(item.get("scheme"), f"{where}.scheme") + _string(item.get("term"), f"{where}.term"), where)
    return _uri(item, where)


def _uri(item: Json, where: str) -> str:
    return grammar.check_uri(_string(item, where), where)


def _string(item: Json, where: str) -> str:
    if not isinstance(item, str):
        raise OcciError(400, f"{where}: must be a string")
    return item


def _object(item: Json, where: str) -> dict[str, Json]:
    if not isinstance(item, dict):
        raise OcciError(400, f"{where}: must be an object")
    return item


def _list(data: dict[str, Json], name: str, prefix: str) -> list[Json]:
    items = data.get(name)
    if items is None:
        return []
    if not isinstance(items, list):
        raise OcciError(400, f"{prefix}{name}: must be an array")
    return items


def _refuse_unknown(data: dict[str, Json], known: frozenset[str], prefix: str) -> None:
    for name in data:
        if name not in known:
            members = ", ".join(sorted(known))
            raise OcciError(400, f"{prefix or 'the body: '}{quote_input(name)} is unknown; known are {members}")
