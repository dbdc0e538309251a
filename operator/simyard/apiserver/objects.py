"""What the apiserver keeps of each object: little, since it keeps it for every worker. Pure."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from simyard.api.base import Json, Metadata
from simyard.api.names import (
    ANNOTATION_OCCI_ATTRIBUTES,
    ANNOTATION_OCCI_DONE,
    ANNOTATION_OCCI_ID,
    ANNOTATION_OCCI_KEY,
    ANNOTATION_OCCI_MIXINS,
    SIMULATION_SERVICES,
    WORKER_POOLS,
    WORKERS,
    ConditionType,
)
from simyard.api.simulation_service import Resources
from simyard.apiserver.status import Subject
from simyard_adapter import wire
from simyard_adapter.declarations import Interface
from simyard_adapter.declarations import Json as Value
from simyard_sites.base import Address


@dataclass(frozen=True, slots=True)
class State:
    """The condition that says whether the object takes actions."""

    good: bool
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}" if self.message else self.reason


@dataclass(frozen=True, slots=True)
class OwnDetails:
    """What was said of one Worker alone; those of a pool have nothing of it."""

    title: str = ""
    summary: str = ""
    hostname: str = ""
    resources: Resources | None = None
    ssh_public_keys: tuple[str, ...] = ()
    user_data: str = ""

    @classmethod
    def parse(cls, spec: Json) -> OwnDetails:
        """From ``spec`` of a Worker."""
        if _OWN.isdisjoint(spec):
            return _NOTHING
        resources = spec.get("resources")
        return cls(
            title=spec.get("title") or "",
            summary=spec.get("summary") or "",
            hostname=spec.get("hostname") or "",
            resources=Resources.model_validate(resources) if resources is not None else None,
            ssh_public_keys=tuple(spec.get("sshPublicKeys") or ()),
            user_data=sys.intern(spec.get("userData") or ""),  # many workers have the same
        )


_OWN = frozenset({"title", "summary", "hostname", "resources", "sshPublicKeys", "userData"})
_NOTHING = OwnDetails()


@dataclass(frozen=True, slots=True)
class CachedWorker:
    """A Worker. ``pool`` is empty when it stands alone; ``user`` is its user at the broker.

    ``attributes`` are those of its status, observed at ``attributes_time`` (seconds since the epoch). ``restarts`` are
    those that were asked for, ``restarted`` those that its site has accepted.
    """

    metadata: Metadata
    service: str
    pool: str
    user: str
    state: State
    attributes: Mapping[str, Value]
    attributes_time: float
    site: str
    power_state: str
    restarts: int
    restarted: int
    machine_state: str
    addresses: tuple[Address, ...]
    own: OwnDetails

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
        metadata = _lean(raw["metadata"])
        spec, status = raw["spec"], raw.get("status") or {}
        owners = raw["metadata"].get("ownerReferences") or ()
        owner = next((item for item in owners if item.get("controller") and item["kind"] == WORKER_POOLS.kind), None)
        observed = status.get("attributesTime")
        return cls(
            metadata=metadata,
            service=sys.intern(spec["serviceRef"]["name"]),
            pool=sys.intern(owner["name"]) if owner is not None else "",
            user=sys.intern(wire.pool_user(owner["uid"]) if owner is not None else wire.standalone_user(metadata.uid)),
            state=_state(status, ConditionType.READY),
            attributes=status.get("attributes") or {},
            attributes_time=datetime.fromisoformat(observed).timestamp() if observed else 0.0,
            site=sys.intern(spec["site"]),
            power_state=sys.intern(spec.get("powerState") or "Running"),
            restarts=spec.get("restarts") or 0,
            restarted=status.get("restarts") or 0,
            machine_state=sys.intern(status.get("machineState") or ""),
            addresses=tuple(map(_address, status.get("addresses") or ())),
            own=OwnDetails.parse(spec),
        )


@dataclass(frozen=True, slots=True)
class CachedPool:
    """A WorkerPool. ``ready`` and ``observed`` are of its status: the workers that take actions, and the generation."""

    metadata: Metadata
    service: str
    state: State
    replicas: int
    suspended: bool
    ready: int
    observed: int

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
        status = raw.get("status") or {}
        return cls(
            metadata=Metadata.model_validate(raw["metadata"]),
            service=raw["spec"]["serviceRef"]["name"],
            state=_state(status, ConditionType.AVAILABLE),
            replicas=raw["spec"].get("replicas", 1),
            suspended=bool(raw["spec"].get("suspend")),
            ready=status.get("readyReplicas") or 0,
            observed=status.get("observedGeneration") or 0,
        )


@dataclass(frozen=True, slots=True)
class CachedService:
    """A SimulationService. ``seats`` are those of its licence, ``taken`` how many of them are; None: it has none."""

    metadata: Metadata
    interface: Interface
    display_name: str
    description: str
    resources: Resources
    state: State
    ready: int
    seats: int | None
    taken: int
    url: str

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
        spec, status = raw["spec"], raw.get("status") or {}
        licence, endpoints = status.get("licence") or {}, status.get("endpoints") or ()
        return cls(
            metadata=Metadata.model_validate(raw["metadata"]),
            interface=Interface.from_json(spec["interface"]),
            display_name=spec.get("displayName") or "",
            description=spec.get("description") or "",
            resources=Resources.model_validate(spec.get("resources") or {}),
            state=_state(status, ConditionType.AVAILABLE),
            ready=status.get("readyWorkers") or 0,
            seats=licence.get("seats"),
            taken=(licence.get("taken") or 0) + (licence.get("waiting") or 0),
            url=next(iter(endpoints), ""),
        )


_METADATA = ("name", "uid", "generation", "resourceVersion", "creationTimestamp", "deletionTimestamp")
_ANNOTATIONS = (
    ANNOTATION_OCCI_ID,
    ANNOTATION_OCCI_KEY,
    ANNOTATION_OCCI_DONE,
    ANNOTATION_OCCI_ATTRIBUTES,
    ANNOTATION_OCCI_MIXINS,
)

Target = CachedWorker | CachedPool | CachedService


def timestamp(time: datetime) -> str:
    """A ``metav1.Time``: UTC, whole seconds."""
    return time.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _address(raw: Json) -> Address:
    return Address(raw["address"], sys.intern(raw.get("interface") or ""), raw.get("mac") or "")


def _lean(metadata: Json) -> Metadata:
    """Of a Worker's metadata what is read here; of its annotations, those of OCCI."""
    annotations = metadata.get("annotations") or {}
    kept = {name: annotations[name] for name in _ANNOTATIONS if name in annotations}
    lean = {name: metadata[name] for name in _METADATA if name in metadata}
    return Metadata.model_validate(
        {**lean, "namespace": sys.intern(metadata.get("namespace", "")), "annotations": kept}
    )


def _state(status: Json, kind: ConditionType) -> State:
    for condition in status.get("conditions") or ():
        if condition["type"] == kind:
            reason = sys.intern(condition["reason"])
            return State(condition["status"] == "True", reason, condition.get("message") or "")
    return State(False, "Pending", "the operator has not looked at it yet")
