# SPDX-License-Identifier: Apache-2.0
"""Parses OpenNebula's templates in the string form and the XML form, and merges two templates.

The string form follows oned's own lexer and grammar (source of 6.10: ``src/parsers/template_parser.l`` and
``template_syntax.y``), also in unusual cases. A value ends at the first quote without a backslash before it, and no
value can end with a backslash. ``]]>`` on the line of a value causes an error without a position. The lexer skips a
character that matches no rule.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator
from xml.sax.saxutils import escape

Vector = dict[str, str]
Value = str | Vector

_ENTITIES = {'"': "&quot;", "'": "&apos;"}


class TemplateError(Exception):
    """A template that oned cannot parse; the message is oned's."""


class Template:
    """Attributes by name, each with one or more values: a string, or a vector of named strings. Names are upper case.

    Source: "Template Reference" and ``Template::merge``, ``Attribute``. A merge replaces all attributes with a name of
    the new template, so a CONTEXT in the new template replaces the whole old CONTEXT.
    """

    def __init__(self, attributes: Iterable[tuple[str, Value]] = ()) -> None:
        self._attributes: dict[str, list[Value]] = {}
        for name, value in attributes:
            self.add(name, value)

    def add(self, name: str, value: Value) -> None:
        """Add a value with this name."""
        self._attributes.setdefault(name.upper(), []).append(value)

    def set(self, name: str, value: Value) -> None:
        """Set the only value with this name."""
        self._attributes[name.upper()] = [value]

    def remove(self, name: str) -> list[Value]:
        """Remove and return all values with this name."""
        return self._attributes.pop(name, [])

    def get(self, name: str) -> str:
        """Return the first single value with this name, or ""."""
        return next((value for value in self._attributes.get(name, ()) if isinstance(value, str)), "")

    def vectors(self, name: str) -> list[Vector]:
        """Return all vector values with this name."""
        return [value for value in self._attributes.get(name, ()) if isinstance(value, dict)]

    def names(self) -> list[str]:
        """Return the names of the attributes."""
        return list(self._attributes)

    def items(self) -> Iterator[tuple[str, Value]]:
        """Yield every name with every value."""
        for name, values in self._attributes.items():
            for value in values:
                yield name, value

    def __bool__(self) -> bool:
        return bool(self._attributes)

    def copy(self) -> Template:
        """Return a copy."""
        return Template((name, dict(value) if isinstance(value, dict) else value) for name, value in self.items())

    def merge(self, other: Template) -> None:
        """Replace every attribute whose name the other template has."""
        for name in other.names():
            self.remove(name)
        for name, value in other.copy().items():
            self.add(name, value)

    def to_xml(self, tag: str) -> str:
        """Return the element ``tag`` with one element per value."""
        inner = "".join(element(name, value) for name, value in self.items())
        return f"<{tag}>{inner}</{tag}>" if inner else f"<{tag}/>"


def text(value: object) -> str:
    """Escape a value as ``one_util::escape_xml`` does."""
    return escape(str(value), _ENTITIES)


def element(name: str, value: Value) -> str:
    """Return an attribute as XML; oned gives each value as a CDATA section."""
    if isinstance(value, str):
        return f"<{name}>{_cdata(value)}</{name}>"
    return f"<{name}>{''.join(f'<{key}>{_cdata(inner)}</{key}>' for key, inner in value.items() if key)}</{name}>"


def _cdata(value: str) -> str:
    """Return a CDATA section; an end mark in the value is split between two sections."""
    return f"<![CDATA[{value.replace(']]>', ']]]]><![CDATA[>')}]]>"


def parse(source: str) -> Template:
    """Read the string form, or the XML form if the source begins with ``<``.

    Raises:
        TemplateError: The text that follows ``[method]`` in oned's answer.
    """
    if source.startswith("<"):
        return _from_xml(source)
    return _Parser(source).template()


def _from_xml(source: str) -> Template:
    try:
        root = ET.fromstring(source)  # noqa: S314 (a simulator for tests)
    except ET.ParseError as error:
        raise TemplateError("Parse error: XML Template malformed.") from error
    template = Template()
    for child in root:
        value: Value = {inner.tag: inner.text or "" for inner in child} if len(child) else (child.text or "")
        template.add(child.tag, value)
    return template


_BLANK = r"[ \t]"
_INITIAL = re.compile(
    rf"(?P<comment>{_BLANK}*#[^\n]*\n)|(?P<EQUAL_EMPTY>{_BLANK}*={_BLANK}*\n)|(?P<EQUAL>{_BLANK}*={_BLANK}*)"
    rf"|(?P<COMMA>[ \t\n]*,[ \t\n]*)|(?P<CBRACKET>[ \t\n]*\][ \t\n]*)|(?P<space>[ \t\n]+)"
    r"|(?P<VARIABLE>[A-Za-z0-9_]+)|(?P<other>[\s\S])"
)
_OPENING = re.compile(r"[ \t]*\[[ \t\n]*")
_ABORTING = re.compile(r".*\]\]>.*")
_QUOTED = re.compile(r'"((?:\\"|[^"])*)"')
_BARE = re.compile(r"[^=# \t\n,\[\]]+")


class _Parser:
    """The lexer with its two states, and the grammar, which needs one token at a time."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._begin = 0
        self._in_value = False

    def template(self) -> Template:
        template = Template()
        expected = "$end or VARIABLE"
        while True:
            kind, name = self._next()
            if kind == "$end":
                return template
            if kind != "VARIABLE":
                raise self._error(kind, expected)
            expected = "$end"
            kind, _ = self._next()
            if kind == "EQUAL_EMPTY":
                template.add(name, "")
                continue
            if kind != "EQUAL":
                raise self._error(kind, "EQUAL or EQUAL_EMPTY")
            kind, value = self._next()
            if kind == "STRING":
                template.add(name, value)
            elif kind == "OBRACKET":
                template.add(name, self._vector())
            elif kind == "CCDATA":
                raise TemplateError("Parse error.")
            else:
                raise self._error(kind, "OBRACKET or CCDATA or STRING")

    def _vector(self) -> Vector:
        vector: Vector = {}
        kind, name = self._next()
        if kind == "CBRACKET":
            return vector
        expected = "CBRACKET or VARIABLE"
        while True:
            if kind != "VARIABLE":
                raise self._error(kind, expected)
            kind, _ = self._next()
            if kind != "EQUAL":
                raise self._error(kind, "EQUAL")
            kind, value = self._next()
            if kind != "STRING":
                raise self._error(kind, "STRING")
            vector.setdefault(name.upper(), value)
            kind, _ = self._next()
            if kind == "CBRACKET":
                return vector
            if kind != "COMMA":
                raise self._error(kind, "COMMA or CBRACKET")
            kind, name = self._next()
            expected = "VARIABLE"

    def _next(self) -> tuple[str, str]:
        while self._at < len(self._source):
            token = self._value() if self._in_value else self._initial()
            if token is not None:
                return token
        self._begin = self._at
        return "$end", ""

    def _initial(self) -> tuple[str, str] | None:
        # flex takes the longest match; only a comment or blanks can be as long as the text before them.
        match = _INITIAL.match(self._source, self._at)
        if match is None or match.lastgroup is None:
            raise TemplateError("Parse error.")
        self._begin, self._at = self._at, match.end()
        kind = match.lastgroup
        if kind in ("comment", "space", "other"):
            return None
        self._in_value = kind == "EQUAL"
        return kind, match.group()

    def _value(self) -> tuple[str, str] | None:
        """Return the longest match of an opening bracket, an aborting line, a quoted and a bare string."""
        candidates = (("OBRACKET", _OPENING), ("CCDATA", _ABORTING), ("STRING", _QUOTED), ("STRING", _BARE))
        best: tuple[str, re.Match[str]] | None = None
        for kind, pattern in candidates:
            match = pattern.match(self._source, self._at)
            if match and (best is None or match.end() > best[1].end()):
                best = (kind, match)
        self._begin = self._at
        if best is None:
            self._at += 1
            return None
        kind, match = best
        self._at = match.end()
        self._in_value = False
        value = match.group(1) if match.re is _QUOTED else match.group()
        return kind, value.replace('\\"', '"')

    def _error(self, unexpected: str, expected: str) -> TemplateError:
        line = self._source.count("\n", 0, self._at)  # The first line has the number 0.
        where = f"at line {line}, columns {self._begin}:{self._at}"
        return TemplateError(f"Parse error: syntax error, unexpected {unexpected}, expecting {expected} {where}")
