# SPDX-License-Identifier: Apache-2.0
"""Selects pages of listings: ``?page=N&number=M``, counted from 1."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from simyard.occi.errors import OcciError, quote_input

T = TypeVar("T")
MAX_PAGE_SIZE = 10_000
DEFAULT_PAGE_SIZE = 100

_POSITIVE = re.compile(r"0*+[1-9][0-9]*+")
_MAX_DIGITS = 15
"""Maximum number of digits of a page number.

The reader cuts longer numbers, because no collection has so many pages.
"""


@dataclass(frozen=True, slots=True)
class Page:
    """The page ``page`` (from 1) of a listing with ``number`` members per page; 0 means one page with all members."""

    page: int = 1
    number: int = 0

    def select(self, members: Sequence[T]) -> Sequence[T]:
        """Return the members on the page; a page after the last one is empty."""
        if self.number == 0:
            return members
        return members[(self.page - 1) * self.number : self.page * self.number]


def read_page(query: Mapping[str, str]) -> Page:
    """Return the page that a query selects; without ``page`` and ``number``, one page with all members.

    Raises:
        OcciError: 400, a value is no positive integer; 413, ``number`` is above 10,000.
    """
    if "page" not in query and "number" not in query:
        return Page()
    number = _positive(query, "number", DEFAULT_PAGE_SIZE)
    if number > MAX_PAGE_SIZE:
        raise OcciError(413, f"?number={number} is above {MAX_PAGE_SIZE}, the limit for a page; ask for more pages")
    return Page(_positive(query, "page", 1), number)


def _positive(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    if not _POSITIVE.fullmatch(text):
        raise OcciError(400, f"?{name}={quote_input(text)} is no positive integer")
    digits = text.lstrip("0")
    return int(digits) if len(digits) <= _MAX_DIGITS else 10**_MAX_DIGITS
