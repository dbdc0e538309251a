# SPDX-License-Identifier: Apache-2.0
"""Defines the phases of a simulated VirtualMachineInstance, and the writes between them.

The writes have the same order and content as in KubeVirt v1.9: ``virt-controller`` writes the phases until
``Scheduled``, and ``virt-handler`` writes the later phases. Everything here is simulated: no guest boots.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from simyard_sites.kubernetes.client import Json

FINALIZER = "kubevirt.io/foregroundDeleteVirtualMachine"
FINAL = ("Succeeded", "Failed")
_PHASES = ("", "Pending", "Scheduling", "Scheduled", "Running")


@dataclass(frozen=True, slots=True)
class Latencies:
    """The seconds until a machine is seen, is placed, has a pod, and runs, and until it is gone after its deletion."""

    pending: float = 0.0
    scheduling: float = 0.0
    scheduled: float = 0.0
    running: float = 0.0
    shutdown: float = 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """A write, ``after`` a delay in seconds: a merge patch of the status, which ``enters`` a phase or ""."""

    after: float
    status: Json
    enters: str = ""
    finalizers: bool = False


def steps(phase: str, latencies: Latencies, *, node: str, address: str, thorough: bool) -> Iterator[Step]:
    """Yield the remaining writes of a machine in this phase until it runs.

    With ``thorough``, there are seven writes as in KubeVirt; without it, four larger writes.
    """
    done = _PHASES.index(phase) if phase in _PHASES else len(_PHASES)
    before = [condition("Ready", "False", "GuestNotRunning", "Guest VM is not reported as running")]
    after: Json = {"conditions": [condition("Ready", "True"), condition("LiveMigratable", "False", "NotMigratable")]}
    network: Json = {"interfaces": [{"name": "default", "ipAddress": address, "infoSource": "domain"}]}
    if done < 1:
        yield Step(latencies.pending, {"conditions": before}, "Pending", finalizers=True)
    if done < 2:
        yield Step(latencies.scheduling, {"activePods": {f"uid-of-{address}": node}}, "Scheduling")
    if done < 3:
        yield Step(latencies.scheduled, {"nodeName": node}, "Scheduled")
    if done < 4 and not thorough:
        yield Step(latencies.running, after | network, "Running")
    elif done < 4:
        yield Step(0.0, {"volumeStatus": [{"name": "root", "target": ""}, {"name": "cloudinit", "target": ""}]})
        yield Step(latencies.running, after, "Running")
        yield Step(0.0, network)
        yield Step(0.0, {"memory": {"guestAtBoot": "1Gi", "guestCurrent": "1Gi", "guestRequested": "1Gi"}})


def condition(kind: str, status: str, reason: str = "", message: str = "") -> Json:
    """Return a condition of a VirtualMachineInstance."""
    now = timestamp()
    made = {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": now}
    # An unknown time is null and not absent: virt-controller's patches compare the conditions with those it has read.
    return {key: value for key, value in (made | {"reason": reason, "message": message}).items() if value != ""}


def with_condition(status: Json, new: Json) -> list[Json]:
    """Return the conditions of a status with this one added or replaced."""
    return [*without_condition(status, new["type"]), new]


def without_condition(status: Json, kind: str) -> list[Json]:
    """Return the conditions of a status without this one."""
    return [item for item in status.get("conditions") or () if item["type"] != kind]


def entered(status: Json, phase: str) -> Json:
    """Return the part of a status which says that a phase is entered now."""
    times = list(status.get("phaseTransitionTimestamps") or ())
    return {
        "phase": phase,
        "phaseTransitionTimestamps": [*times, {"phase": phase, "phaseTransitionTimestamp": timestamp()}],
    }


def timestamp() -> str:
    """Return the present time as objects have it, in whole seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class Trouble:
    """A fault of a machine: its condition, and the phase in which the machine ends, or ""."""

    kind: str
    reason: str
    message: str
    ends: str = ""


TROUBLES = {
    "pull-fails": Trouble(
        "Synchronized", "ImagePullBackOff", 'Back-off pulling image: "registry.invalid/x": manifest unknown'
    ),
    "no-node": Trouble("PodScheduled", "Unschedulable", "0/3 nodes are available: 3 Insufficient cpu."),
    "pod-refused": Trouble(
        "Synchronized", "FailedCreate", 'failed to create virtual machine pod: pods "x" is forbidden: exceeded quota'
    ),
    "not-privileged": Trouble(
        "Synchronized", "FailedCreate", 'pods "x" is forbidden: violates PodSecurity "restricted:latest"'
    ),
    "no-disk": Trouble("Synchronized", "FailedPvcNotFound", 'PVC "x" not found'),
    "crashes": Trouble("Synchronized", "Synchronizing with the Domain failed.", "qemu ended unexpectedly", "Failed"),
    "powers-off": Trouble("Ready", "GuestNotRunning", "", "Succeeded"),
}
"""The faults by the last part of the image's name. A machine that ends does so after it has run."""
