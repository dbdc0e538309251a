# SPDX-License-Identifier: Apache-2.0
r"""Replaces the variables in CONTEXT by values, as oned does: ``$NAME``, ``$USER[KEY]``, ``$NIC[IP, NETWORK="x"]``.

Source: ``vm_var_parser.l`` and ``vm_var_syntax.y`` of oned 6.10. A ``$`` without a variable is an error. A shell script
    in plain text is therefore not possible (START_SCRIPT_BASE64 is), and neither is a comma after a variable. ``\$``
    stays unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_PLAIN = re.compile(r"(?:[^$\\]|\\\$|\\[^$])+")
_NAME = re.compile(r"[A-Za-z0-9_]+")
_OPEN = re.compile(r"\[[ \t]*")
_CLOSE = re.compile(r"[ \t]*\]")
_COMMA = re.compile(r"[ \t]*,[ \t]*")
_EQUAL = re.compile(r"[ \t]*=[ \t]*")
_NEWLINE = re.compile(r"\n")
_WANTED = re.compile(r'"([^"]*)"|([A-Za-z0-9]+)')

Single = Callable[[str], str]
Inner = Callable[[str, str, str, str], str]


class VariableError(Exception):
    """A value in which a ``$`` is not followed by a variable."""


def substitute(value: str, single: Single, inner: Inner) -> str:
    """Return the value with its variables replaced.

    ``single`` returns the value of a variable. ``inner`` returns the value of a key of a vector, from the name, the
    key, and the key and value that select the vector.

    Raises:
        VariableError: The position of the error.
    """
    parsed, at = [], 0
    while at < len(value):
        plain = _PLAIN.match(value, at)
        if plain:
            parsed.append(plain.group())
            at = plain.end()
        elif value[at] == "$":
            text, at = _variable(value, at + 1, single, inner)
            parsed.append(text)
        else:  # A backslash at the end does not fit and is skipped.
            at += 1
    return "".join(parsed)


def _variable(value: str, at: int, single: Single, inner: Inner) -> tuple[str, int]:
    def expect(pattern: re.Pattern[str], what: str) -> re.Match[str]:
        nonlocal at
        match = pattern.match(value, at)
        if match is None:
            found = "EOA" if at < len(value) else "$end"
            raise VariableError(f"syntax error, unexpected {found}, expecting {what} at line 1, columns {at}:{at + 1}")
        at = match.end()
        return match

    name = expect(_NAME, "VARIABLE").group().upper()
    if _OPEN.match(value, at):
        expect(_OPEN, "OBRACKET")
        key = expect(_NAME, "VARIABLE").group().upper()
        chosen_by, wanted = "", ""
        if _COMMA.match(value, at):
            expect(_COMMA, "COMMA")
            chosen_by = expect(_NAME, "VARIABLE").group().upper()
            expect(_EQUAL, "EQUAL")
            match = expect(_WANTED, "STRING")
            wanted = match.group(1) or match.group(2) or ""
        expect(_CLOSE, "CBRACKET")
        text = inner(name, key, chosen_by, wanted)
    else:
        text = single(name)
    for wrong, pattern in (("EQUAL", _EQUAL), ("COMMA", _COMMA), ("CBRACKET", _CLOSE), ("VARIABLE", _NEWLINE)):
        if pattern.match(value, at):
            raise VariableError(f"syntax error, unexpected {wrong}, expecting EOA at line 1, columns {at}:{at + 1}")
    return text, at
