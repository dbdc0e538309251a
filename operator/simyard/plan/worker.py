# SPDX-License-Identifier: Apache-2.0
"""Plan of a Worker's status, from its object, its machine, its registration and its consumer at the broker."""

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
from simyard.plan.lost_workers import is_adapter_gone
from simyard_adapter.declarations import Json
from simyard_sites.base import Machine, MachineState, Stage

MAX_SECONDS_BEFORE_CREATION = 3600.0
_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@-]{0,31}")
_MAC = re.compile(r"[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}")
_SITE_STAGES = (Stage.PENDING, Stage.PROLOG, Stage.BOOT, Stage.RUNNING)


@dataclass(frozen=True, slots=True)
class Registration:
    """Newest ``register`` message of a worker's adapter."""

    time: datetime
    adapter_version: str = ""


@dataclass(frozen=True, slots=True)
class Values:
    """Values of the service's attributes, as the adapter last reported them."""

    time: datetime
    values: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Observation:
    """Facts about a worker that the operator has observed and that its Worker object does not contain.

    Attributes:
        machine: Machine as the site reports it; None if there is no machine.
        lost: True if the site does not have the worker's machine any more, without a request for its deletion.
        refusal: Reason why the site will never create the machine, or empty.
        denied: Reason why the CloudSite does not permit the machine now, or empty.
        waits: Reason why the machine does not exist yet, or does not have the desired power state, or empty.
        registration: Newest registration; None before the first one.
        values: Newest values of the attributes; None before the first report.
        consumer: True if the worker's queue has a consumer; None if the broker does not answer.
        consumer_gone: Time since which the queue has no consumer, in seconds of a steady clock.
        drained: True if the adapter reported that the worker is drained.
        restarts: Number of restarts of the machine that the site has accepted.
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
    """Kind of a change of the status; it decides how urgent the write is."""

    NONE = enum.auto()
    VALUES = enum.auto()
    STAGES = enum.auto()
    READINESS = enum.auto()


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """New status of a worker, the kind of its change, and the seconds until the next plan (None: after an event)."""

    status: WorkerStatus
    change: Change
    wake_seconds: float | None


def get_requested_time(worker: Worker) -> datetime | None:
    """Return the time at which a user or the operator requested a worker.

    The result is the time in the annotation if it is close to the creation of the Worker, else the creation time.
    """
    created = worker.metadata.creation_timestamp
    try:
        requested = datetime.fromisoformat(worker.metadata.annotations.get(ANNOTATION_REQUESTED, ""))
    except ValueError:
        return created
    if requested.tzinfo is None or created is None:
        return created
    return requested if abs((created - requested).total_seconds()) < MAX_SECONDS_BEFORE_CREATION else created


def is_ready(worker: Worker) -> bool:
    """Return whether the worker's status says that it accepts actions; False for a Worker that is being deleted."""
    condition = find_condition(worker.status.conditions, ConditionType.READY)
    return condition is not None and condition.status == "True" and worker.metadata.deletion_timestamp is None


def plan_worker(worker: Worker, seen: Observation, now: datetime, steady: float) -> WorkerPlan:
    """Return the new status of a worker; ``steady`` is the present time on the clock of ``seen.consumer_gone``."""
    old = worker.status
    status, reason, message, wake_seconds = _get_readiness(worker, seen, steady)
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
        addresses=list_addresses(machine) if machine else old.addresses,
        restarts=max(seen.restarts, old.restarts or 0) or None,
        adapter_version=seen.registration.adapter_version if seen.registration else old.adapter_version,
        stages=_get_stages(worker, seen),
        attributes=attributes,
        attributes_time=attributes_time,
        conditions=set_condition(old.conditions, ready),
    )
    return WorkerPlan(new, _classify_change(old, new), wake_seconds)


def _get_readiness(worker: Worker, seen: Observation, steady: float) -> tuple[bool, str, str, float | None]:
    """Return the status, reason and message of ``Ready``, and the seconds until the next check, if one is needed."""
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
        return False, Reason.DRAINING, "the worker finishes its actions and accepts no new ones", None
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
    return _get_connection(worker, seen, steady)


def _get_connection(worker: Worker, seen: Observation, steady: float) -> tuple[bool, str, str, float | None]:
    """Return the same values as :func:`_get_readiness`, for a registered worker.

    While the broker does not answer, the readiness does not change.
    """
    before = find_condition(worker.status.conditions, ConditionType.READY)
    disconnected = before is not None and before.reason == Reason.ADAPTER_DISCONNECTED
    look_again: float | None = None
    if seen.consumer is False and seen.consumer_gone is not None:
        gone, look_again = is_adapter_gone(seen.consumer_gone, steady)
        disconnected = disconnected or gone
    elif seen.consumer is True:
        disconnected = False
    if disconnected:
        return False, Reason.ADAPTER_DISCONNECTED, "the adapter is not connected to the broker", None
    return True, Reason.REGISTERED, seen.waits if worker.spec.power_state != "Running" else "", look_again


def _get_stages(worker: Worker, seen: Observation) -> Stages:
    """Return the times of a worker's stages; a time that is known does not change."""
    old = worker.status.stages
    times = {stage.value: getattr(old, stage.value) for stage in Stage}
    times[Stage.START] = times[Stage.START] or get_requested_time(worker)
    for stage in _SITE_STAGES:
        if times[stage] is None and seen.machine is not None and stage in seen.machine.entered:
            times[stage] = from_seconds(seen.machine.entered[stage])
    if times[Stage.REGISTERED] is None and seen.registration is not None:
        times[Stage.REGISTERED] = seen.registration.time
    return Stages(**times)


def list_addresses(machine: Machine) -> list[WorkerAddress]:
    """Return the addresses at which other machines may reach the machine.

    The addresses may come from an agent in the guest, so they are untrusted. The function skips texts that are not IP
    addresses, and addresses without a meaning for other machines, such as loopback and link-local addresses. It also
    removes names of interfaces and hardware addresses that contain invalid characters.
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


def _classify_change(old: WorkerStatus, new: WorkerStatus) -> Change:
    if old == new:
        return Change.NONE
    before, now = (find_condition(item.conditions, ConditionType.READY) for item in (old, new))
    if now is not None and (before is None or (before.status, before.reason) != (now.status, now.reason)):
        urgent = now.reason not in (Reason.DRAINING, Reason.DRAINED) and (before or now.reason != Reason.STARTING)
        return Change.READINESS if urgent else Change.STAGES
    same = new.model_copy(update={"attributes": old.attributes, "attributes_time": old.attributes_time})
    return Change.VALUES if old == same else Change.STAGES
