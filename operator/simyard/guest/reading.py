"""Bytes of a worker into a JSON object, or a refusal. Time and memory are linear in the length, whatever it holds.

Python and orjson disagree on depth: orjson parses 1,024 levels, ``str()`` and ``json`` fail near 1,000, orjson writes
255. A value that was parsed but cannot be written or compared ends whoever touches it. So the depth is bounded on the
bytes, before anything parses them; every function behind this module may recurse.

The check works on whole buffers, in C: without strings and without everything that is no bracket, each replacement of
``[]`` by nothing removes the innermost level. If :data:`MAX_DEPTH` replacements leave something over, the body is too
deep or is no JSON. A body that orjson accepts is judged exactly; one that it refuses is refused anyway.
"""

from __future__ import annotations

import enum
import re

import orjson

from simyard_adapter.declarations import Json
from simyard_adapter.limits import MAX_DEPTH

MAX_CONTAINERS = 50_000
"""Arrays and objects in one message: an empty one of two bytes takes 60 to 230 bytes of memory."""
_STRING = re.compile(rb'"[^"]*"')
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")


class Refusal(enum.StrEnum):
    """Why a message, or a part of one, is refused: the label ``reason`` of the metrics."""

    TOO_LARGE = "TooLarge"
    TOO_DEEP = "TooDeep"
    NOT_JSON = "NotJson"
    INVALID = "Invalid"
    NOT_VOUCHED = "NotVouched"
    FAILED = "Failed"


class RefusedError(ValueError):
    """A worker's message is refused; ``problem`` says what is wrong without repeating the message."""

    def __init__(self, refusal: Refusal, problem: str) -> None:
        super().__init__(f"{refusal.value}: {problem}")
        self.refusal = refusal
        self.problem = problem


def read_object(body: bytes, max_bytes: int) -> dict[str, Json]:
    """Return the JSON object that the body holds.

    Raises:
        RefusedError: the body is longer than ``max_bytes``, nested too deeply, or no JSON object.
    """
    if len(body) > max_bytes:
        raise RefusedError(Refusal.TOO_LARGE, f"the message has {len(body)} bytes, at most {max_bytes} are read")
    _check_depth(body)
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
