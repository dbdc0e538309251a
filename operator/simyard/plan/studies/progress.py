# SPDX-License-Identifier: Apache-2.0
"""Sums over the finished chunks of a study, and the status fields that show them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from simyard.api.study import MAX_FAILED_INDEXES, StopRule, StudyStatus, TaskFailures
from simyard.guest.chunks import ChunkSummary, FailureCount
from simyard.plan.studies.layout import ChunkSet
from simyard.plan.times import add_seconds
from simyard_adapter.wire import ErrorReason

MAX_REASONS = 10
MAX_MESSAGE_CHARACTERS = 80
"""Limit of the message of each reason in the status; the rows have longer ones."""
RATE_SECONDS = 60.0
"""Time over which the rate is measured."""
MARK_SECONDS = 0.5
"""Least time between two marks, from which the rate is computed."""


@dataclass(slots=True)
class Progress:
    """Sums over the chunks of a study whose rows are in the store. The store is the truth; this is its summary.

    Attributes:
        finished: the chunks.
        succeeded: tasks with a result.
        failed: tasks with an error.
        seconds: duration of all tasks together.
        failures: failed tasks by reason.
        failed_indexes: indexes of failed tasks, at most ``MAX_FAILED_INDEXES``.
        stopped_by: index of a task that fulfilled a stop rule.
        size: bytes of all rows.
        cost_millis: cost of all tasks, in thousandths of the currency.
    """

    finished: ChunkSet = field(default_factory=ChunkSet)
    succeeded: int = 0
    failed: int = 0
    seconds: float = 0.0
    failures: dict[str, FailureCount] = field(default_factory=dict)
    failed_indexes: list[int] = field(default_factory=list)
    stopped_by: int | None = None
    size: int = 0
    cost_millis: float = 0.0
    _marks: deque[tuple[datetime, int]] = field(default_factory=deque)

    @classmethod
    def read(cls, status: StudyStatus) -> Progress:
        """Return the sums in a status."""
        done = status.succeeded + status.failed
        failures = {item.reason: FailureCount(item.count, item.first_index, item.message) for item in status.failures}
        return cls(
            ChunkSet.decode(status.finished_chunks),
            status.succeeded,
            status.failed,
            (status.mean_task_milliseconds or 0) / 1000 * done,
            failures,
            list(status.failed_indexes),
            status.stopped_by,
            status.result_bytes,
            status.cost_millis,
        )

    @property
    def tasks(self) -> int:
        """Number of tasks that have ended."""
        return self.succeeded + self.failed

    @property
    def mean_seconds(self) -> float:
        """Mean duration of a task."""
        return self.seconds / self.tasks if self.tasks else 0.0

    @property
    def cancelled(self) -> int:
        """Tasks that were cancelled."""
        found = self.failures.get(ErrorReason.CANCELLED.value)
        return 0 if found is None else found.count

    @property
    def counted_failures(self) -> int:
        """Failed tasks that count for ``maxFailedTasks``: not those that were cancelled."""
        return self.failed - self.cancelled

    def add(self, chunk: int, summary: ChunkSummary, size: int, rules: list[StopRule], now: datetime) -> bool:
        """Add a finished chunk; return False if it was added before."""
        if chunk in self.finished:
            return False
        self.finished.add(chunk)
        failed = sum(item.count for item in summary.failures.values())
        self.succeeded += summary.tasks - failed
        self.failed += failed
        self.seconds += summary.seconds
        self.size += size
        for reason, item in summary.failures.items():
            known = self.failures.get(reason.value)
            if known is not None:
                item = FailureCount(known.count + item.count, known.first_index, known.message or item.message)
            self.failures[reason.value] = item
        self.failed_indexes += summary.failed_indexes[: MAX_FAILED_INDEXES - len(self.failed_indexes)]
        if self.stopped_by is None:
            self.stopped_by = _find_stop(summary, rules)
        self._mark(now)
        return True

    def _mark(self, now: datetime) -> None:
        """Note the number of tasks; of the marks that are too old, the last one remains, as there may be no other."""
        marks = self._marks
        if not marks or (now - marks[-1][0]).total_seconds() >= MARK_SECONDS:
            marks.append((now, self.tasks))
        while len(marks) > 1 and (now - marks[1][0]).total_seconds() >= RATE_SECONDS:
            marks.popleft()

    def start_clock(self, now: datetime) -> None:
        """Begin to measure the rate: nothing is known about the time before."""
        self._marks = deque([(now, self.tasks)])

    def compute_rate(self, now: datetime) -> float:
        """Return the tasks per second of about the last minute."""
        if not self._marks:
            return 0.0
        since, before = self._marks[0]
        return (self.tasks - before) / max(0.001, (now - since).total_seconds())

    def to_fields(self, tasks: int, running: int, now: datetime) -> dict[str, Any]:
        """Return the fields of the status."""
        rate = self.compute_rate(now)
        left = tasks - self.tasks
        failures = sorted(self.failures.items(), key=lambda item: -item[1].count)[:MAX_REASONS]
        return {
            "tasks": tasks,
            "succeeded": self.succeeded,
            "failed": self.failed,
            "running": running,
            "finished_chunks": self.finished.encode(),
            "tasks_per_second": f"{rate:.4g}" if rate else "",
            "estimated_completion_time": add_seconds(now, round(left / rate)).replace(microsecond=0)
            if rate and left
            else None,
            "mean_task_milliseconds": round(self.mean_seconds * 1000) if self.tasks else None,
            "failures": [
                TaskFailures(reason=reason, count=item.count, first_index=item.first_index, message=_cut(item.message))
                for reason, item in sorted(failures)
            ],
            "failed_indexes": sorted(self.failed_indexes),
            "stopped_by": self.stopped_by,
            "result_bytes": self.size,
            "cost_millis": int(self.cost_millis),
        }


def _cut(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE_CHARACTERS else message[: MAX_MESSAGE_CHARACTERS - 1] + "…"


def _find_stop(summary: ChunkSummary, rules: list[StopRule]) -> int | None:
    for rule in rules:
        extremes = summary.extremes.get(rule.result)
        if extremes is None:
            continue
        if rule.at_most is not None and extremes.low <= float(rule.at_most):
            return extremes.low_index
        if rule.at_least is not None and extremes.high >= float(rule.at_least):
            return extremes.high_index
    return None
