# SPDX-License-Identifier: Apache-2.0
"""Parses text/plain, text/occi and text/uri-list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from simyard.occi import grammar
from simyard.occi.errors import OcciError, quote_input
from simyard.occi.grammar import Item, Lexeme
from simyard.occi.model import (
    CORE_ATTRIBUTES,
    ENDS,
    Action,
    AttributeSpec,
    Category,
    Draft,
    DraftLink,
    Kind,
    Mixin,
    Model,
    Value,
    ValueType,
)
from simyard.occi.values import coerce, parse_number

MAX_CATEGORIES = 1000

_FIELDS = {
    "category": "Category",
    "link": "Link",
    "x-occi-attribute": "X-OCCI-Attribute",
    "x-occi-location": "X-OCCI-Location",
}
_CLASSES: Mapping[str, type[Category]] = {"kind": Kind, "mixin": Mixin, "action": Action}
_LINK_PARAMETERS = frozenset({"rel", "self", "category"})

Field = tuple[str, str, str]
"""The canonical name of a field, its value, and its place for errors."""


def read_body_fields(text: str) -> Iterable[Field]:
    """Yield the fields in a text/plain body.

    Raises:
        OcciError: 400, a line has none of the four fields.
    """
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        if not line or line.isspace():
            continue
        name, colon, value = line.partition(":")
        field = _FIELDS.get(name.strip().lower().replace("_", "-"))
        if field is None or not colon:
            expected = ", ".join(_FIELDS.values())
            raise OcciError(400, f"line {number}: {quote_input(name)} is none of the fields {expected}")
        indent = " " * (len(line) - len(value))  # in place of the name, so that columns in errors are right
        yield field, indent + value.rstrip("\r"), f"line {number}, {field}"


def read_header_fields(headers: Iterable[tuple[str, str]]) -> Iterable[Field]:
    """Yield the headers that are fields of text/occi, such as ``X-OCCI-Attribute`` or ``X_OCCI_ATTRIBUTE``."""
    for name, value in headers:
        field = _FIELDS.get(name.lower().replace("_", "-"))
        if field is not None:
            yield field, value, f"header {field}"


def make_draft(fields: Iterable[Field], model: Model) -> Draft:
    """Return the draft of a text rendering.

    Raises:
        OcciError: 400 or 413, with the problem and its place.
    """
    definitions: list[Category] = []
    attributes: list[tuple[str, Lexeme, str]] = []
    links: list[Item] = []
    locations: list[str] = []
    for field, text, where in fields:
        control = grammar.CONTROL.search(text)
        if control is not None:
            raise OcciError(400, f"{where}, column {control.start() + 1}: the text has a control character")
        match field:
            case "Category":
                for item in grammar.read_category_items(text, where):
                    if len(definitions) == MAX_CATEGORIES:
                        raise OcciError(413, f"{item.where}: more than {MAX_CATEGORIES} categories")
                    definitions.append(_category(item, model))
            case "Link":
                links.extend(grammar.read_link_items(text, where))
            case "X-OCCI-Attribute":
                attributes.extend(grammar.read_attribute_items(text, where))
            case _:
                locations.extend(grammar.read_locations(text, where))
    kinds, mixins, actions = group_ids(definitions)
    kind = kinds[0] if len(kinds) == 1 else ""
    action = actions[0] if len(actions) == 1 else ""
    specs = model.collect_specs((*mixins, *kinds, *actions)) if attributes else {}
    return Draft(
        kind=kind,
        mixins=mixins,
        attributes=_attributes(attributes, specs),
        links=tuple(_link(item, model) for item in links if not _is_action(item)),
        action=action,
        actions=tuple(_action_of(item) for item in links if _is_action(item)),
        locations=tuple(locations),
        definitions=tuple(definitions),
    )


def read_uri_list(text: str) -> Draft:
    """Return the draft of a text/uri-list (RFC 2483): one URI on each line; ``#`` starts a comment.

    Raises:
        OcciError: 400, a line is no URI.
    """
    lines = ((number, line.strip()) for number, line in enumerate(text.split("\n"), start=1))
    return Draft(
        locations=tuple(
            grammar.check_uri(line, f"line {number}") for number, line in lines if line and not line.startswith("#")
        )
    )


def group_ids(definitions: Iterable[Category]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the ids of the kinds, of the mixins and of the actions, without duplicates."""
    found: dict[type[Category], dict[str, None]] = {Kind: {}, Mixin: {}, Action: {}}
    for category in definitions:
        found[type(category)][category.id] = None
    return tuple(found[Kind]), tuple(found[Mixin]), tuple(found[Action])


def _category(item: Item, model: Model) -> Category:
    parameters: dict[str, str] = {}
    for name, lexeme in item.parameters:
        if name in parameters:
            raise item.refuse(f"{quote_input(name)} is given twice")
        parameters[name] = lexeme.text
    scheme = parameters.get("scheme", "")
    if not scheme:
        raise item.refuse(f'the category {quote_input(item.head)} has no scheme; write {item.head}; scheme="..."')
    if not grammar.TERM.fullmatch(item.head) or not grammar.URI.fullmatch(scheme):
        raise item.refuse(
            f"{quote_input(scheme + item.head)} is no category: the scheme is a URI that ends in #, then a term"
        )
    known = model.find_category(scheme + item.head)
    class_name = parameters.get("class", "").lower()
    if class_name not in _CLASSES and (class_name or known is None):
        problem = f"the class {quote_input(class_name)} is unknown" if class_name else "has no class, and is unknown"
        raise item.refuse(f"{quote_input(scheme + item.head)}: {problem}; write class=kind, mixin or action")
    kind_of = _CLASSES[class_name] if class_name else type(known)
    if kind_of is Action:
        return Action(scheme, item.head, parameters.get("title", ""), _specs(parameters.get("attributes", ""), item))
    rel = _words(parameters.get("rel", ""), item)
    location = parameters.get("location", "")
    if location:
        grammar.check_uri(location, item.where)
    title, actions = parameters.get("title", ""), _words(parameters.get("actions", ""), item)
    attributes = _specs(parameters.get("attributes", ""), item)
    if kind_of is Kind:
        return Kind(scheme, item.head, title, location, " ".join(rel[:1]), attributes, actions)
    return Mixin(scheme, item.head, title, location, rel, (), attributes, actions)


def _specs(text: str, item: Item) -> tuple[AttributeSpec, ...]:
    """Return the declarations in a text such as ``a b{immutable} c{required} d{immutable required}``."""
    found: dict[str, AttributeSpec] = {}
    position, end = 0, len(text)
    while position < end:
        stop = text.find("{", position)
        names, properties, position = (
            (text[position:], "", end) if stop < 0 else (text[position:stop], *_properties(text, stop, item))
        )
        words = names.split()
        for word in words:
            if not grammar.ATTRIBUTE_NAME.fullmatch(word):
                raise item.refuse(f"{quote_input(word)} in attributes is no name")
            found[word] = AttributeSpec(word)
        if properties and words:
            flags = properties.split()
            found[words[-1]] = AttributeSpec(words[-1], mutable="immutable" not in flags, required="required" in flags)
    return tuple(found.values())


def _properties(text: str, start: int, item: Item) -> tuple[str, int]:
    stop = text.find("}", start)
    if stop < 0:
        raise item.refuse("a brace in attributes is never closed")
    return text[start + 1 : stop], stop + 1


def _words(text: str, item: Item) -> tuple[str, ...]:
    words = tuple(text.split())
    for word in words:
        grammar.check_uri(word, item.where)
    return words


def _is_action(item: Item) -> bool:
    """Return true if a Link line shows an applicable action: it has an action as target, and no category of a link."""
    return "?action=" in item.head and not any(name == "category" for name, _ in item.parameters)


def _action_of(item: Item) -> str:
    for name, lexeme in item.parameters:
        if name == "rel":
            return lexeme.text
    raise item.refuse("the link of an action has no rel")


def _link(item: Item, model: Model) -> DraftLink:
    parameters: dict[str, tuple[str, ...]] = {}
    attributes: list[tuple[str, Lexeme, str]] = []
    for name, lexeme in item.parameters:
        if name not in _LINK_PARAMETERS:
            attributes.append((name, lexeme, item.where))
        elif name in parameters:
            raise item.refuse(f"{quote_input(name)} is given twice")
        else:
            parameters[name] = _words(lexeme.text, item)
    category = parameters.get("category", ())
    mixins = tuple(dict.fromkeys(category[1:]))
    found = _attributes(attributes, model.collect_specs((*mixins, *category[:1])))
    return DraftLink(
        target=grammar.check_uri(item.head, item.where),
        target_kind=parameters.get("rel", ()),
        path=" ".join(parameters.get("self", ())),
        kind=category[0] if category else "",
        mixins=mixins,
        attributes={name: value for name, value in found.items() if name not in ENDS},
    )


def _attributes(items: Iterable[tuple[str, Lexeme, str]], specs: Mapping[str, AttributeSpec]) -> Mapping[str, Value]:
    found: dict[str, Value] = {}
    for name, lexeme, where in items:
        if not grammar.ATTRIBUTE_NAME.fullmatch(name):
            raise OcciError(400, f"{where}: {quote_input(name)} is no name of an attribute")
        value = _value(lexeme, specs.get(name), name)
        if found.setdefault(name, value) != value:
            raise OcciError(400, f"{where}: the attribute {name} is given twice")
    return found


def _value(lexeme: Lexeme, spec: AttributeSpec | None, name: str) -> Value:
    wanted = ValueType.STRING if name in CORE_ATTRIBUTES else spec.type if spec is not None else None
    if lexeme.quoted or wanted is ValueType.STRING:
        return lexeme.text if wanted is None else coerce(lexeme.text, wanted)
    if lexeme.text in ("true", "false"):
        return lexeme.text == "true"
    number = parse_number(lexeme.text)
    return lexeme.text if number is None else number
