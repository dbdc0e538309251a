"""Inputs that nobody would write, for everything that reads what a client sends.

``make fuzz-occi`` changes inputs of the corpus at random, keeps those that reach new code (pairs of lines that follow
each other), and stops at the first that breaks a promise: only refusals of 4xx with a reason of one line, and what may
be created is read as it was rendered. The corpus is kept in ``corpus/`` as the smallest set that still reaches all.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import FrameType
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
from simyard.occi.errors import MOST_MESSAGE_CHARACTERS, OcciError
from simyard.occi.filters import filter_of, matches, select
from simyard.occi.model import LINK, Entity, Link, Model, Resource
from simyard.occi.negotiation import Rendering, choose, content_type
from simyard.occi.pages import page
from simyard.occi.parsing import parse
from simyard.occi.rendering import render_entity, render_model
from simyard.occi.validation import (
    Checked,
    action_of_term,
    check_association,
    check_creation,
    check_definitions,
    check_invocation,
    check_removals,
    check_update,
)

CORPUS = Path(__file__).parent / "corpus"
SOURCE = str(Path(simyard.occi.__file__).parent)
MOST_BYTES = 600
FULL = (Rendering.TEXT_PLAIN, Rendering.TEXT_OCCI, Rendering.JSON)
ENTITIES = (
    make_compute(mixins=(BEAM.id, SMALL.id, MINE.id), actions=(START, STOP), links=(make_amqplink(),)),
    make_amqplink(mixins=(INTERFACE.id,), actions=(SOLVE.id,)),
)


class BrokenPromiseError(AssertionError):
    """A promise that an input broke."""


def exercise(data: bytes) -> None:
    """Read an input (its first byte says as what), and check all that may be asked of what was read."""
    choice, body = data[0] % 5 if data else 0, data[1:]
    if choice == 4:
        text = body.decode("latin-1")
        for read in (choose, content_type, lambda value: page({"page": value, "number": value})):
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
        refused_or(action_of_term, draft.action.rpartition("#")[2], ENTITIES, MODEL)
        for mixin in filter(None, map(MODEL.mixin, draft.mixins)):
            refused_or(check_association, mixin, entity, MODEL)
        wanted = refused_or(filter_of, draft, MODEL)
        if wanted is not None:
            matches(entity, wanted)
    refused_or(select, MODEL.ordered, draft)
    refused_or(check_removals, draft, MODEL)
    defined = refused_or(check_definitions, draft, MODEL)
    if defined is not None:
        _check_definitions(defined)


def refused_or(call: Callable[..., Any], *arguments: Any) -> Any:
    """What a call gives, or None if it refuses as it should."""
    try:
        return call(*arguments)
    except OcciError as error:
        if not 400 <= error.status < 500 or not error.message or "\n" in error.message:
            raise BrokenPromiseError(f"{error.status} {error.message!r}") from error
        if len(error.message) > MOST_MESSAGE_CHARACTERS or not error.message.isprintable():
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
    if LINK in MODEL.lineage(checked.kind.id):
        source = checked.source or "/compute/new"
        return Link(**known, source=source, target=checked.target, target_kind=checked.target_kind)
    links = [_entity_of(link, f"/link/{place}") for place, link in enumerate(checked.links)]
    of_links = tuple(link for link in links if isinstance(link, Link))
    return Resource(**known, links=of_links, actions=(START,), summary=checked.summary)


def _check_definitions(defined: tuple[Any, ...]) -> None:
    """What was defined is rendered, read and accepted again."""
    model = Model((*MODEL.ordered, *defined))
    for rendering in FULL:
        rendered = render_model(defined, rendering, model)
        read = parse(rendering, rendered.headers, rendered.body, model)
        if [category.id for category in read.definitions] != [category.id for category in defined]:
            raise BrokenPromiseError(f"{rendering}: {rendered} is read as {read}")
        if rendering is Rendering.JSON:
            check_definitions(read, model)
        check_removals(read, model)


# What an input reaches, and how inputs are changed.

Arc = tuple[str, int, int]


def reach(data: bytes) -> set[Arc]:
    """Exercise an input; the pairs of lines of ours that were run one after the other."""
    arcs: set[Arc] = set()
    before = 0

    def local(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal before
        if event == "line":
            arcs.add((frame.f_code.co_filename, before, frame.f_lineno))
            before = frame.f_lineno
        return local

    def calls(frame: FrameType, _event: str, _argument: object) -> Any:
        return local if frame.f_code.co_filename.startswith(SOURCE) else None

    sys.settrace(calls)
    try:
        exercise(data)
    finally:
        sys.settrace(None)
    return arcs


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


def changed(data: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """The input with some changes."""
    found = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 3, 5, 8))):
        at = chance.randrange(len(found) + 1)
        end = min(len(found), at + chance.choice((1, 1, 2, 4, 16, 64)))
        match chance.randrange(7):
            case 0:
                found[at:end] = b""
            case 1 if at < len(found):
                found[at] ^= 1 << chance.randrange(8)
            case 2:
                found[at:at] = found[at:end]
            case 3:
                other = chance.choice(others)
                start = chance.randrange(len(other) + 1)
                found[at:end] = other[start : start + chance.choice((4, 16, 64, 256))]
            case 4 if at < len(found):
                found[at] = chance.randrange(256)
            case _:
                found[at:end] = chance.choice(WORDS)
    return bytes(found[:MOST_BYTES])


def smallest(inputs: dict[bytes, set[Arc]]) -> list[bytes]:
    """Few inputs that reach all that these reach, shorter ones first."""
    kept: list[bytes] = []
    reached: set[Arc] = set()
    for data in sorted(inputs, key=lambda one: (-len(inputs[one] - reached) // 20, len(one))):
        if not inputs[data] <= reached:
            kept.append(data)
            reached |= inputs[data]
    return kept


def corpus() -> list[bytes]:
    """The kept inputs."""
    return [path.read_bytes() for path in sorted(CORPUS.iterdir())]


def fuzz(seconds: float, seed: int) -> tuple[int, int, int]:
    """Change inputs for so long: how many were tried, how many are kept, how many pairs of lines they reach."""
    chance = random.Random(seed)
    inputs = {data: reach(data) for data in corpus() or [bytes([n]) for n in range(5)]}
    reached = set().union(*inputs.values())
    tried, end = 0, time.monotonic() + seconds
    everything = list(inputs)
    while time.monotonic() < end:
        data = changed(chance.choice(everything), everything, chance)
        tried += 1
        try:
            arcs = reach(data)
        except BaseException:
            print(f"broken by {data!r}", file=sys.stderr)
            raise
        if not arcs <= reached:
            reached |= arcs
            inputs[data] = arcs
            everything.append(data)
    kept = smallest(inputs)
    names = {hashlib.sha256(data).hexdigest()[:16]: data for data in kept}
    for path in CORPUS.iterdir():
        if path.name not in names:
            path.unlink()
    for name, data in names.items():
        (CORPUS / name).write_bytes(data)
    return tried, len(kept), len(reached)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=600)
    options.add_argument("--seed", type=int, default=time.time_ns())
    chosen = options.parse_args()
    tried, kept, reached = fuzz(chosen.seconds, chosen.seed)
    print(f"{tried} inputs tried (seed {chosen.seed}), {kept} kept, {reached} pairs of lines reached")
