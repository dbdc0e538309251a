# SPDX-License-Identifier: Apache-2.0
"""Removes control sequences from untrusted text, so that it is safe to print.

A terminal executes escape sequences in the output of a program: they can rename the window, fill the clipboard or move
the cursor over earlier lines. A bidirectional control character shows text in a wrong order. The control plane
therefore cleans text of workers and vendors when it receives the text. ``kubectl simyard`` cleans all text again before
it prints it, because other writers may have put text into objects.
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
"""Matches control sequences and characters. Each alternative ends at the next control character, so it is linear."""


def make_printable(text: str, max_characters: int | None = None) -> str:
    """Return the text without control sequences, control characters and bidirectional controls.

    Tabs and line feeds stay; a carriage return becomes a line feed. ``max_characters`` cuts the text.
    """
    if max_characters is not None:
        text = text[:max_characters]
    if text.isprintable() and text.isascii():
        return text
    return _UNSAFE.sub("", text).replace("\r\n", "\n").replace("\r", "\n")


def make_printable_line(text: str, max_characters: int | None = None) -> str:
    """Return the text of :func:`make_printable` on one line: line feeds and tabs become spaces."""
    return make_printable(text, max_characters).replace("\n", " ").replace("\t", " ")


def make_printable_value(value: Json) -> Json:
    """Return the value after :func:`make_printable` has cleaned all its texts and names of fields.

    The function recurses at most :data:`simyard.guest.reading.MAX_DEPTH` levels.
    """
    if isinstance(value, str):
        return make_printable(value)
    if isinstance(value, list):
        return [make_printable_value(item) for item in value]
    if isinstance(value, dict):
        return {make_printable(name): make_printable_value(item) for name, item in value.items()}
    return value
