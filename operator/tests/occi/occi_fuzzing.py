# SPDX-License-Identifier: Apache-2.0
"""A fuzzer of all parsers of OCCI requests.

``make fuzz-occi`` changes inputs of the corpus at random, and keeps inputs that reach new code (pairs of consecutive
lines). It stops at the first input that violates an invariant: a parser raises nothing but refusals with status 4xx and
a reason of one line, and an accepted entity is read again as it was rendered. ``corpus/`` contains the smallest set of
inputs that reaches all code found so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from occi_objects import (
    BEAM,
    INTERFACE,
    MINE,
    MODEL,
    SMALL,
    SOLVE,
    START,
    STOP,
    draft_of,
    make_amqplink,
    make_compute,
)

import simyard.occi
from simyard.occi.errors import MAX_MESSAGE_CHARACTERS, OcciError
from simyard.occi.filters import make_filter, matches, select
from simyard.occi.model import LINK, Entity, Link, Model, Resource
from simyard.occi.negotiation import Rendering, choose_rendering, read_content_type
from simyard.occi.pages import read_page
from simyard.occi.parsing import parse
from simyard.occi.rendering import render_entity, render_model
from simyard.occi.validation import (
    Checked,
    check_association,
    check_creation,
    check_definitions,
    check_invocation,
    check_removals,
    check_update,
    find_action,
)
from simyard_dev.fuzzing import Fuzzer

CORPUS = Path(__file__).parent / "corpus"
SOURCE = str(Path(simyard.occi.__file__).parent)
FULL = (Rendering.TEXT_PLAIN, Rendering.TEXT_OCCI, Rendering.JSON)
ENTITIES = (
    make_compute(mixins=(BEAM.id, SMALL.id, MINE.id), actions=(START, STOP), links=(make_amqplink(),)),
    make_amqplink(mixins=(INTERFACE.id,), actions=(SOLVE.id,)),
)


class BrokenPromiseError(AssertionError):
    """The violation of an invariant by an input."""


def exercise(data: bytes) -> None:
    """Read an input in the format that its first byte selects, and run all checks on the result."""
    choice, body = data[0] % 5 if data else 0, data[1:]
    if choice == 4:
        text = body.decode("latin-1")
        for read in (choose_rendering, read_content_type, lambda value: read_page({"page": value, "number": value})):
            refused_or(read, text)
        return
    rendering = tuple(Rendering)[choice]
    draft = refused_or(parse, rendering, list(_headers(body)), body, MODEL)
    if draft is None:
        return
    for one in draft.each:
        checked = refused_or(check_creation, one, MODEL)
        if checked is not None:
            _check_round_trip(checked)
    for entity in ENTITIES:
        for put in (False, True):
            refused_or(check_update, draft, entity, MODEL, put)
        refused_or(check_invocation, draft, "solve", entity, MODEL)
        refused_or(find_action, draft.action.rpartition("#")[2], ENTITIES, MODEL)
        for mixin in filter(None, map(MODEL.find_mixin, draft.mixins)):
            refused_or(check_association, mixin, entity, MODEL)
        wanted = refused_or(make_filter, draft, MODEL)
        if wanted is not None:
            matches(entity, wanted)
    refused_or(select, MODEL.ordered, draft)
    refused_or(check_removals, draft, MODEL)
    defined = refused_or(check_definitions, draft, MODEL)
    if defined is not None:
        _check_definitions(defined)


def refused_or(call: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a call, or None if it refuses with an OcciError."""
    try:
        return call(*arguments)
    except OcciError as error:
        if not 400 <= error.status < 500 or not error.message or "\n" in error.message:
            raise BrokenPromiseError(f"{error.status} {error.message!r}") from error
        if len(error.message) > MAX_MESSAGE_CHARACTERS or not error.message.isprintable():
            raise BrokenPromiseError(repr(error.message)) from error
        return None


def _headers(body: bytes) -> Iterable[tuple[str, str]]:
    for line in body.decode("utf-8", "surrogateescape").split("\n"):
        name, _, value = line.partition(":")
        yield name, value.strip()


def _check_round_trip(checked: Checked) -> None:
    entity = _entity_of(checked, "/compute/new")
    for rendering in FULL:
        rendered = render_entity(entity, rendering, "https://h", MODEL)
        read = parse(rendering, rendered.headers, rendered.body, MODEL)
        if replace(read, definitions=()) != draft_of(entity, rendering):
            raise BrokenPromiseError(f"{rendering}: {rendered} is read as {read}")


def _entity_of(checked: Checked, path: str) -> Entity:
    mixins = tuple(mixin.id for mixin in checked.mixins)
    known: dict[str, Any] = {"kind": checked.kind.id, "id": checked.id or "x", "path": path, "mixins": mixins}
    known |= {"attributes": checked.attributes, "title": checked.title}
    if LINK in MODEL.list_lineage(checked.kind.id):
        source = checked.source or "/compute/new"
        return Link(**known, source=source, target=checked.target, target_kind=checked.target_kind)
    links = [_entity_of(link, f"/link/{place}") for place, link in enumerate(checked.links)]
    of_links = tuple(link for link in links if isinstance(link, Link))
    return Resource(**known, links=of_links, actions=(START,), summary=checked.summary)


def _check_definitions(defined: tuple[Any, ...]) -> None:
    """Check that definitions are accepted again after they were rendered and read."""
    model = Model((*MODEL.ordered, *defined))
    for rendering in FULL:
        rendered = render_model(defined, rendering, model)
        read = parse(rendering, rendered.headers, rendered.body, model)
        if [category.id for category in read.definitions] != [category.id for category in defined]:
            raise BrokenPromiseError(f"{rendering}: {rendered} is read as {read}")
        if rendering is Rendering.JSON:
            check_definitions(read, model)
        check_removals(read, model)


WORDS = [
    *(word.encode() for category in MODEL.ordered for word in (category.scheme, category.term, category.id)),
    *(spec.name.encode() for category in (*MODEL.ordered,) for spec in category.attributes),
    *b"Category: |Link: |X-OCCI-Attribute: |X-OCCI-Location: |X_OCCI_ATTRIBUTE: ".split(b"|"),
    *b'; scheme="|; class="kind"|; class=mixin|; class="action"|; title="|; rel="|; location="/|"'.split(b"|"),
    *b'; attributes="|; actions="|; self="/|; category="|{immutable}|{required}|{immutable required}'.split(b"|"),
    *b'{"kind":|{"resources":[|"links":[|"mixins":[|"actions":[|{"action":|"attributes":{|"source":{'.split(b"|"),
    *b'"target":{"location":"/|"type":"number"|"Default":|"Required":true|"term":"|"scheme":"|null|true'.split(b"|"),
    *b"occi.core.id|occi.core.source|occi.core.target|urn:uuid:|?action=|text/plain|;q=0.5|*/*|charset=".split(b"|"),
    *(b"\n", b"\r\n", b",", b";", b'"', b"\\", b'\\"', b"\\u000a", b"\\ud83d\\ude00", b"\xff", b"\x00", b"\xc3\xa9"),
    *(b"9223372036854775808", b"-1", b"1.5", b"1e400", b"0", b"=", b"<", b">", b"[", b"]", b"{", b"}", b" "),
]
FUZZER = Fuzzer(exercise, CORPUS, SOURCE, WORDS, seeds=[bytes([choice]) for choice in range(5)])

if __name__ == "__main__":
    FUZZER.run_command(__doc__)
