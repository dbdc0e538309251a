"""Values of attributes: numbers in text, conversion to the declared type, and the check against a declaration."""

from __future__ import annotations

import functools
import json
import math
import re
from decimal import Decimal
from typing import Any

import orjson
import re2

from simyard.occi.errors import OcciError, shown
from simyard.occi.model import AttributeSpec, Value, ValueType

MOST_DEPTH = 32
"""Nesting of arrays and objects in a value."""
MOST_PATTERN_CHARACTERS = 1000

_LEAST_INTEGER, _MOST_INTEGER = -(2**63), 2**63 - 1
_NUMBER = re.compile(r"-?+(?:0|[1-9][0-9]{0,400}+)(\.[0-9]{1,400}+)?+([eE][+-]?+[0-9]{1,3}+)?+")
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


def number_of(text: str) -> int | float | None:
    """The number of JSON that a text is: None if it is none, or one beyond 64 bits."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    if found[1] is None and found[2] is None:
        integer = int(text)
        return integer if _LEAST_INTEGER <= integer <= _MOST_INTEGER else None
    number = float(text)
    return number if math.isfinite(number) else None


def text_of(value: Value | None) -> str:
    """A value as text: a string as it is, a number without exponent, arrays and objects as JSON."""
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
    return json_of(value).decode()


def plain(value: Value) -> Value:
    """A number without a fraction as the integer that it is: to clients, 2.0 and 2 are one number."""
    is_integer = isinstance(value, float) and value.is_integer() and _LEAST_INTEGER <= value <= _MOST_INTEGER
    return int(value) if isinstance(value, float) and is_integer else value


def json_of(value: object) -> bytes:
    """JSON in UTF-8. What orjson refuses (integers beyond 64 bits) is only slower."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, separators=(",", ":")).encode()


def coerce(value: Value, wanted: ValueType) -> Value:
    """The value in the declared type where that loses nothing: clients quote numbers, and text has no arrays.

    What does not fit is given back as it is, for :func:`check`.
    """
    match wanted:
        case ValueType.STRING if isinstance(value, (bool, int, float)):
            return text_of(value)
        case ValueType.NUMBER if isinstance(value, str):
            number = number_of(value)
            return value if number is None else number
        case ValueType.BOOLEAN if value in ("true", "false"):
            return value == "true"
        case ValueType.ARRAY | ValueType.OBJECT if isinstance(value, str):
            return _structured(value, list if wanted is ValueType.ARRAY else dict)
    return value


def check(value: Value, spec: AttributeSpec) -> Value:
    """The value in the declared type.

    Raises:
        OcciError: 400, it has another type or does not match the pattern.
    """
    found = coerce(value, spec.type)
    if not _fits(found, spec.type):
        text = shown(text_of(value))
        raise OcciError(400, f"attribute {spec.name}: {text} is not of the type {spec.type.value}")
    check_bounds(found, f"attribute {spec.name}")
    if spec.pattern and isinstance(found, (str, int, float)) and not isinstance(found, bool):
        text = text_of(found)
        try:
            pattern = compiled(spec.pattern)
            if pattern.fullmatch(text_of(plain(found))):
                return plain(found)
            matched = pattern.fullmatch(text)
        except re2.error:
            raise OcciError(
                400, f"attribute {spec.name}: its declared pattern {shown(spec.pattern)} is no regular expression"
            ) from None
        if not matched:
            raise OcciError(
                400, f"attribute {spec.name}: {shown(text)} does not match the pattern {shown(spec.pattern)}"
            )
    return found


def check_bounds(value: Value | None, where: str, depth: int = 0) -> None:
    """Refuse what not every rendering and every store can hold: integers beyond 64 bits, deep nesting.

    Raises:
        OcciError: 400.
    """
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return
    if isinstance(value, int) and not _LEAST_INTEGER <= value <= _MOST_INTEGER:
        raise OcciError(400, f"{where}: the integer {shown(str(value))} does not fit 64 bits")
    if isinstance(value, (list, dict)):
        if depth >= MOST_DEPTH:
            raise OcciError(400, f"{where}: is nested deeper than {MOST_DEPTH} levels")
        for item in value.values() if isinstance(value, dict) else value:
            check_bounds(item, where, depth + 1)


@functools.lru_cache(maxsize=1024)
def compiled(pattern: str) -> Any:
    """A regular expression of RE2, which takes linear time whatever a client or vendor wrote.

    Raises:
        re2.error: it is none.
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
