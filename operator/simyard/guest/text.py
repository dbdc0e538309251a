"""Text of strangers, made safe to print.

A terminal obeys what a program prints: an escape sequence can rename the window, fill the clipboard or move the cursor
over earlier lines, and a bidirectional control shows text in another order than it has. Text of workers and vendors is
cleaned once where it enters the control plane, and once more in the only output path of ``kubectl simyard``, because
that client also reads objects that others wrote.
"""

from __future__ import annotations

import re

from simyard_adapter.declarations import Json

_UNSAFE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # control sequences (ECMA-48, 5.4)
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x00-\x1f\x7f-\x9f]*(?:\x07|\x1b\\|\x9c)"  # control strings (5.6), OSC
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
    r"|[\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
"""Each alternative stops at the next control character, so that the search is linear."""


def printable(text: str, max_characters: int | None = None) -> str:
    """Return the text without control sequences, control characters and bidirectional controls.

    Tabs and line feeds stay; a carriage return becomes a line feed. ``max_characters`` cuts the text.
    """
    if max_characters is not None:
        text = text[:max_characters]
    if text.isprintable() and text.isascii():
        return text
    return _UNSAFE.sub("", text).replace("\r\n", "\n").replace("\r", "\n")


def printable_line(text: str, max_characters: int | None = None) -> str:
    """As :func:`printable`, on one line: line feeds and tabs become spaces."""
    return printable(text, max_characters).replace("\n", " ").replace("\t", " ")


def printable_value(value: Json) -> Json:
    """Return the value with all its text, names of fields included, made :func:`printable`.

    The depth of the value is limited before (:mod:`simyard.guest.reading`), so the recursion is.
    """
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [printable_value(item) for item in value]
    if isinstance(value, dict):
        return {printable(name): printable_value(item) for name, item in value.items()}
    return value
