# SPDX-License-Identifier: Apache-2.0
"""Reads the messages of workers about chunks of studies into types, and checks the bounds of all numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import orjson

from simyard.guest.reading import Refusal, RefusedError
from simyard.guest.text import make_printable_line
from simyard_adapter.chunks import MAX_ERROR_CHARACTERS, MAX_NAMED_FAILURES, MAX_TASKS, MAX_WATCHED
from simyard_adapter.declarations import Json
from simyard_adapter.wire import ErrorReason

MAX_INDEX = 2**31 - 1
MAX_SECONDS = 1e9
MAX_NAME_CHARACTERS = 63


@dataclass(frozen=True, slots=True)
class FailureCount:
    """The failed tasks with the same reason: their number, and the index and the message of the first one."""

    count: int
    first_index: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class Extremes:
    """The smallest and the largest value of a result in a chunk, with the indexes of their tasks."""

    low: float
    low_index: int
    high: float
    high_index: int


@dataclass(frozen=True, slots=True)
class ChunkSummary:
    """The summary of the rows of a chunk.

    Attributes:
        tasks: number of rows.
        seconds: duration of all tasks together.
        failures: failed tasks by reason.
        failed_indexes: indexes of the first failed tasks.
        extremes: smallest and largest values of the watched results.
    """

    tasks: int
    seconds: float = 0.0
    failures: Mapping[ErrorReason, FailureCount] = field(default_factory=dict)
    failed_indexes: tuple[int, ...] = ()
    extremes: Mapping[str, Extremes] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the summary as JSON for the file store: without messages, so that its size is limited."""
        failures = {reason.value: [item.count, item.first_index, ""] for reason, item in self.failures.items()}
        extremes = {
            name: [item.low, item.low_index, item.high, item.high_index] for name, item in self.extremes.items()
        }
        return orjson.dumps(
            {
                "tasks": self.tasks,
                "seconds": self.seconds,
                "failures": failures,
                "failedIndexes": self.failed_indexes,
                "extremes": extremes,
            }
        )


def read_summary(value: Json) -> ChunkSummary:
    """Return the summary of a chunk.

    Raises:
        RefusedError: a number is missing, has another type, or is out of bounds.
    """
    if not isinstance(value, dict):
        raise RefusedError(Refusal.INVALID, "the summary of a chunk is not an object")
    tasks = _read_integer(value.get("tasks"), 1, MAX_TASKS)
    failures = {}
    for name, item in _read_items(value.get("failures"), len(ErrorReason), 3):
        if name not in tuple(ErrorReason):
            raise RefusedError(Refusal.INVALID, "the summary of a chunk has an unknown reason")
        message = make_printable_line(item[2], MAX_ERROR_CHARACTERS) if isinstance(item[2], str) else ""
        first = _read_integer(item[1], 0, MAX_INDEX)
        failures[ErrorReason(name)] = FailureCount(_read_integer(item[0], 1, MAX_TASKS), first, message)
    if sum(item.count for item in failures.values()) > tasks:
        raise RefusedError(Refusal.INVALID, "the summary of a chunk has more failed tasks than tasks")
    indexes = value.get("failedIndexes") or []
    if not isinstance(indexes, list) or len(indexes) > MAX_NAMED_FAILURES:
        raise RefusedError(Refusal.INVALID, "the summary of a chunk has no valid list of failed tasks")
    extremes = {
        make_printable_line(name, MAX_NAME_CHARACTERS): Extremes(
            _read_number(item[0]),
            _read_integer(item[1], 0, MAX_INDEX),
            _read_number(item[2]),
            _read_integer(item[3], 0, MAX_INDEX),
        )
        for name, item in _read_items(value.get("extremes"), MAX_WATCHED, 4)
    }
    seconds = _read_number(value.get("seconds"))
    if not 0 <= seconds <= MAX_SECONDS:
        raise RefusedError(Refusal.INVALID, "the summary of a chunk has no valid duration")
    failed = tuple(_read_integer(index, 0, MAX_INDEX) for index in indexes)
    return ChunkSummary(tasks, seconds, failures, failed, extremes)


def _read_items(value: Json, most: int, length: int) -> list[tuple[str, list[Json]]]:
    """Return the items of an object with at most ``most`` members, whose values are lists of ``length`` items."""
    items = [] if value is None else list(value.items()) if isinstance(value, dict) else None
    if items is None or len(items) > most or any(not isinstance(it, list) or len(it) != length for _, it in items):
        raise RefusedError(Refusal.INVALID, "the summary of a chunk has another form")
    return items


def _read_integer(value: Json, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise RefusedError(Refusal.INVALID, "the summary of a chunk has a number that is out of bounds")
    return value


def _read_number(value: Json) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise RefusedError(Refusal.INVALID, "the summary of a chunk has a value that is no number")
    return float(value)
