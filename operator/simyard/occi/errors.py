"""The one error of OCCI: a status and one line that says what was wrong, where, and what to do."""

from __future__ import annotations

MOST_SHOWN_CHARACTERS = 80
MOST_MESSAGE_CHARACTERS = 1000


class OcciError(Exception):
    """A request is refused or failed. ``status`` is the HTTP status, ``message`` one line of printable text."""

    def __init__(self, status: int, message: str) -> None:
        line = " ".join(message.split())
        line = "".join(c if c.isprintable() else "?" for c in line)[:MOST_MESSAGE_CHARACTERS]
        super().__init__(line)
        self.status = status
        self.message = line


def shown(text: str) -> str:
    """A client's text for a message: quoted, shortened, and with nothing in it that could break a line."""
    short = text if len(text) <= MOST_SHOWN_CHARACTERS else f"{text[:MOST_SHOWN_CHARACTERS]}..."
    return '"' + "".join(c if c.isprintable() else "?" for c in short) + '"'
