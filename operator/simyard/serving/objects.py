# SPDX-License-Identifier: Apache-2.0
"""Defines the cached forms of workers, pools and services: only the fields that calls need, to save memory. Pure."""

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
from simyard.serving.status import Subject
from simyard_adapter import wire
from simyard_adapter.declarations import Interface
from simyard_adapter.declarations import Json as Value
from simyard_sites.base import Address


@dataclass(frozen=True, slots=True)
class CachedCondition:
    """The condition ``Ready`` or ``Available`` of an object; ``good`` means that the object accepts actions."""

    good: bool
    reason: str
    message: str

    def __str__(self) -> str:
        """Return the reason and the message for people."""
        return f"{self.reason}: {self.message}" if self.message else self.reason


@dataclass(frozen=True, slots=True)
class OwnDetails:
    """The settings that only a Worker without a pool can have."""

    title: str = ""
    summary: str = ""
    hostname: str = ""
    resources: Resources | None = None
    ssh_public_keys: tuple[str, ...] = ()
    user_data: str = ""

    @classmethod
    def parse(cls, spec: Json) -> OwnDetails:
        """Read the settings from ``spec`` of a Worker."""
        if _OWN.isdisjoint(spec):
            return _NOTHING
        resources = spec.get("resources")
        return cls(
            title=spec.get("title") or "",
            summary=spec.get("summary") or "",
            hostname=spec.get("hostname") or "",
            resources=Resources.model_validate(resources) if resources is not None else None,
            ssh_public_keys=tuple(spec.get("sshPublicKeys") or ()),
            user_data=sys.intern(spec.get("userData") or ""),  # many workers have the same text
        )


_OWN = frozenset({"title", "summary", "hostname", "resources", "sshPublicKeys", "userData"})
_NOTHING = OwnDetails()


@dataclass(frozen=True, slots=True)
class CachedWorker:
    """A cached Worker. ``pool`` is empty for a Worker without a pool; ``user`` is its broker user.

    ``attributes`` come from its status, observed at ``attributes_time`` (seconds since the epoch). ``restarts`` counts
    the requested restarts, and ``restarted`` the restarts that its site has accepted.
    """

    metadata: Metadata
    service: str
    pool: str
    user: str
    state: CachedCondition
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
        """The object's name in messages."""
        return Subject(WORKERS, self.metadata.name)

    @property
    def queue(self) -> str:
        """The name of the worker's own queue."""
        return wire.name_worker_queue(self.user, self.metadata.uid)

    @property
    def service_key(self) -> str:
        """Namespace and name of the object's service."""
        return f"{self.metadata.namespace}/{self.service}"

    @classmethod
    def parse(cls, raw: Json) -> CachedWorker:
        """Read a Worker from the JSON of the API server."""
        metadata = _lean(raw["metadata"])
        spec, status = raw["spec"], raw.get("status") or {}
        owners = raw["metadata"].get("ownerReferences") or ()
        owner = next((item for item in owners if item.get("controller") and item["kind"] == WORKER_POOLS.kind), None)
        observed = status.get("attributesTime")
        return cls(
            metadata=metadata,
            service=sys.intern(spec["serviceRef"]["name"]),
            pool=sys.intern(owner["name"]) if owner is not None else "",
            user=sys.intern(
                wire.name_pool_user(owner["uid"]) if owner is not None else wire.name_standalone_user(metadata.uid)
            ),
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
    """A cached WorkerPool. ``ready`` (number of ready workers) and ``observed`` (generation) are from its status."""

    metadata: Metadata
    service: str
    state: CachedCondition
    replicas: int
    suspended: bool
    ready: int
    observed: int

    @property
    def subject(self) -> Subject:
        """The object's name in messages."""
        return Subject(WORKER_POOLS, self.metadata.name)

    @property
    def user(self) -> str:
        """The broker user of the pool's workers."""
        return wire.name_pool_user(self.metadata.uid)

    @property
    def service_key(self) -> str:
        """Namespace and name of the object's service."""
        return f"{self.metadata.namespace}/{self.service}"

    @classmethod
    def parse(cls, raw: Json) -> CachedPool:
        """Read a WorkerPool from the JSON of the API server."""
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
    """A cached SimulationService. ``seats`` and ``taken`` are from its licence; ``seats`` is None without a licence."""

    metadata: Metadata
    interface: Interface
    display_name: str
    description: str
    resources: Resources
    state: CachedCondition
    ready: int
    seats: int | None
    taken: int
    url: str

    @property
    def subject(self) -> Subject:
        """The object's name in messages."""
        return Subject(SIMULATION_SERVICES, self.metadata.name)

    @property
    def key(self) -> str:
        """Namespace and name of the service."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @classmethod
    def parse(cls, raw: Json) -> CachedService:
        """Read a SimulationService from the JSON of the API server."""
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


def format_time(time: datetime) -> str:
    """Return a time as ``metav1.Time``: UTC, in whole seconds."""
    return time.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _address(raw: Json) -> Address:
    return Address(raw["address"], sys.intern(raw.get("interface") or ""), raw.get("mac") or "")


def _lean(metadata: Json) -> Metadata:
    """Return the part of a Worker's metadata that calls need, with only the annotations of OCCI."""
    annotations = metadata.get("annotations") or {}
    kept = {name: annotations[name] for name in _ANNOTATIONS if name in annotations}
    lean = {name: metadata[name] for name in _METADATA if name in metadata}
    return Metadata.model_validate(
        {**lean, "namespace": sys.intern(metadata.get("namespace", "")), "annotations": kept}
    )


def _state(status: Json, kind: ConditionType) -> CachedCondition:
    for condition in status.get("conditions") or ():
        if condition["type"] == kind:
            reason = sys.intern(condition["reason"])
            return CachedCondition(condition["status"] == "True", reason, condition.get("message") or "")
    return CachedCondition(False, "Pending", "the operator has not looked at it yet")
