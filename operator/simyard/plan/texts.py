"""Numbers in sentences."""

from __future__ import annotations


def count_of(number: int, noun: str) -> str:
    """``1 worker``, ``2 workers``: a noun whose plural has an s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def count_is(number: int, noun: str) -> str:
    """``1 worker is``, ``2 workers are``."""
    return f"{count_of(number, noun)} {'is' if number == 1 else 'are'}"
