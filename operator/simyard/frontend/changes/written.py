# SPDX-License-Identifier: Apache-2.0
"""Record of the writes of one request, so that its answer can wait until every replica shows the writes. No I/O."""

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
    """Values of attributes that a worker has reported after a request to set them, and the time of the report."""

    uid: str
    values: dict[str, Json]
    time: float


@dataclass(slots=True)
class Record:
    """The writes of one request; if an object was written twice, only the last write."""

    objects: dict[tuple[str, str], Written] = field(default_factory=dict)
    reports: list[ReportedValues] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.objects or self.reports)


_record: ContextVar[Record | None] = ContextVar("written", default=None)


@contextmanager
def record_writes() -> Iterator[Record]:
    """Collect the writes of the block and of the tasks that it starts."""
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
