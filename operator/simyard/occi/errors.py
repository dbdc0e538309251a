# SPDX-License-Identifier: Apache-2.0
"""Defines the error of OCCI requests: a status, and one line with the problem, its place and the remedy."""

from __future__ import annotations

MAX_QUOTED_CHARACTERS = 80
MAX_MESSAGE_CHARACTERS = 1000


class OcciError(Exception):
    """The refusal or failure of a request: ``status`` is the HTTP status, ``message`` one line of printable text."""

    def __init__(self, status: int, message: str) -> None:
        line = " ".join(message.split())
        line = "".join(c if c.isprintable() else "?" for c in line)[:MAX_MESSAGE_CHARACTERS]
        super().__init__(line)
        self.status = status
        self.message = line


def quote_input(text: str) -> str:
    """Return a client's text for use in a message: quoted, shortened, and without unprintable characters."""
    short = text if len(text) <= MAX_QUOTED_CHARACTERS else f"{text[:MAX_QUOTED_CHARACTERS]}..."
    return '"' + "".join(c if c.isprintable() else "?" for c in short) + '"'
