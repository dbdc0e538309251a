"""Pages of listings: ``?page=N&number=M``, counted from 1 (section 9)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from simyard.occi.errors import OcciError, shown

T = TypeVar("T")
MOST_NUMBER = 10_000
DEFAULT_NUMBER = 100

_POSITIVE = re.compile(r"0*+[1-9][0-9]*+")
_MOST_DIGITS = 15
"""No collection has as many members; any longer number is past the end just so."""


@dataclass(frozen=True, slots=True)
class Page:
    """The ``page``-th page (from 1) of ``number`` members; ``number`` 0 is everything on one."""

    page: int = 1
    number: int = 0

    def of(self, members: Sequence[T]) -> Sequence[T]:
        """The members on it: none past the end."""
        if self.number == 0:
            return members
        return members[(self.page - 1) * self.number : self.page * self.number]


def page(query: Mapping[str, str]) -> Page:
    """The page that a query asks for; without ``page`` and ``number``, everything.

    Raises:
        OcciError: 400, no positive integer; 413, ``number`` is above 10,000.
    """
    if "page" not in query and "number" not in query:
        return Page()
    number = _positive(query, "number", DEFAULT_NUMBER)
    if number > MOST_NUMBER:
        raise OcciError(413, f"?number={number} is above {MOST_NUMBER}, the most members of a page")
    return Page(_positive(query, "page", 1), number)


def _positive(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    if not _POSITIVE.fullmatch(text):
        raise OcciError(400, f"?{name}={shown(text)} is no positive integer")
    digits = text.lstrip("0")
    return int(digits) if len(digits) <= _MOST_DIGITS else 10**_MOST_DIGITS
