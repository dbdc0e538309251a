# SPDX-License-Identifier: Apache-2.0
"""Records the writes of one request, so that its response can wait until every replica shows the writes. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from simyard_adapter.declarations import Json


@dataclass(frozen=True, slots=True)
class Written:
    """A write of an object; ``version`` is its resourceVersion after the write, 0 if it was deleted."""

    resource: str
    namespace: str
    name: str
    uid: str
    version: int

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name


@dataclass(frozen=True, slots=True)
class ReportedValues:
    """The values of attributes that a worker reported after a request to set them, and the time of the report."""

    uid: str
    values: dict[str, Json]
    time: float


@dataclass(slots=True)
class Record:
    """The writes of one request. If the request wrote an object twice, the record has only the last write."""

    objects: dict[tuple[str, str], Written] = field(default_factory=dict)
    reports: list[ReportedValues] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.objects or self.reports)


_record: ContextVar[Record | None] = ContextVar("written", default=None)


@contextmanager
def record_writes() -> Iterator[Record]:
    """Yield a record that collects the writes of the block and of the tasks that the block starts."""
    record = Record()
    token = _record.set(record)
    try:
        yield record
    finally:
        _record.reset(token)


def record_write(what: Written | ReportedValues) -> None:
    """Add a write to the record of the present request, if there is one."""
    record = _record.get()
    if record is None:
        return
    if isinstance(what, ReportedValues):
        record.reports.append(what)
    else:
        record.objects[what.resource, what.uid] = what
