"""What a VirtualMachineInstance says of itself, as a machine of the site interface.

The phases and conditions are those of KubeVirt v1.9: ``virt-controller`` writes them until the machine runs on a node,
``virt-handler`` after that.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from simyard_sites.base import Machine, MachineState, Owner, Stage
from simyard_sites.kubernetes.client import Json

_STATES = {
    "": MachineState.PENDING,
    "Pending": MachineState.PENDING,
    "WaitingForSync": MachineState.PENDING,
    "Scheduling": MachineState.PROLOG,
    "Scheduled": MachineState.BOOT,
    "Running": MachineState.RUNNING,
    "Succeeded": MachineState.FAILED,
    "Failed": MachineState.FAILED,
    "Unknown": MachineState.FAILED,
}
_STAGES = {"Scheduling": Stage.PROLOG, "Scheduled": Stage.BOOT, "Running": Stage.RUNNING}
"""The phase in which a machine enters each stage: its pod was made, its disks are on the node, the guest runs."""

_LOST = {
    "Succeeded": ("GuestShutDown", "the guest has shut itself down"),
    "Unknown": ("NodeUnresponsive", "its node does not answer"),
}
_HINTS = {
    "ErrImagePull": "its image cannot be pulled: check spec.images.kubevirt of the SimulationService, and the pull"
    " secret of the CloudSite",
    "ImagePullBackOff": "its image cannot be pulled: check spec.images.kubevirt of the SimulationService, and the pull"
    " secret of the CloudSite",
    "Unschedulable": "no node has room for it",
    "FailedCreate": "KubeVirt cannot make its pod",
    "FailedPvcNotFound": "its disk is not there",
    "FailedDataVolumeImport": "its disk cannot be made",
    "NotAllDVsReady": "its disk is being made",
    "FailedGuaranteeResources": "its processors cannot be dedicated to it",
}
_FATAL = frozenset({"ImagePullBackOff", "FailedGuaranteeResources"})
"""Reasons that do not mend by themselves."""

_POD_SECURITY = "violates PodSecurity"
_PAUSED_BY_USER = "PausedByUser"
_MOST_TEXT = 1000


def machine_of(raw: Json, owner: Owner) -> Machine:
    """The machine that an object stands for. Nothing of the object is kept: it may take tens of kilobytes."""
    metadata, status = raw["metadata"], raw.get("status") or {}
    phase = str(status.get("phase") or "")
    conditions = {item["type"]: item for item in status.get("conditions") or ()}
    state, reason, message = _state(phase, status, conditions)
    if metadata.get("deletionTimestamp"):
        state = MachineState.TERMINATING
    leaves = str(status.get("evacuationNodeName") or "")
    return Machine(
        id=f"{metadata['namespace']}/{metadata['name']}",
        name=metadata["name"],
        owner=owner,
        state=state,
        entered=_entered(metadata, status),
        reason=reason,
        message=message[:_MOST_TEXT],
        address=next((str(item["ipAddress"]) for item in status.get("interfaces") or () if item.get("ipAddress")), ""),
        evacuate=f"node {leaves} is being drained" if leaves else "",
    )


def _state(phase: str, status: Json, conditions: Mapping[str, Json]) -> tuple[MachineState, str, str]:
    state = _STATES.get(phase, MachineState.PENDING)
    trouble, said = _trouble(conditions)
    if state is MachineState.FAILED:
        reason, message = _LOST.get(phase, (str(status.get("reason") or "") or trouble or "MachineFailed", said))
        return state, reason, message or "KubeVirt does not say why"
    if state is MachineState.RUNNING:
        paused = conditions.get("Paused") or {}
        if paused.get("status") == "True":
            why = str(paused.get("reason") or "")
            if why == _PAUSED_BY_USER:
                return MachineState.SUSPENDED, "", ""
            if why == "PausedIOError":
                return MachineState.FAILED, why, str(paused.get("message") or "its disk fails")
        return state, "", ""
    if trouble in _FATAL or _POD_SECURITY in said:
        return MachineState.FAILED, "PodSecurity" if _POD_SECURITY in said else trouble, said
    # A machine that waits says why only while it is pending: it may be placed, but its disk is not there.
    return (MachineState.PENDING if trouble and state is MachineState.PROLOG else state), trouble, said


def _trouble(conditions: Mapping[str, Json]) -> tuple[str, str]:
    """What keeps it from running, in one word and for people; nothing where nothing does."""
    for kind in ("Synchronized", "PodScheduled", "DataVolumesReady"):
        condition = conditions.get(kind) or {}
        reason = str(condition.get("reason") or "")
        if condition.get("status") == "False" and reason:
            said = str(condition.get("message") or "")
            return reason, ": ".join(filter(None, (_HINTS.get(reason, ""), said)))
    return "", ""


def _entered(metadata: Json, status: Json) -> dict[Stage, float]:
    entered = {Stage.PENDING: _seconds(metadata["creationTimestamp"])} if metadata.get("creationTimestamp") else {}
    for item in status.get("phaseTransitionTimestamps") or ():
        if (stage := _STAGES.get(item.get("phase") or "")) is not None:
            entered.setdefault(stage, _seconds(item["phaseTransitionTimestamp"]))
    return entered


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
