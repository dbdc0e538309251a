# SPDX-License-Identifier: Apache-2.0
"""Parses the text grammar (GFD.185 section 3.2): splits fields into items with parameters.

Every pattern is possessive: the regular expression never tries again to match text that it has matched, so parsing
takes linear time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from simyard.occi.errors import OcciError, quote_input

URI = re.compile(r"[!#-;=?-\[\]_a-z~]++")
"""Pattern of printable ASCII without quotes, angle brackets, backslash, caret, backtick, braces and bar."""
ATTRIBUTE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}+")
TERM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}+")

TOKEN = re.compile(r'[^\s",;=<>{}\\]++')
TARGET = re.compile(r"<([^\s<>\"]*+)>")
ASSIGNMENT = re.compile(r'([^\s",;=<>]++)[ \t]*+=[ \t]*+(?:"((?:[^"\\]++|\\.)*+)"|([^\s",;]++))', re.DOTALL)
SPACE = re.compile(r"[ \t]*+")
BETWEEN_ITEMS = re.compile(r"[ \t,]*+")
BETWEEN_PARAMETERS = re.compile(r"[ \t;]*+")
ESCAPE = re.compile(
    r'\\(?:(["\\])|u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})'
    r"|u((?:[0-9abcefABCEF][0-9a-fA-F]|[dD][0-7])[0-9a-fA-F]{2}))"
)
UNSAFE = re.compile(r'["\\\x00-\x1f\x7f-\x9f\u2028\u2029]')
UNSAFE_IN_HEADERS = re.compile(r'["\\\x00-\x1f\x7f-\U0010ffff]')
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Lexeme:
    """The value of a parameter, without escapes. ``quoted`` is true if the client sent it in quotes."""

    text: str
    quoted: bool


@dataclass(frozen=True, slots=True)
class Item:
    """A Category or Link: its term or target, and its parameters in order. ``where`` is its place, for errors."""

    head: str
    parameters: tuple[tuple[str, Lexeme], ...]
    where: str

    def refuse(self, problem: str) -> OcciError:
        """Return an error with the problem and the item's place."""
        return OcciError(400, f"{self.where}: {problem}")


def quote(text: str, unsafe: re.Pattern[str] = UNSAFE) -> str:
    r"""Return a text in quotes on one line, with the escapes ``\"``, ``\\`` and ``\u000a`` for unsafe characters."""
    if unsafe.search(text):
        text = unsafe.sub(_escaped, text)
    return f'"{text}"'


def unquote(text: str) -> str:
    r"""Return the text without the escapes of :func:`quote`.

    Other backslashes remain, because older clients do not escape a backslash (``C:\temp``).
    """
    return ESCAPE.sub(_unescaped, text) if "\\" in text else text


def read_category_items(text: str, where: str) -> Iterator[Item]:
    """Yield the items of a Category field: ``TERM; scheme="..."; ..., TERM; ...``."""
    return _items(text, where, TOKEN, "a term")


def read_link_items(text: str, where: str) -> Iterator[Item]:
    """Yield the items of a Link field: ``<TARGET>; rel="..."; ..., <TARGET>; ...``."""
    return _items(text, where, TARGET, "a target in angle brackets")


def read_attribute_items(text: str, where: str) -> Iterator[tuple[str, Lexeme, str]]:
    """Yield name, value and place of each attribute in ``name=value, name=value``."""
    position = _past(BETWEEN_ITEMS, text)
    while position < len(text):
        here = _place(where, position)
        name, lexeme, position = _assignment(text, position, where)
        yield name, lexeme, here
        position = _next_item(text, _past(BETWEEN_PARAMETERS, text, position), where)


def read_locations(text: str, where: str) -> Iterator[str]:
    """Yield the URIs in ``URI, URI``, without the quotes or angle brackets that a client may put around a URI."""
    for item in text.split(","):
        uri = item.strip().strip('"<>')
        if uri:
            yield check_uri(uri, where)


def check_uri(uri: str, where: str) -> str:
    """Return a URI or path unchanged, if every rendering can contain it.

    Raises:
        OcciError: 400, the text has characters that a URI cannot have.
    """
    if not URI.fullmatch(uri):
        raise OcciError(400, f"{where}: {quote_input(uri)} is no URI; percent-encode what is not printable ASCII")
    return uri


def _items(text: str, where: str, head: re.Pattern[str], what: str) -> Iterator[Item]:
    position = _past(BETWEEN_ITEMS, text)
    while position < len(text):
        here = _place(where, position)
        found = head.match(text, position)
        if found is None:
            raise OcciError(400, f"{here}: expected {what}, found {quote_input(text[position : position + 20])}")
        position = _past(SPACE, text, found.end())
        parameters: list[tuple[str, Lexeme]] = []
        while text.startswith(";", position):
            position = _past(BETWEEN_PARAMETERS, text, position)
            if position == len(text) or text[position] == ",":
                break  # a trailing semicolon
            name, lexeme, position = _assignment(text, position, where)
            parameters.append((name, lexeme))
        yield Item(found[found.lastindex or 0], tuple(parameters), here)
        position = _next_item(text, position, where)


def _assignment(text: str, position: int, where: str) -> tuple[str, Lexeme, int]:
    found = ASSIGNMENT.match(text, position)
    if found is None:
        near = quote_input(text[position : position + 40])
        raise OcciError(400, f'{_place(where, position)}: expected name="value" (quotes closed), found {near}')
    name, in_quotes, token = found.groups()
    lexeme = Lexeme(unquote(in_quotes), True) if token is None else Lexeme(token, False)
    return name, lexeme, _past(SPACE, text, found.end())


def _next_item(text: str, position: int, where: str) -> int:
    """Return the position after the next comma, or the end of the text; raise an error before any other character."""
    if position < len(text) and text[position] != ",":
        near = quote_input(text[position : position + 20])
        raise OcciError(400, f"{_place(where, position)}: expected a comma or the end, found {near}")
    return _past(BETWEEN_ITEMS, text, position)


def _past(separator: re.Pattern[str], text: str, position: int = 0) -> int:
    """Return the position after the separators at ``position``."""
    found = separator.match(text, position)
    return position if found is None else found.end()


def _place(where: str, position: int) -> str:
    return f"{where}, column {position + 1}"


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if character in '"\\':
        return "\\" + character
    code = ord(character)
    if code > 0xFFFF:
        code -= 0x10000
        return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
    return f"\\u{code:04x}"


def _unescaped(found: re.Match[str]) -> str:
    plain, high, low, code = found.groups()
    if plain is not None:
        return str(plain)
    if code is not None:
        return chr(int(code, 16))
    return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + (int(low, 16) - 0xDC00))
