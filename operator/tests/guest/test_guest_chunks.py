# SPDX-License-Identifier: Apache-2.0
"""Messages of workers about chunks of studies are checked and bounded."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from simyard.guest.chunks import ChunkSummary, Extremes, FailureCount, read_summary
from simyard.guest.messages import ChunkEnded, PartWanted, read_event
from simyard.guest.reading import RefusedError
from simyard_adapter.chunks import Row, Summary
from simyard_adapter.wire import ErrorReason, Event, WireError

SUMMARY: dict[str, Any] = {"tasks": 3, "seconds": 1.5}
QUESTION: dict[str, Any] = {"invocation": "s.1.1", "address": f"sha256:{'0' * 64}", "bytes": 10, "summary": SUMMARY}


def test_the_summary_of_a_worker_is_read_as_it_was_made() -> None:
    made = Summary(["y"])
    made.add(Row(7, 1, 0.5, {"y": 3}))
    made.add(Row(8, 2, 0.5, error=WireError(ErrorReason.ACTION_FAILED, "no\x1b[2J mesh")))
    made.add(Row(9, 1, 0.5, {"y": -1.5}))
    read = read_summary(orjson.loads(orjson.dumps(made.to_json())))
    failures = {ErrorReason.ACTION_FAILED: FailureCount(1, 8, "no mesh")}
    assert read == ChunkSummary(3, 1.5, failures, (8,), {"y": Extremes(-1.5, 9, 3.0, 7)})
    stored = read_summary(orjson.loads(read.to_bytes()))
    assert (stored.tasks, stored.failed_indexes, stored.extremes) == (read.tasks, read.failed_indexes, read.extremes)
    assert stored.failures == {ErrorReason.ACTION_FAILED: FailureCount(1, 8)}


def test_the_end_of_a_chunk_and_the_question_about_its_rows_have_types() -> None:
    body = orjson.dumps({"worker": "w", "invocation": "s.1.1", "chunk": SUMMARY, "stored": True})
    assert read_event(Event.RESULT, body) == ChunkEnded("s.1.1", True, ChunkSummary(3, 1.5))
    body = orjson.dumps({"worker": "w", "request": "0" * 32, "part": QUESTION})
    expected = PartWanted("0" * 32, "s.1.1", QUESTION["address"], 10, ChunkSummary(3, 1.5))
    assert read_event(Event.FILES, body) == expected


@pytest.mark.parametrize(
    "change",
    [
        {"tasks": 0},
        {"tasks": 1001},
        {"tasks": True},
        {"seconds": -1},
        {"seconds": "1"},
        {"failures": {"ActionFailed": [4, 0, ""]}},
        {"failures": {"Unheard": [1, 0, ""]}},
        {"failures": {"ActionFailed": [1, 0]}},
        {"failures": [1]},
        {"failedIndexes": list(range(11))},
        {"failedIndexes": [-1]},
        {"extremes": {"y": [1, 2, 3, -1]}},
        {"extremes": {"y": ["low", 2, 3, 1]}},
        {"extremes": {str(number): [1, 2, 3, 1] for number in range(9)}},
    ],
)
def test_an_impossible_summary_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(RefusedError):
        read_summary({**SUMMARY, **change})


@pytest.mark.parametrize(
    "change", [{"address": "x"}, {"address": f"sha256-64m:{'0' * 64}"}, {"bytes": 0}, {"bytes": 2**27}, {"summary": 1}]
)
def test_an_impossible_question_is_refused(change: dict[str, Any]) -> None:
    body = orjson.dumps({"worker": "w", "request": "0" * 32, "part": {**QUESTION, **change}})
    with pytest.raises(RefusedError):
        read_event(Event.FILES, body)
