"""The status of a worker: from its object, its machine, its registration and its consumer at the broker."""

from __future__ import annotations

import enum
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from simyard.api.base import Condition, find_condition, from_seconds, set_condition
from simyard.api.names import ANNOTATION_REQUESTED, ConditionType, Reason
from simyard.api.worker import MAX_ADDRESSES, Stages, Worker, WorkerAddress, WorkerStatus
from simyard_adapter.declarations import Json
from simyard_sites.base import Machine, MachineState, Stage

MOST_SECONDS_BEFORE_CREATION = 3600.0
DISCONNECT_GRACE_SECONDS = 10.0
"""So long a ready worker may be without a consumer before it counts as disconnected (adapters reconnect)."""

FATAL = frozenset({Reason.MACHINE_FAILED, Reason.MACHINE_LOST})
"""The reasons of ``Ready`` after which a worker cannot become ready any more."""

_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@-]{0,31}")
_MAC = re.compile(r"[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}")
_SITE_STAGES = (Stage.PENDING, Stage.PROLOG, Stage.BOOT, Stage.RUNNING)


@dataclass(frozen=True, slots=True)
class Registration:
    """The newest ``register`` message of a worker's adapter."""

    time: datetime
    adapter_version: str = ""


@dataclass(frozen=True, slots=True)
class Values:
    """The service's attributes as the adapter last told them."""

    time: datetime
    values: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Observation:
    """What is known of a worker beside its object.

    Attributes:
        machine: its machine as the site sees it, None when there is none (yet).
        lost: it had a machine that the site does not have any more, and nobody asked for that.
        refusal: why the site will never create its machine.
        denied: why the CloudSite does not permit its machine now.
        waits: why the site has not created its machine, or not brought it into the state that is wanted.
        consumer: whether its queue has a consumer; None when the broker does not say.
        consumer_gone: since when it has none, in seconds of a clock that does not jump.
        drained: its adapter said that it is drained.
        restarts: how many restarts of its machine the site has accepted.
    """

    machine: Machine | None = None
    lost: bool = False
    refusal: str = ""
    denied: str = ""
    waits: str = ""
    registration: Registration | None = None
    values: Values | None = None
    consumer: bool | None = None
    consumer_gone: float | None = None
    drained: bool = False
    restarts: int = 0


class Change(enum.Enum):
    """How urgently a new status must be written."""

    NONE = enum.auto()
    VALUES = enum.auto()
    STAGES = enum.auto()
    READINESS = enum.auto()


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """The status that the worker should have, and when it may change without anything happening."""

    status: WorkerStatus
    change: Change
    wake_seconds: float | None


def requested_time(worker: Worker) -> datetime | None:
    """When the worker was asked for: as its annotation says, if that is a time shortly before its creation."""
    created = worker.metadata.creation_timestamp
    try:
        requested = datetime.fromisoformat(worker.metadata.annotations.get(ANNOTATION_REQUESTED, ""))
    except ValueError:
        return created
    if requested.tzinfo is None or created is None:
        return created
    return requested if abs((created - requested).total_seconds()) < MOST_SECONDS_BEFORE_CREATION else created


def is_ready(worker: Worker) -> bool:
    """Whether it takes actions, as its status says."""
    condition = find_condition(worker.status.conditions, ConditionType.READY)
    return condition is not None and condition.status == "True" and worker.metadata.deletion_timestamp is None


def plan_worker(worker: Worker, seen: Observation, now: datetime, steady: float) -> WorkerPlan:
    """The worker's status from what was observed; ``steady`` is now by the clock of ``seen.consumer_gone``."""
    old = worker.status
    status, reason, message, wake_seconds = _readiness(worker, seen, steady)
    ready = Condition(
        type=ConditionType.READY,
        status="True" if status else "False",
        reason=reason,
        message=message,
        last_transition_time=now,
        observed_generation=worker.metadata.generation,
    )
    machine, values = seen.machine, seen.values
    if values is None or (old.attributes_time is not None and values.time < old.attributes_time):
        attributes, attributes_time = old.attributes, old.attributes_time
    else:
        attributes, attributes_time = dict(values.values), values.time
    new = WorkerStatus(
        observed_generation=worker.metadata.generation,
        machine_id=machine.id if machine else old.machine_id,
        machine_state=machine.state.value if machine else ("" if seen.lost else old.machine_state),
        addresses=addresses_of(machine) if machine else old.addresses,
        restarts=max(seen.restarts, old.restarts or 0) or None,
        adapter_version=seen.registration.adapter_version if seen.registration else old.adapter_version,
        stages=_stages(worker, seen),
        attributes=attributes,
        attributes_time=attributes_time,
        conditions=set_condition(old.conditions, ready),
    )
    return WorkerPlan(new, _change(old, new), wake_seconds)


def _readiness(worker: Worker, seen: Observation, steady: float) -> tuple[bool, str, str, float | None]:
    """The condition ``Ready``: status, reason, message, and after how many seconds to look again."""
    machine = seen.machine
    if seen.denied and machine is None:
        return False, Reason.SITE_NOT_PERMITTED, seen.denied, None
    if seen.refusal:
        return False, Reason.MACHINE_FAILED, seen.refusal, None
    if seen.lost:
        return False, Reason.MACHINE_LOST, "the site does not have the machine any more", None
    if machine is not None and machine.state is MachineState.FAILED:
        return False, Reason.MACHINE_FAILED, ": ".join(filter(None, (machine.reason, machine.message))), None
    if worker.spec.drain:
        before = find_condition(worker.status.conditions, ConditionType.READY)
        if seen.drained or (before is not None and before.reason == Reason.DRAINED):
            return False, Reason.DRAINED, "", None
        return False, Reason.DRAINING, "it finishes what it runs and takes nothing new", None
    if machine is not None and machine.state in (MachineState.STOPPED, MachineState.SUSPENDED):
        said = f"the machine is {machine.state.value.lower()}"
        wanted = {MachineState.STOPPED: "Stopped", MachineState.SUSPENDED: "Suspended"}[machine.state]
        waits = seen.waits if worker.spec.power_state != wanted else ""
        return False, Reason.STOPPED, ": ".join(filter(None, (said, waits))), None
    if seen.registration is None and worker.status.stages.registered is None:
        waits = seen.waits
        if machine is not None:
            waits = machine.message
        return False, Reason.STARTING, waits, None
    return _connected(worker, seen, steady)


def _connected(worker: Worker, seen: Observation, steady: float) -> tuple[bool, str, str, float | None]:
    """Of a worker that has registered: a broker that does not answer changes nothing."""
    before = find_condition(worker.status.conditions, ConditionType.READY)
    disconnected = before is not None and before.reason == Reason.ADAPTER_DISCONNECTED
    look_again = None
    if seen.consumer is False and seen.consumer_gone is not None:
        look_again = max(0.0, seen.consumer_gone + DISCONNECT_GRACE_SECONDS - steady)
        disconnected = disconnected or look_again == 0
    elif seen.consumer is True:
        disconnected = False
    if disconnected:
        return False, Reason.ADAPTER_DISCONNECTED, "its adapter is not connected to the broker", None
    return True, Reason.REGISTERED, seen.waits if worker.spec.power_state != "Running" else "", look_again


def _stages(worker: Worker, seen: Observation) -> Stages:
    """Each stage keeps the first time that is known of it."""
    old = worker.status.stages
    times = {stage.value: getattr(old, stage.value) for stage in Stage}
    times[Stage.START] = times[Stage.START] or requested_time(worker)
    for stage in _SITE_STAGES:
        if times[stage] is None and seen.machine is not None and stage in seen.machine.entered:
            times[stage] = from_seconds(seen.machine.entered[stage])
    if times[Stage.REGISTERED] is None and seen.registration is not None:
        times[Stage.REGISTERED] = seen.registration.time
    return Stages(**times)


def addresses_of(machine: Machine) -> list[WorkerAddress]:
    """Return the addresses under which others may reach the machine.

    A guest's agent may have said them: text that is no IP address is left out, and so are loopback and link-local
    addresses, which mean nothing elsewhere. A name of an interface that cannot be one is left out, as is such a MAC.
    """
    found: dict[str, WorkerAddress] = {}
    for item in machine.addresses:
        try:
            ip = ipaddress.ip_address(item.ip)
        except ValueError:
            continue
        if "%" in item.ip or ip.is_loopback or ip.is_link_local or ip.is_unspecified or ip.is_multicast:
            continue
        interface = item.interface if _INTERFACE.fullmatch(item.interface) else None
        mac = item.mac if _MAC.fullmatch(item.mac) else None
        found.setdefault(str(ip), WorkerAddress(address=str(ip), interface=interface, mac=mac))
    return list(found.values())[:MAX_ADDRESSES]


def _change(old: WorkerStatus, new: WorkerStatus) -> Change:
    if old == new:
        return Change.NONE
    before, now = (find_condition(item.conditions, ConditionType.READY) for item in (old, new))
    if now is not None and (before is None or (before.status, before.reason) != (now.status, now.reason)):
        urgent = now.reason not in (Reason.DRAINING, Reason.DRAINED) and (before or now.reason != Reason.STARTING)
        return Change.READINESS if urgent else Change.STAGES
    same = new.model_copy(update={"attributes": old.attributes, "attributes_time": old.attributes_time})
    return Change.VALUES if old == same else Change.STAGES
