# SPDX-License-Identifier: Apache-2.0
"""Reads a pod as a machine: its state from its status, and the reason of a failure in Kubernetes' words."""

from __future__ import annotations

from datetime import datetime

from simyard_sites.base import Address, Machine, MachineState, Stage
from simyard_sites.kubernetes.client import Json
from simyard_sites.kubernetes.ownership import read_owner
from simyard_sites.pod.manifest import CONTAINER

DISRUPTIONS = {
    "PreemptionByScheduler": "Preempted",
    "DeletionByTaintManager": "NodeTainted",
    "EvictionByEvictionAPI": "Evicted",
    "DeletionByPodGC": "NodeLost",
    "TerminationByKubelet": "EndedByNode",
}
"""The reason of a failed machine for each reason for which Kubernetes removes a pod (condition DisruptionTarget)."""

CANNOT_START = frozenset(
    {
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "RegistryUnavailable",
        "ImageInspectError",
        "SignatureValidationFailed",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)
"""The reasons of a waiting container that will not start soon by itself. A new pod on another node may start."""

HOPELESS_EXITS = frozenset({2, 3, 4, 126, 127, 128})
"""The exit codes with which the container would end again after every start.

They mean wrong usage, a wrong bootstrap document or directory, or a program that is missing or cannot be run.
"""
MAX_CRASHES = 3
"""Number of crashes of a container after which the machine counts as failed. Kubernetes delays each restart."""
_MAX_MESSAGE_CHARACTERS = 1000


def make_machine_id(namespace: str, name: str) -> str:
    """Return the id of a pod as a machine; a pod that is created again has the same id."""
    return f"{namespace}/{name}"


def read(item: Json) -> Machine | None:
    """Return the machine that a pod represents; None if its labels name no worker."""
    owner = read_owner(item)
    if owner is None:
        return None
    metadata, status = item["metadata"], item.get("status") or {}
    state, reason, message = _state(metadata, status)
    return Machine(
        id=make_machine_id(metadata["namespace"], metadata["name"]),
        name=metadata["name"],
        owner=owner,
        state=state,
        entered=_entered(metadata, status),
        reason=reason,
        message=message[:_MAX_MESSAGE_CHARACTERS],
        addresses=_addresses(status),
    )


def _addresses(status: Json) -> tuple[Address, ...]:
    """Return the pod's addresses; Kubernetes names the network interface of every pod ``eth0``."""
    ips = (status.get("podIP"), *(item.get("ip") for item in status.get("podIPs") or ()))
    return tuple(Address(ip, "eth0") for ip in dict.fromkeys(ips) if ip)


def _state(metadata: Json, status: Json) -> tuple[MachineState, str, str]:
    """Return the state, and the reason and message that explain it."""
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    phase = status.get("phase")
    taken = conditions.get("DisruptionTarget")
    if taken is not None and taken["status"] == "True" and (metadata.get("deletionTimestamp") or phase == "Failed"):
        return MachineState.FAILED, *_disruption(taken, status)
    if metadata.get("deletionTimestamp"):
        return MachineState.TERMINATING, "", ""
    if phase == "Failed":
        return MachineState.FAILED, *_failure(status)
    if phase == "Succeeded":
        return MachineState.FAILED, "Completed", "the container ended by itself"
    if (stuck := _stuck(status)) is not None:
        return MachineState.FAILED, *stuck
    if phase == "Running":
        return MachineState.RUNNING, "", ""
    scheduled = conditions.get("PodScheduled")
    if scheduled is None or scheduled["status"] != "True":
        return MachineState.PENDING, *_texts(scheduled or {})
    return (MachineState.BOOT if _is_sandboxed(conditions) else MachineState.PROLOG), *_waiting(status)


def _disruption(condition: Json, status: Json) -> tuple[str, str]:
    reason = condition.get("reason") or ""
    said = condition.get("message") or status.get("message") or ""
    if reason == "TerminationByKubelet" and status.get("reason"):
        return str(status["reason"]), str(status.get("message") or said)
    return DISRUPTIONS.get(reason, reason or "Disrupted"), said


def _failure(status: Json) -> tuple[str, str]:
    """Return the reason and message of a failed pod or container."""
    if status.get("reason"):
        return str(status["reason"]), str(status.get("message") or "")
    for container in _containers(status):
        ended = (container.get("state") or {}).get("terminated")
        if ended is not None and ended.get("exitCode"):
            return _exit(container, ended)
    return "Failed", str(status.get("message") or "")


def _stuck(status: Json) -> tuple[str, str] | None:
    """Return the reason and message of a container that will not start, or None."""
    for container in _containers(status):
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason = waiting.get("reason") or ""
        ended = (container.get("lastState") or {}).get("terminated")
        if reason in CANNOT_START:
            return reason, f"container {container['name']}: {waiting.get('message') or ''}"
        if reason == "CrashLoopBackOff" and ended is not None:
            hopeless = ended.get("exitCode") in HOPELESS_EXITS
            if hopeless or container.get("restartCount", 0) >= MAX_CRASHES:
                return _exit(container, ended)
    return None


def _exit(container: Json, ended: Json) -> tuple[str, str]:
    """Return the reason (OOMKilled, Error, StartError, ...) and message of a container that ended."""
    said = str(ended.get("message") or "").strip()
    message = f"container {container['name']} ended with exit code {ended.get('exitCode')}"
    return str(ended.get("reason") or "Error"), f"{message}: {said}" if said else message


def _waiting(status: Json) -> tuple[str, str]:
    """Return the reason and message of a waiting container that Kubernetes will try to start again."""
    for container in _containers(status):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("message"):
            return _texts(waiting)
    return "", ""


def _texts(said: Json) -> tuple[str, str]:
    reason, message = str(said.get("reason") or ""), str(said.get("message") or "")
    return reason, f"{reason}: {message}" if reason and message else message


def _containers(status: Json) -> list[Json]:
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _is_sandboxed(conditions: dict[str, Json]) -> bool:
    """Return True if the volumes and the network of the pod are ready."""
    condition = conditions.get("PodReadyToStartContainers")
    return condition is not None and condition["status"] == "True"


def _entered(metadata: Json, status: Json) -> dict[Stage, float]:
    """Return the times in whole seconds at which the pod entered the stages that its status shows."""
    entered = {Stage.PENDING: _seconds(metadata["creationTimestamp"])}
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    for kind, stage in (("PodScheduled", Stage.PROLOG), ("PodReadyToStartContainers", Stage.BOOT)):
        condition = conditions.get(kind)
        if condition is not None and condition["status"] == "True" and condition.get("lastTransitionTime"):
            entered[stage] = _seconds(condition["lastTransitionTime"])
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        begun = (state.get("running") or state.get("terminated") or {}).get("startedAt")
        if container["name"] == CONTAINER and begun:
            entered[Stage.RUNNING] = _seconds(begun)
    if Stage.RUNNING in entered:
        entered.setdefault(Stage.BOOT, entered[Stage.RUNNING])
    return entered


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
