# SPDX-License-Identifier: Apache-2.0
"""A body of a worker is read within bounds, whatever it holds."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simyard.guest.reading import MAX_CONTAINERS, Refusal, RefusedError, read_object
from simyard_adapter.limits import MAX_DEPTH

LIMIT = 1024 * 1024
FINITE = st.floats(allow_nan=False, allow_infinity=False)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | FINITE | st.text(),
    lambda items: st.lists(items, max_size=4) | st.dictionaries(st.text(max_size=5), items, max_size=4),
    max_leaves=60,
)


def nested(depth: int, opening: bytes = b"[", closing: bytes = b"]") -> bytes:
    """An object with so many levels, itself included."""
    return b'{"a":' + opening * (depth - 1) + b"1" * opening.endswith(b":") + closing * (depth - 1) + b"}"


def depth_of(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    return 0


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"]":', b"}]")])
def test_depth_is_bounded_whatever_it_is_made_of(opening: bytes, closing: bytes) -> None:
    levels = len(closing)
    for depth in (300, 1015, 400_000 // len(opening)):
        with pytest.raises(RefusedError) as refused:
            read_object(nested(depth, opening, closing), LIMIT)
        assert refused.value.refusal is Refusal.TOO_DEEP
    assert read_object(nested((MAX_DEPTH - 1) // levels + 1, opening, closing), LIMIT)


def test_the_last_level_that_is_read() -> None:
    assert depth_of(read_object(nested(MAX_DEPTH), LIMIT)) == MAX_DEPTH
    with pytest.raises(RefusedError):
        read_object(b'{"b":[' + b"[]," * 40 + b"0]," + nested(MAX_DEPTH + 1)[1:], LIMIT)


@given(st.dictionaries(st.text(), JSON_VALUES))
def test_what_is_not_too_deep_is_read_as_it_was_written(value: dict[str, object]) -> None:
    if depth_of(value) <= MAX_DEPTH:
        assert read_object(orjson.dumps(value), LIMIT) == value


@given(st.text(alphabet='[]{}"\\,:a'), st.integers(0, 60))
def test_brackets_in_text_are_no_depth(text: str, depth: int) -> None:
    value: object = text
    for _ in range(depth):
        value = [value, text]
    body = orjson.dumps({text: value})
    if depth < MAX_DEPTH:
        assert read_object(body, LIMIT) == {text: value}
    else:
        with pytest.raises(RefusedError):
            read_object(body, LIMIT)


@given(st.binary(max_size=200) | st.text(alphabet='[]{}"\\,:1a ').map(str.encode))
def test_any_bytes_are_an_object_or_a_refusal(body: bytes) -> None:
    try:
        assert isinstance(read_object(body, LIMIT), dict)
    except RefusedError as refused:
        assert refused.problem.isprintable()


def test_length_and_number_are_bounded_before_anything_is_parsed() -> None:
    for body, refusal in (
        (b"[" * (LIMIT + 1), Refusal.TOO_LARGE),
        (b'{"a":[' + b"[]," * MAX_CONTAINERS + b"0]}", Refusal.TOO_DEEP),
        (b"[]", Refusal.NOT_JSON),
        (b'{"a":1e999}', Refusal.NOT_JSON),
        (b'{"a":"\\ud800"}', Refusal.NOT_JSON),
        (b"", Refusal.NOT_JSON),
    ):
        with pytest.raises(RefusedError) as refused:
            read_object(body, LIMIT)
        assert refused.value.refusal is refusal
