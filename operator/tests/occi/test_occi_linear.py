# SPDX-License-Identifier: Apache-2.0
"""Parsing takes work that is linear in the length of any input.

Counted, not timed: the calls that Python makes, and the characters that patterns run over. That a pattern itself never
goes back over what it has matched is shown by its form: every repetition without a bound is possessive.
"""

from __future__ import annotations

import contextlib
import re
import re._constants as constants  # type: ignore[import-not-found]
import re._parser as patterns  # type: ignore[import-not-found]
import sys
from collections.abc import Callable, Iterator
from types import FrameType, ModuleType
from typing import Any

import pytest
from occi_objects import MODEL

from simyard.occi import definitions, grammar, json_parsing, negotiation, pages, text_parsing, validation, values
from simyard.occi.errors import OcciError
from simyard.occi.negotiation import Rendering, choose_rendering, read_content_type
from simyard.occi.parsing import parse

MODULES = (definitions, grammar, json_parsing, negotiation, pages, text_parsing, validation, values)
COMPUTE = 'Category: compute; scheme="http://schemas.ogf.org/occi/infrastructure#"; class="kind"'


def compiled_patterns() -> Iterator[tuple[str, re.Pattern[str]]]:
    for module in MODULES:
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern):
                yield f"{module.__name__}.{name}", value


def repetitions(parsed: Any) -> Iterator[tuple[Any, int]]:
    """Yield all repetitions in a parsed pattern, with their kind and upper bound."""
    for operation, argument in parsed:
        if operation in (constants.MAX_REPEAT, constants.MIN_REPEAT, constants.POSSESSIVE_REPEAT):
            yield operation, argument[1]
        for inner in argument if isinstance(argument, tuple) else (argument,):
            if isinstance(inner, patterns.SubPattern):
                yield from repetitions(inner)
            elif isinstance(inner, list):
                for branch in inner:
                    if isinstance(branch, patterns.SubPattern):
                        yield from repetitions(branch)


@pytest.mark.parametrize(("name", "pattern"), list(compiled_patterns()))
def test_no_pattern_goes_back_over_what_it_has_matched(name: str, pattern: re.Pattern[str]) -> None:
    unbounded = [kind for kind, most in repetitions(patterns.parse(pattern.pattern)) if most >= 400]
    assert all(kind is constants.POSSESSIVE_REPEAT for kind in unbounded), name


def test_the_proof_sees_what_it_looks_for() -> None:
    for dangerous in (r"a*b", r"(a+)+", r"(?:a|b*)*+", r"a*?b", r'"((?:[^"\\]|\\.)*)"'):
        found = repetitions(patterns.parse(dangerous))
        assert any(kind is not constants.POSSESSIVE_REPEAT for kind, most in found if most >= 400)


class Counting:
    """A pattern that counts the characters that its matches read."""

    def __init__(self, pattern: re.Pattern[str], work: Callable[[int], None]) -> None:
        self._pattern = pattern
        self._work = work

    def __getattr__(self, name: str) -> Any:
        called = getattr(self._pattern, name)
        if not callable(called):
            return called

        def counted(*arguments: Any) -> Any:
            found = called(*arguments)
            if name == "sub":
                self._work(len(arguments[1]))
            elif found is not None:
                self._work(found.end() - found.start() + 1)
            else:  # a failed match of a possessive pattern reads at most the rest of the text
                self._work(1 if name == "match" else len(arguments[0]))
            return found

        return counted


@contextlib.contextmanager
def counted_work(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The number of calls of Python and C functions, and of characters that patterns read, in this context."""
    work = [0]

    def add(amount: int) -> None:
        work[0] += amount

    def called(_frame: FrameType, event: str, _argument: object) -> None:
        if event in ("call", "c_call"):
            work[0] += 1

    with monkeypatch.context() as patched:
        for module in MODULES:
            patch_patterns(module, patched, add)
        sys.setprofile(called)
        try:
            yield work
        finally:
            sys.setprofile(None)


def patch_patterns(module: ModuleType, patched: pytest.MonkeyPatch, add: Callable[[int], None]) -> None:
    for name, value in list(vars(module).items()):
        if isinstance(value, re.Pattern):
            patched.setattr(module, name, Counting(value, add))


INPUTS: dict[str, Callable[[int], str]] = {
    "letters": lambda n: "a" * n,
    "quotes": lambda n: "X-OCCI-Attribute: a=" + '"' * n,
    "an open quote": lambda n: 'X-OCCI-Attribute: a="' + "x" * n,
    "escapes": lambda n: 'X-OCCI-Attribute: a="' + '\\"' * (n // 2) + '"',
    "backslashes": lambda n: 'X-OCCI-Attribute: a="' + "\\" * n,
    "unicode escapes": lambda n: 'X-OCCI-Attribute: a="' + "\\ud83d\\ude0" * (n // 11) + '"',
    "commas": lambda n: "Category: " + "," * n,
    "semicolons": lambda n: COMPUTE + ";" * n,
    "spaces": lambda n: "X-OCCI-Attribute:" + " " * n,
    "spaces and commas": lambda n: "X-OCCI-Attribute: a=1" + " ," * (n // 2),
    "attributes": lambda n: "X-OCCI-Attribute: " + ", ".join(f"a{i}=1" for i in range(n // 8)),
    "lines": lambda n: "\n".join(f"X-OCCI-Attribute: a{i}=1" for i in range(n // 24)),
    "empty lines": lambda n: "\n" * n,
    "parameters": lambda n: COMPUTE + "".join(f"; p{i}=x" for i in range(n // 8)),
    "braces": lambda n: COMPUTE + '; attributes="' + "a{immutable} " * (n // 13) + '"',
    "open braces": lambda n: COMPUTE + '; attributes="' + "a{" * (n // 2) + '"',
    "words": lambda n: COMPUTE + '; actions="' + "http://x#y " * (n // 11) + '"',
    "open links": lambda n: "Link: " + "<" * n,
    "a long target": lambda n: "Link: <" + "a" * n,
    "links": lambda n: "Link: " + ", ".join('</a>; rel="http://x#y"' for _ in range(n // 24)),
    "link attributes": lambda n: "Link: </a>" + "".join(f"; a{i}=1" for i in range(n // 7)),
    "locations": lambda n: "X-OCCI-Location: " + "/a," * (n // 3),
    "digits": lambda n: "X-OCCI-Attribute: a=" + "1" * n,
    "unknown mixins": lambda n: "\n".join(
        f'Category: t{i}; scheme="http://x#"; class=mixin' for i in range(min(n // 45, 999))
    ),
}
DOCUMENTS: dict[str, Callable[[int], str]] = {
    "deep objects": lambda n: '{"attributes":' + '{"a":' * (n // 5),
    "closed deep objects": lambda n: '{"attributes":' + '{"a":' * 900 + "1" + "}" * 901 + " " * n,
    "wide": lambda n: '{"attributes":{' + ",".join(f'"a{i}":1' for i in range(n // 9)) + "}}",
    "wide and nested": lambda n: '{"attributes":{"a":{"b":{' + ",".join(f'"c{i}":1' for i in range(n // 9)) + "}}}}",
    "long names": lambda n: '{"attributes":{"' + "a." * (n // 2) + '":{"b":1}}}',
    "members": lambda n: '{"resources":[' + ",".join('{"kind":"a#b"}' for _ in range(n // 15)) + "]}",
    "definitions": lambda n: (
        '{"mixins":[{"term":"t","scheme":"http://x#","attributes":{'
        + ",".join(f'"a{i}":{{"type":"number"}}' for i in range(n // 26))
        + "}}]}"
    ),
    "array": lambda n: '{"attributes":{"a":[' + "1," * (n // 2) + "1]}}",
    "locations": lambda n: "[" + ",".join('"/a"' for _ in range(n // 5)) + "]",
}


def work_of(monkeypatch: pytest.MonkeyPatch, rendering: Rendering, text: str) -> int:
    headers = [(name, value) for name, _, value in (line.partition(": ") for line in text.split("\n"))]
    parse(rendering, (), b"", MODEL)
    with counted_work(monkeypatch) as work, contextlib.suppress(OcciError):
        if rendering is Rendering.TEXT_OCCI:
            parse(rendering, headers, b"", MODEL)
        else:
            parse(rendering, (), text.encode(), MODEL)
    return work[0]


CASES = [
    *((Rendering.TEXT_PLAIN, name, make) for name, make in INPUTS.items()),
    *((Rendering.TEXT_OCCI, name, make) for name, make in INPUTS.items()),
    *((Rendering.JSON, name, make) for name, make in DOCUMENTS.items()),
    (Rendering.URI_LIST, "locations", lambda n: "/a\n" * (n // 3)),
]


@pytest.mark.parametrize(("rendering", "name", "make"), CASES, ids=lambda part: part if isinstance(part, str) else "")
def test_twice_the_input_is_at_most_twice_the_work(
    rendering: Rendering, name: str, make: Callable[[int], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = (work_of(monkeypatch, rendering, make(size)) for size in (4_000, 16_000))
    assert large <= 4.4 * small + 500, (name, small, large)
    assert large <= 20 * 16_000 + 5_000, (name, large)


@pytest.mark.parametrize("make", [lambda n: "a/b," * n, lambda n: "a/b;" * n, lambda n: ";q=" + "0" * n])
def test_headers_of_negotiation_are_read_in_linear_work(
    make: Callable[[int], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = []
    for size in (1_000, 4_000):
        with counted_work(monkeypatch) as work, contextlib.suppress(OcciError):
            choose_rendering(make(size))
        with counted_work(monkeypatch) as more, contextlib.suppress(OcciError):
            read_content_type(make(size))
        counts.append(work[0] + more[0])
    assert counts[1] <= 4.4 * counts[0] + 500
