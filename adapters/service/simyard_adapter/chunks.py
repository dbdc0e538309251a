# SPDX-License-Identifier: Apache-2.0
"""Chunks of studies: tasks with consecutive indexes that a worker runs one after the other; no I/O.

A *task* is one call of an action with one point of the study's design. Its end is a *row*. The rows of a chunk become
one CSV table. The columns of parameters and results have prefixes, because a result may have the name of a parameter or
of another column; the names of values contain no dots.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Iterator, Mapping, Optional, Sequence

from simyard_adapter.declarations import Action, ActionMode, Interface, Json
from simyard_adapter.invocations import ActionRequest, Outcome, RefusedError
from simyard_adapter.limits import KIB
from simyard_adapter.wire import ErrorReason, WireError

MAX_TASKS = 1000
MAX_RETRIES = 10
MAX_ROW_BYTES = 32 * KIB
"""Limit of the result of one task as JSON; the table of 1,000 tasks then fits into one upload."""
MAX_WATCHED = 8
MAX_NAMED_FAILURES = 10
MAX_ERROR_CHARACTERS = 400
PARAMETER, RESULT = "parameters.", "result."
"""The prefixes of columns."""

_dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_RETRIED = frozenset(
    {
        ErrorReason.ACTION_FAILED,
        ErrorReason.CONNECTOR_CRASHED,
        ErrorReason.TIMED_OUT,
        ErrorReason.INVALID_RESULT,
        ErrorReason.FILE_TRANSFER_FAILED,
    }
)


@dataclass(frozen=True)
class ChunkRequest:
    """A request to run the tasks of a chunk.

    Attributes:
        action: The action that each task calls.
        fixed: The parameters that all tasks share.
        names: The names of the parameters that differ.
        points: The values of these parameters, for each task.
        first: The index of the first task.
        timeout_seconds: The timeout of each attempt; None for the declared timeout.
        retries: The number of further attempts after a failed one.
        watched: The results whose smallest and largest values are reported.
    """

    action: Action
    fixed: Mapping[str, Json]
    names: tuple[str, ...]
    points: tuple[tuple[Json, ...], ...]
    first: int
    timeout_seconds: Optional[float] = None
    retries: int = 0
    watched: tuple[str, ...] = ()

    @classmethod
    def read(cls, body: Mapping[str, Any], interface: Interface) -> "ChunkRequest":
        """Read the body of a request.

        Raises:
            RefusedError: The action is unknown, or the body has another form.
        """
        action = ActionRequest.find_action(body, interface)
        try:
            names = tuple(str(name) for name in body["names"])
            points = tuple(tuple(point) for point in body["points"])
            if not 1 <= len(points) <= MAX_TASKS or any(len(point) != len(names) for point in points):
                raise ValueError(f"a chunk has 1 to {MAX_TASKS} points with a value for each name")
            return cls(
                action,
                dict(body.get("parameters") or {}),
                names,
                points,
                int(body["first"]),
                body.get("timeoutSeconds"),
                min(int(body.get("retries") or 0), MAX_RETRIES),
                tuple(str(name) for name in body.get("watched") or ())[:MAX_WATCHED],
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise RefusedError(ErrorReason.INVALID_REQUEST, f"the chunk cannot be read: {error!r}") from None

    def make_task(self, number: int) -> ActionRequest:
        """Return the call of the task with this number in the chunk, from 0.

        Its mode is Sync, because no task has a result or a log of its own at the control plane.

        Raises:
            RefusedError: A parameter does not fit.
        """
        values = {**self.fixed, **dict(zip(self.names, self.points[number]))}  # noqa: B905 - Python 3.9
        return ActionRequest.check(self.action, values, ActionMode.SYNC, self.timeout_seconds)

    def may_retry(self, attempts: int, error: WireError) -> bool:
        """Return True if a task that failed with this error after so many attempts is tried again."""
        return attempts <= self.retries and error.reason in _RETRIED


@dataclass(frozen=True)
class Row:
    """The end of a task: its result or its error. ``seconds`` is the duration of the last attempt."""

    index: int
    attempts: int = 0
    seconds: float = 0.0
    result: Mapping[str, Json] = field(default_factory=dict)
    error: Optional[WireError] = None

    @classmethod
    def from_outcome(cls, index: int, attempts: int, outcome: Outcome) -> "Row":
        """Return the row of a task that ended with an outcome."""
        return cls(index, attempts, round(outcome.seconds, 6), outcome.result or {}, outcome.error)

    def to_json(self) -> list[Any]:
        """Return the row as the worker keeps it on its disk."""
        error = None if self.error is None else self.error.to_json()
        return [self.index, self.attempts, self.seconds, dict(self.result), error]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> "Row":
        """Read a row that the worker has kept."""
        index, attempts, seconds, result, error = data
        return cls(index, attempts, seconds, result, None if error is None else WireError.from_json(error))


class Summary:
    """The numbers about a chunk that the control plane needs, collected row by row."""

    def __init__(self, watched: Sequence[str]) -> None:
        self._watched = watched
        self._tasks = 0
        self._seconds = 0.0
        self._failures: dict[str, list[Any]] = {}
        self._failed_indexes: list[int] = []
        self._extremes: dict[str, list[float]] = {}

    def add(self, row: Row) -> None:
        """Count a row."""
        self._tasks += 1
        self._seconds += row.seconds
        if row.error is not None:
            failure = self._failures.setdefault(row.error.reason.value, [0, row.index, _format_error(row.error)])
            failure[0] += 1
            if len(self._failed_indexes) < MAX_NAMED_FAILURES:
                self._failed_indexes.append(row.index)
            return
        for name in self._watched:
            value = row.result.get(name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                continue
            found = self._extremes.setdefault(name, [value, row.index, value, row.index])
            if value < found[0]:
                found[:2] = [value, row.index]
            if value > found[2]:
                found[2:] = [value, row.index]

    def to_json(self) -> dict[str, Any]:
        """Return the summary as it is sent.

        ``failures`` has, for each reason, the number of tasks, and the index and the message of the first. ``extremes``
        has, for each watched result, the smallest value, its index, the largest value, and its index.
        """
        data: dict[str, Any] = {"tasks": self._tasks, "seconds": round(self._seconds, 6)}
        if self._failures:
            data["failures"] = self._failures
            data["failedIndexes"] = self._failed_indexes
        if self._extremes:
            data["extremes"] = self._extremes
        return data


def list_columns(names: Sequence[str], results: Sequence[str]) -> list[str]:
    """Return the header of a table of rows."""
    return [
        "index",
        *(PARAMETER + name for name in names),
        *(RESULT + name for name in results),
        *("worker", "seconds", "attempts", "reason", "error"),
    ]


def make_cells(row: Row, point: Sequence[Json], results: Sequence[str], worker: str) -> Iterator[str]:
    """Yield the cells of a row, in the order of :func:`list_columns`."""
    yield str(row.index)
    yield from map(format_cell, point)
    for name in results:
        yield format_cell(row.result.get(name))
    yield worker if row.attempts else ""
    yield str(row.seconds)
    yield str(row.attempts)
    yield "" if row.error is None else row.error.reason.value
    yield "" if row.error is None else _format_error(row.error)


def format_cell(value: Json) -> str:
    """Return a value as the text of a cell: text as it is, nothing for None, and JSON for all other types."""
    if isinstance(value, str):
        return value
    return "" if value is None else _dump(value)


def _format_error(error: WireError) -> str:
    text = f"{error.field}: {error.message}" if error.field else error.message
    return " ".join(text.split())[:MAX_ERROR_CHARACTERS]
