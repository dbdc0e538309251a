# SPDX-License-Identifier: Apache-2.0
"""Parses values of attributes, converts them to the declared type, and checks them against a declaration."""

from __future__ import annotations

import functools
import json
import math
import re
from decimal import Decimal
from typing import Any

import orjson
import re2

from simyard.occi.errors import OcciError, quote_input
from simyard.occi.model import AttributeSpec, Value, ValueType

MAX_DEPTH = 32
"""Maximum depth of arrays and objects in a value."""
MAX_PATTERN_CHARACTERS = 1000

_MIN_INTEGER, _MAX_INTEGER = -(2**63), 2**63 - 1
_NUMBER = re.compile(r"-?+(?:0|[1-9][0-9]{0,400}+)(\.[0-9]{1,400}+)?+([eE][+-]?+[0-9]{1,3}+)?+")
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


def parse_number(text: str) -> int | float | None:
    """Return the JSON number in a text; None if the text is not a number, or does not fit 64 bits."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    if found[1] is None and found[2] is None:
        integer = int(text)
        return integer if _MIN_INTEGER <= integer <= _MAX_INTEGER else None
    number = float(text)
    return number if math.isfinite(number) else None


def format_value(value: Value | None) -> str:
    """Return a value as text: a string unchanged, a number without exponent, arrays and objects as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        text = repr(value)
        if "e" not in text:
            return text
        plain = f"{Decimal(text):f}"
        return plain if "." in plain else f"{plain}.0"
    return encode_json(value).decode()


def drop_zero_fraction(value: Value) -> Value:
    """Return a float without a fraction as an integer, because 2.0 and 2 are the same number for clients."""
    is_integer = isinstance(value, float) and value.is_integer() and _MIN_INTEGER <= value <= _MAX_INTEGER
    return int(value) if isinstance(value, float) and is_integer else value


def encode_json(value: object) -> bytes:
    """Return a value as JSON in UTF-8. If an integer exceeds 64 bits, use the standard library, which is slower."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, separators=(",", ":")).encode()


def coerce(value: Value, wanted: ValueType) -> Value:
    """Return a value in the declared type if the conversion is exact; otherwise return the value unchanged.

    Clients put numbers into quotes, and text renderings have no arrays, so their values arrive as text.
    :func:`check_value` refuses values that still have a wrong type.
    """
    match wanted:
        case ValueType.STRING if isinstance(value, (bool, int, float)):
            return format_value(value)
        case ValueType.NUMBER if isinstance(value, str):
            number = parse_number(value)
            return value if number is None else number
        case ValueType.BOOLEAN if value in ("true", "false"):
            return value == "true"
        case ValueType.ARRAY | ValueType.OBJECT if isinstance(value, str):
            return _structured(value, list if wanted is ValueType.ARRAY else dict)
    return value


def check_value(value: Value, spec: AttributeSpec) -> Value:
    """Return a value in the declared type.

    Raises:
        OcciError: 400, the value has another type or does not match the pattern.
    """
    found = coerce(value, spec.type)
    if not _fits(found, spec.type) and not (spec.or_object and isinstance(found, dict)):
        text = quote_input(format_value(value))
        raise OcciError(400, f"attribute {spec.name}: {text} is not of the type {spec.type.value}")
    check_bounds(found, f"attribute {spec.name}")
    if spec.pattern and isinstance(found, (str, int, float)) and not isinstance(found, bool):
        text = format_value(found)
        try:
            pattern = compile_pattern(spec.pattern)
            if pattern.fullmatch(format_value(drop_zero_fraction(found))):
                return drop_zero_fraction(found)
            matched = pattern.fullmatch(text)
        except re2.error:
            raise OcciError(
                400, f"attribute {spec.name}: its declared pattern {quote_input(spec.pattern)} is no regular expression"
            ) from None
        if not matched:
            raise OcciError(
                400,
                f"attribute {spec.name}: {quote_input(text)} does not match the pattern {quote_input(spec.pattern)}",
            )
    return found


def check_bounds(value: Value | None, where: str, depth: int = 0) -> None:
    """Raise an error for a value that a rendering cannot contain: integers beyond 64 bits, and deep nesting.

    Raises:
        OcciError: 400, the value has such an integer or nesting.
    """
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return
    if isinstance(value, int) and not _MIN_INTEGER <= value <= _MAX_INTEGER:
        raise OcciError(400, f"{where}: the integer {quote_input(str(value))} does not fit 64 bits")
    if isinstance(value, (list, dict)):
        if depth >= MAX_DEPTH:
            raise OcciError(400, f"{where}: the value is nested deeper than {MAX_DEPTH} levels")
        for item in value.values() if isinstance(value, dict) else value:
            check_bounds(item, where, depth + 1)


@functools.lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> Any:
    """Return a compiled regular expression of RE2, which takes linear time for every pattern.

    Raises:
        re2.error: the text is no regular expression.
    """
    return re2.compile(pattern, _OPTIONS)


def _fits(value: Value, wanted: ValueType) -> bool:
    match wanted:
        case ValueType.STRING:
            return isinstance(value, str)
        case ValueType.NUMBER:
            return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        case ValueType.BOOLEAN:
            return isinstance(value, bool)
        case ValueType.ARRAY:
            return isinstance(value, list)
        case ValueType.OBJECT:
            return isinstance(value, dict)


def _structured(text: str, wanted: type[list[Value | None]] | type[dict[str, Value | None]]) -> Value:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    return found if isinstance(found, wanted) else text
