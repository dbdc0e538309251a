# SPDX-License-Identifier: Apache-2.0
"""Reads the bytes of a worker into a JSON object, or refuses them, in time and memory linear in their length.

The problem is deep nesting. orjson parses 1,024 levels but writes only 255, and ``str()`` and ``json`` fail near 1,000
levels. If a parsed value cannot be written or compared, the code that uses it crashes. This module therefore checks the
depth of the bytes before it parses them. Functions that read the value can then use recursion.

The check uses operations on whole buffers, which run in C. It removes all strings and all bytes that are not brackets;
then each removal of ``[]`` removes the innermost level. If brackets are left after :data:`MAX_DEPTH` removals, the body
is too deep or is not JSON. The result is exact for every body that orjson accepts; orjson refuses all other bodies.
"""

from __future__ import annotations

import enum
import re

import orjson

from simyard_adapter.declarations import Json
from simyard_adapter.limits import MAX_DEPTH

MAX_CONTAINERS = 50_000
"""Maximum number of arrays and objects in a message: an empty array of two bytes takes 60 to 230 bytes of memory."""
_STRING = re.compile(rb'"[^"]*"')
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")


class Refusal(enum.StrEnum):
    """The reason why a message or a part of it is refused. Its value is the label ``reason`` of the metrics."""

    TOO_LARGE = "TooLarge"
    TOO_DEEP = "TooDeep"
    NOT_JSON = "NotJson"
    INVALID = "Invalid"
    NOT_VOUCHED = "NotVouched"
    FAILED = "Failed"


class RefusedError(ValueError):
    """The refusal of a worker's message. ``problem`` describes the error, without content of the message."""

    def __init__(self, refusal: Refusal, problem: str) -> None:
        super().__init__(f"{refusal.value}: {problem}")
        self.refusal = refusal
        self.problem = problem


def check_body(body: bytes, max_bytes: int) -> None:
    """Check the length and the depth of a body before it is parsed.

    Raises:
        RefusedError: the body is longer than ``max_bytes``, or nested too deeply.
    """
    if len(body) > max_bytes:
        raise RefusedError(Refusal.TOO_LARGE, f"the message has {len(body)} bytes, at most {max_bytes} are read")
    _check_depth(body)


def read_object(body: bytes, max_bytes: int) -> dict[str, Json]:
    """Return the JSON object in a body.

    Raises:
        RefusedError: The body is longer than ``max_bytes``, is nested too deeply, or is not a JSON object.
    """
    check_body(body, max_bytes)
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RefusedError(Refusal.NOT_JSON, f"the message is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise RefusedError(Refusal.NOT_JSON, "the message is not a JSON object")
    return value


def _check_depth(body: bytes) -> None:
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return
    unescaped = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    brackets = _STRING.sub(b"", unescaped).translate(_BRACKETS, _NO_BRACKETS)
    if len(brackets) > 2 * MAX_CONTAINERS:
        raise RefusedError(Refusal.TOO_DEEP, f"the message has more than {MAX_CONTAINERS} arrays and objects")
    for _ in range(MAX_DEPTH):
        if not brackets:
            return
        brackets = brackets.replace(b"[]", b"")
    if brackets:
        raise RefusedError(Refusal.TOO_DEEP, f"the message is nested deeper than {MAX_DEPTH} levels, or is no JSON")
