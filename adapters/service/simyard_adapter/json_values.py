# SPDX-License-Identifier: Apache-2.0
"""Properties of JSON values that the check of declarations needs."""

from __future__ import annotations

import json
import math
from typing import Any

MAX_SHOWN_CHARACTERS = 60


def is_finite(value: float) -> bool:
    """Return True if a number is finite and fits into a float."""
    try:
        return math.isfinite(value)
    except OverflowError:  # The integer is too large for a float.
        return False


def find_encoding_problem(value: Any) -> str:
    """Return the reason why a value cannot be encoded as JSON in UTF-8, or an empty text.

    NaN, half of a surrogate pair, and foreign Python types cannot be encoded.
    """
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        return str(error)
    return ""


def is_same(left: Any, right: Any) -> bool:
    """Return True if two values are equal in JSON, where ``1`` is not ``true``."""
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


def show_value(value: Any) -> str:
    """Return a value as a short text for an error message."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        text = f"a Python {type(value).__name__}"
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[: MAX_SHOWN_CHARACTERS - 3] + "..."


def format_number(value: float) -> str:
    """Return a number without a fraction of zero."""
    return str(int(value)) if float(value).is_integer() else str(value)
