"""What the apiserver keeps of each object: little, since it keeps it for every worker. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from simyard.api.base import Json, Metadata
from simyard.api.names import SIMULATION_SERVICES, WORKER_POOLS, WORKERS, ConditionType
from simyard.apiserver.status import Subject
from simyard_adapter import wire
from simyard_adapter.declarations import Interface
from simyard_adapter.declarations import Json as Value


@dataclass(frozen=True, slots=True)
class State:
    """The condition that says whether the object takes actions."""

    good: bool
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}" if self.message else self.reason


@dataclass(frozen=True, slots=True)
class CachedWorker:
    """A Worker. ``pool`` is empty when it stands alone; ``user`` is its user at the broker.

    ``attributes`` are those of its status, observed at ``attributes_time`` (seconds since the epoch).
    """

    metadata: Metadata
    service: str
    pool: str
    user: str
    state: State
    attributes: Mapping[str, Value]
    attributes_time: float

    @property
    def subject(self) -> Subject:
        """For messages."""
        return Subject(WORKERS, self.metadata.name)

    @property
    def queue(self) -> str:
        """Where it takes requests."""
        return wire.worker_queue(self.user, self.metadata.uid)

    @property
    def service_key(self) -> str:
        """Namespace and name of its service."""
        return f"{self.metadata.namespace}/{self.service}"

    @classmethod
    def parse(cls, raw: Json) -> CachedWorker:
        """From a Worker as the API server gives it."""
        metadata = Metadata.model_validate(raw["metadata"])
        status = raw.get("status") or {}
        owner = metadata.controller
        pooled = owner is not None and owner.kind == WORKER_POOLS.kind
        observed = status.get("attributesTime")
        return cls(
            metadata=metadata,
            service=raw["spec"]["serviceRef"]["name"],
            pool=owner.name if owner is not None and pooled else "",
            user=wire.pool_user(owner.uid) if owner is not None and pooled else wire.standalone_user(metadata.uid),
            state=_state(status, ConditionType.READY),
            attributes=status.get("attributes") or {},
            attributes_time=datetime.fromisoformat(observed).timestamp() if observed else 0.0,
        )


@dataclass(frozen=True, slots=True)
class CachedPool:
    """A WorkerPool."""

    metadata: Metadata
    service: str
    state: State

    @property
    def subject(self) -> Subject:
        """For messages."""
        return Subject(WORKER_POOLS, self.metadata.name)

    @property
    def user(self) -> str:
        """The user of its workers at the broker."""
        return wire.pool_user(self.metadata.uid)

    @property
    def service_key(self) -> str:
        """Namespace and name of its service."""
        return f"{self.metadata.namespace}/{self.service}"

    @classmethod
    def parse(cls, raw: Json) -> CachedPool:
        """From a WorkerPool as the API server gives it."""
        return cls(
            metadata=Metadata.model_validate(raw["metadata"]),
            service=raw["spec"]["serviceRef"]["name"],
            state=_state(raw.get("status") or {}, ConditionType.AVAILABLE),
        )


@dataclass(frozen=True, slots=True)
class CachedService:
    """A SimulationService."""

    metadata: Metadata
    interface: Interface

    @property
    def subject(self) -> Subject:
        """For messages."""
        return Subject(SIMULATION_SERVICES, self.metadata.name)

    @property
    def key(self) -> str:
        """Namespace and name."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @classmethod
    def parse(cls, raw: Json) -> CachedService:
        """From a SimulationService as the API server gives it."""
        return cls(
            metadata=Metadata.model_validate(raw["metadata"]),
            interface=Interface.from_json(raw["spec"]["interface"]),
        )


Target = CachedWorker | CachedPool | CachedService


def timestamp(time: datetime) -> str:
    """A ``metav1.Time``: UTC, whole seconds."""
    return time.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _state(status: Json, kind: ConditionType) -> State:
    for condition in status.get("conditions") or ():
        if condition["type"] == kind:
            return State(condition["status"] == "True", condition["reason"], condition.get("message") or "")
    return State(False, "Pending", "the operator has not looked at it yet")
