# SPDX-License-Identifier: Apache-2.0
"""Texts for messages that contain a number and its noun."""

from __future__ import annotations


def format_count(number: int, noun: str) -> str:
    """Return a number with its noun, such as ``1 worker`` and ``2 workers``; the plural of the noun ends in s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def format_count_is(number: int, noun: str) -> str:
    """Return a number with its noun and verb, such as ``1 worker is`` and ``2 workers are``."""
    return f"{format_count(number, noun)} {'is' if number == 1 else 'are'}"
