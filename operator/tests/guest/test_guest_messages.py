# SPDX-License-Identifier: Apache-2.0
"""Messages of workers are typed, limited and checked against the declared interface."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from simyard.guest.messages import (
    MAX_EVENT_BYTES,
    LogStored,
    Progressed,
    Registered,
    Resulted,
    read_event,
    read_reply,
)
from simyard.guest.reading import Refusal, RefusedError
from simyard.guest.values import ClaimedAttributes, ClaimedResult, InvalidResultError, merge_attributes
from simyard_adapter.declarations import Interface
from simyard_adapter.limits import MAX_ATTRIBUTES_BYTES, MAX_LOG_PARTS, MAX_RESULT_BYTES, MAX_VALUE_BYTES
from simyard_adapter.wire import ErrorReason, Event, WireError

INTERFACE = Interface.from_json(
    {
        "attributes": [
            {"name": "step", "type": "integer", "minimum": 0},
            {"name": "state", "type": "string"},
            {"name": "table", "type": "array"},
        ],
        "actions": [
            {"name": "solve", "result": [{"name": "stress", "type": "number"}, {"name": "log", "type": "string"}]}
        ],
    }
)
SOLVE = INTERFACE.find_action("solve")


def checked(values: dict[str, Any]) -> tuple[dict[str, Any], list[Refusal]]:
    refused: list[Refusal] = []
    found = ClaimedAttributes(values).check(INTERFACE.attributes, lambda error: refused.append(error.refusal))
    return found, refused


def test_attributes_are_those_that_are_declared_and_fit() -> None:
    assert checked({"step": 3.0, "state": "a\x1b[2Jb\u202e", "undeclared": 1}) == ({"step": 3, "state": "ab"}, [])
    assert checked({"step": -1, "state": 5}) == ({}, [Refusal.INVALID, Refusal.INVALID])
    assert checked({"state": "x" * MAX_VALUE_BYTES}) == ({}, [Refusal.TOO_LARGE])


def test_all_attributes_together_are_bounded_and_the_last_good_values_stay() -> None:
    part = "x" * (MAX_ATTRIBUTES_BYTES // 3)
    refused: list[RefusedError] = []
    known = merge_attributes({"a": part, "b": "old"}, {"b": part, "c": 1}, refused.append)
    assert (known, refused) == ({"a": part, "b": part, "c": 1}, [])
    after = merge_attributes(known, {"b": part * 2, "c": 2}, refused.append)
    assert after == {"a": part, "b": part, "c": 2}
    assert [error.refusal for error in refused] == [Refusal.TOO_LARGE]


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ("not an object", ErrorReason.INVALID_RESULT),
        ([], ErrorReason.INVALID_RESULT),
        ({"stress": "high"}, ErrorReason.INVALID_RESULT),
        ({"log": "x" * MAX_RESULT_BYTES}, ErrorReason.RESULT_TOO_LARGE),
    ],
)
def test_a_result_that_is_not_declared_so_is_an_error(result: Any, reason: ErrorReason) -> None:
    with pytest.raises(InvalidResultError) as invalid:
        ClaimedResult(result).check(SOLVE)
    assert invalid.value.error.reason is reason


def test_of_a_result_the_declared_fields_are_kept() -> None:
    assert ClaimedResult({"stress": 2.5, "log": "\x1b[31ma\r\n", "other": 1}).check(SOLVE) == {
        "stress": 2.5,
        "log": "a\n",
    }
    assert ClaimedResult(None).check(SOLVE) == {}
    assert ClaimedResult({"stress": 1}).check(None) == {}


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        (b'"result":' + b"[" * 300 + b"]" * 300 + b"}", ErrorReason.INVALID_RESULT),
        (b'"result":{"log":"' + b"x" * (4 * 2**20) + b'"}}', ErrorReason.RESULT_TOO_LARGE),
        (b"garbage", ErrorReason.INVALID_RESULT),
    ],
    ids=["deep", "large", "garbage"],
)
def test_a_result_that_cannot_be_read_is_an_error_of_its_action(rest: bytes, reason: ErrorReason) -> None:
    read = read_event(Event.RESULT, b'{"worker":"w","invocation":"0a-1.2","startedAt":1,' + rest)
    assert isinstance(read, Resulted)
    assert isinstance(read.outcome, WireError)
    assert (read.invocation, read.outcome.reason) == ("0a-1.2", reason)


@pytest.mark.parametrize("kind", Event)
def test_every_kind_has_its_largest_message(kind: Event) -> None:
    body = orjson.dumps({"worker": "x" * MAX_EVENT_BYTES[kind], "invocation": "id"})
    with pytest.raises(RefusedError) as refused:
        read_event(kind, body)
    assert refused.value.refusal is Refusal.TOO_LARGE


def test_the_report_of_a_log_has_a_bounded_number_of_valid_parts() -> None:
    part = {"file": f"sha256:{'0' * 64}", "bytes": 3}
    read = read_event(Event.LOG, orjson.dumps({"invocation": "i", "parts": [part] * MAX_LOG_PARTS}))
    assert isinstance(read, LogStored)
    assert [item.to_json() for item in read.parts] == [part] * MAX_LOG_PARTS
    for parts in ([], [part] * (MAX_LOG_PARTS + 1), [{"file": "sha256:0"}], ["x"], "x", None):
        with pytest.raises(RefusedError):
            read_event(Event.LOG, orjson.dumps({"invocation": "i", "parts": parts}))


def test_numbers_and_texts_that_cannot_be_count_as_absent() -> None:
    for value in (-1, "x", True, 1e300, None, []):
        read = read_event(Event.RESULT, orjson.dumps({"invocation": "i", "startedAt": value, "seconds": value}))
        assert isinstance(read, Resulted)
        assert (read.started_at, read.seconds) == (None, None)
    progress = read_event(Event.PROGRESS, b'{"invocation":"i","percent":1e300,"message":"a\\u001b[2Jb\\nc"}')
    assert progress == Progressed("i", 100, "ab c")
    with pytest.raises(RefusedError):
        read_event(Event.PROGRESS, b'{"invocation":["i"]}')
    registered = read_event(Event.REGISTER, b'{"adapterVersion":[[1]],"takes":"yes","attributes":"all"}')
    assert registered == Registered("", False, ClaimedAttributes({}))


def test_a_reply_is_typed_and_its_text_is_clean() -> None:
    reply = read_reply(b'{"worker":"../../x\\r\\ny","seconds":1e12,"log":"\\u001b]0;a\\u0007b","result":[],"values":3}')
    assert (reply.worker, reply.seconds, reply.log) == ("../../x y", None, "b")
    error = read_reply(b'{"error":{"reason":["x"],"message":{"a":1},"field":"p\\nq"}}').error
    assert error == WireError(ErrorReason.ACTION_FAILED, "", "p q")
