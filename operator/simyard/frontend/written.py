"""What a request has written, so that its answer can wait until every replica shows it. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from simyard_adapter.declarations import Json


@dataclass(frozen=True, slots=True)
class Written:
    """An object that was written; ``version`` is its resourceVersion then, 0 if it was deleted."""

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
class Told:
    """Values of attributes that a worker has told after it was asked to set them, and when."""

    uid: str
    values: dict[str, Json]
    time: float


@dataclass(slots=True)
class Record:
    """What one request has written; of an object that was written twice, what it is last."""

    objects: dict[tuple[str, str], Written] = field(default_factory=dict)
    told: list[Told] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.objects or self.told)


_record: ContextVar[Record | None] = ContextVar("written", default=None)


@contextmanager
def recording() -> Iterator[Record]:
    """Collect what is written in the block, by tasks that it starts as well."""
    record = Record()
    token = _record.set(record)
    try:
        yield record
    finally:
        _record.reset(token)


def note(what: Written | Told) -> None:
    """Add something to the record of the request that is carried out, if there is one."""
    record = _record.get()
    if record is None:
        return
    if isinstance(what, Told):
        record.told.append(what)
    else:
        record.objects[what.resource, what.uid] = what
