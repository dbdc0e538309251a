# SPDX-License-Identifier: Apache-2.0
"""Reader of a worker's bytes into a JSON object, or a refusal; time and memory are linear in the length.

The problem is the depth. orjson parses 1,024 levels but writes only 255, and ``str()`` and ``json`` fail near 1,000. A
value that was parsed but cannot be written or compared crashes the code that uses it. So the depth is checked on the
bytes, before they are parsed. Then all functions that read the value may recurse.

The check works on whole buffers, in C. It removes all strings and all bytes that are not brackets; then each removal of
``[]`` removes the innermost level. If brackets are left after :data:`MAX_DEPTH` removals, the body is too deep or is
not JSON. The check is exact for every body that orjson accepts; all other bodies are refused in any case.
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
    """Reason to refuse a message or a part of it; the label ``reason`` of the metrics."""

    TOO_LARGE = "TooLarge"
    TOO_DEEP = "TooDeep"
    NOT_JSON = "NotJson"
    INVALID = "Invalid"
    NOT_VOUCHED = "NotVouched"
    FAILED = "Failed"


class RefusedError(ValueError):
    """Refusal of a worker's message; ``problem`` describes the error without repeating the message."""

    def __init__(self, refusal: Refusal, problem: str) -> None:
        super().__init__(f"{refusal.value}: {problem}")
        self.refusal = refusal
        self.problem = problem


def check_body(body: bytes, max_bytes: int) -> None:
    """Check a body that a parser is about to read.

    Raises:
        RefusedError: the body is longer than ``max_bytes``, or nested too deeply.
    """
    if len(body) > max_bytes:
        raise RefusedError(Refusal.TOO_LARGE, f"the message has {len(body)} bytes, at most {max_bytes} are read")
    _check_depth(body)


def read_object(body: bytes, max_bytes: int) -> dict[str, Json]:
    """Return the JSON object in a body.

    Raises:
        RefusedError: The body is longer than ``max_bytes``, nests too deeply, or is not a JSON object.
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
