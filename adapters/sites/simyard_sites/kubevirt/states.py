# SPDX-License-Identifier: Apache-2.0
"""Reads a VirtualMachineInstance as a machine of the site interface.

``virt-controller`` writes the phases and conditions until the machine runs on a node; ``virt-handler`` writes them
after that (KubeVirt v1.7 to v1.9). The problem: different parts of KubeVirt write the conditions, and one cause can
change several conditions. While a disk is being created, for example, a condition also says that the pod cannot be
scheduled. This module therefore reads the conditions in the order of cause and effect: disk, pod, guest. The first
problem is the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from simyard_sites.base import Address, Machine, MachineState, Owner, Stage
from simyard_sites.kubernetes.client import Json
from simyard_sites.kubernetes.refusals import Hint

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
"""The stage that begins with each phase: the pod exists, the disks are on the node, the guest runs."""

_NODE_LOST = "NodeUnresponsive"
_IMAGE = (
    "the image cannot be pulled: check spec.images.kubevirt of the SimulationService, the pull secret of the CloudSite"
)
_HINTS = {
    "ErrImagePull": _IMAGE,
    "ImagePullBackOff": _IMAGE,
    "Unschedulable": "no node has room for the machine",
    "FailedCreate": "KubeVirt cannot create the machine's pod",
    "FailedPvcNotFound": "the machine's disk does not exist",
    "FailedDataVolumeImport": "the disk cannot be created: look at the DataVolume with the machine's name",
    "NotAllDVsReady": "the disk is being created",
    "FailedGuaranteeResources": "no processors can be dedicated to the machine",
    "SynchronizationFailed": "the virt-handler of the node reports an error",
    "PodTerminating": "the machine's pod is ending: it was deleted, its node is lost, or the guest ended",
    "PausedIOError": "the disk fails or is full",
    "GuestShutDown": "the guest has shut itself down",
    _NODE_LOST: "the node does not answer: repair the node, or delete it from the cluster",
}
_CAUSES = (
    Hint("PriorityClass", "spec.provider.kubevirt.priorityClassName: name an existing PriorityClass"),
    Hint(
        "network attachment definition",
        "spec.provider.kubevirt.network.multus: name an existing NetworkAttachmentDefinition",
    ),
)
"""The hints for refusals of a machine's pod, which happen after KubeVirt has accepted the machine."""

_FATAL = frozenset({"ImagePullBackOff", "FailedGuaranteeResources"})
"""The reasons that remain until a person corrects the cause."""

_POD_SECURITY = "violates PodSecurity"
_NO_DISK = re.compile(r"\b(PVC|PersistentVolumeClaim)\b.*(not exist|not found)")
_WORD = re.compile(r"[A-Z][A-Za-z0-9]*")
_MAX_TEXT = 1000


@dataclass(frozen=True, slots=True)
class _Trouble:
    """A cause that keeps a machine from running: one CamelCase word, and the message of KubeVirt."""

    reason: str = ""
    said: str = ""

    @property
    def message(self) -> str:
        """The message for users: the meaning, KubeVirt's own text, and the remedy."""
        remedies = (cause.remedy for cause in _CAUSES if cause.text in self.said)
        return ": ".join(filter(None, (_HINTS.get(self.reason, ""), self.said, next(remedies, ""))))


def read_machine(raw: Json, owner: Owner) -> Machine:
    """Return the machine of an object, without references to the object, which may have tens of kilobytes."""
    metadata, status = raw["metadata"], raw.get("status") or {}
    phase = str(status.get("phase") or "")
    conditions = {item["type"]: item for item in status.get("conditions") or ()}
    state, trouble = _state(phase, status, conditions)
    if metadata.get("deletionTimestamp"):
        state = MachineState.TERMINATING
    leaves = str(status.get("evacuationNodeName") or "")
    return Machine(
        id=f"{metadata['namespace']}/{metadata['name']}",
        name=metadata["name"],
        owner=owner,
        state=state,
        entered=_entered(metadata, status),
        reason=trouble.reason,
        message=trouble.message[:_MAX_TEXT],
        addresses=tuple(_addresses(status.get("interfaces") or ())),
        evacuate=f"node {leaves} is being drained" if leaves else "",
    )


def _addresses(interfaces: Iterable[Json]) -> Iterator[Address]:
    """Yield the addresses of the interfaces, as KubeVirt or the guest's agent reports them."""
    for item in interfaces:
        for ip in item.get("ipAddresses") or [item.get("ipAddress")]:
            if ip:
                yield Address(str(ip), str(item.get("interfaceName") or ""), str(item.get("mac") or ""))


def _state(phase: str, status: Json, conditions: Mapping[str, Json]) -> tuple[MachineState, _Trouble]:
    state = _STATES.get(phase, MachineState.PENDING)
    trouble = next(_troubles(phase, conditions), _Trouble())
    if state is MachineState.FAILED:
        return state, _end(phase, str(status.get("reason") or ""), conditions, trouble)
    if state is MachineState.RUNNING:
        return _running(conditions, trouble)
    if _POD_SECURITY in trouble.said:
        return MachineState.FAILED, _Trouble("PodSecurity", trouble.said)
    if trouble.reason in _FATAL:
        return MachineState.FAILED, trouble
    # A waiting machine shows its reason only while it is pending: it may be placed although its disk is missing.
    return (MachineState.PENDING if trouble.reason and state is MachineState.PROLOG else state), trouble


def _running(conditions: Mapping[str, Json], trouble: _Trouble) -> tuple[MachineState, _Trouble]:
    """Return the state and the cause for a machine in the phase Running: it can be paused, or its pod is ending."""
    paused, ready = conditions.get("Paused") or {}, conditions.get("Ready") or {}
    if paused.get("status") == "True":
        if paused.get("reason") == "PausedByUser":
            return MachineState.SUSPENDED, _Trouble()
        if paused.get("reason") == "PausedIOError":
            return MachineState.FAILED, _Trouble("PausedIOError", str(paused.get("message") or ""))
    if ready.get("status") == "False" and ready.get("reason") == "PodTerminating":
        return MachineState.FAILED, _Trouble("PodTerminating", str(ready.get("message") or ""))
    return MachineState.RUNNING, trouble


def _end(phase: str, reason: str, conditions: Mapping[str, Json], trouble: _Trouble) -> _Trouble:
    """Return the cause of a machine's end."""
    if phase == "Succeeded":
        return _Trouble("GuestShutDown")
    if phase == "Unknown":
        return _Trouble(_NODE_LOST)
    if reason:
        return _Trouble(reason, "" if reason in _HINTS else trouble.said or "KubeVirt gives no reason")
    if trouble.reason == "NotAllDVsReady":  # The machine would wait for a disk that is still being created.
        return _Trouble("FailedDataVolumeImport", trouble.said)
    if trouble.reason:
        return trouble
    ready = conditions.get("Ready") or {}
    if ready.get("reason") in ("PodTerminating", "PodNotExists"):
        return _Trouble("PodGone", "the machine's pod has ended or was deleted")
    return _Trouble("MachineFailed", "KubeVirt gives no reason")


def _troubles(phase: str, conditions: Mapping[str, Json]) -> Iterator[_Trouble]:
    """Yield the causes that keep the machine from running, each before its consequences."""
    found = {
        kind: _trouble(conditions.get(kind) or {}) for kind in ("Synchronized", "DataVolumesReady", "PodScheduled")
    }
    placing = found["PodScheduled"]
    if placing is not None and _NO_DISK.search(placing.said):
        found["PodScheduled"] = _Trouble("FailedPvcNotFound", placing.said)
    if phase in ("Scheduled", "Running") and (failed := found["Synchronized"]) is not None:
        known = failed.reason in _HINTS
        found["Synchronized"] = failed if known else _Trouble("SynchronizationFailed", failed.said)
    synchronized = found["Synchronized"]
    if (
        found["DataVolumesReady"] is not None
        and synchronized is not None
        and synchronized.reason == "FailedPvcNotFound"
    ):
        del found["Synchronized"]
    return (trouble for trouble in found.values() if trouble is not None)


def _trouble(condition: Json) -> _Trouble | None:
    """Return the cause in a condition; None if it reports no problem. CDI does not report if an import will succeed."""
    reason = str(condition.get("reason") or "")
    bad = ("False", "Unknown") if condition.get("type") == "DataVolumesReady" else ("False",)
    if condition.get("status") not in bad or not reason:
        return None
    said = str(condition.get("message") or "")
    if _WORD.fullmatch(reason):
        return _Trouble(reason, said)
    return _Trouble("SynchronizationFailed", said or reason)


def _entered(metadata: Json, status: Json) -> dict[Stage, float]:
    entered = {Stage.PENDING: _seconds(metadata["creationTimestamp"])} if metadata.get("creationTimestamp") else {}
    for item in status.get("phaseTransitionTimestamps") or ():
        if (stage := _STAGES.get(item.get("phase") or "")) is not None:
            entered.setdefault(stage, _seconds(item["phaseTransitionTimestamp"]))
    return entered


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
