"""How a simulated VirtualMachineInstance gets from one phase to the next, and what is written on the way.

Order and content of the writes follow KubeVirt v1.9: ``virt-controller`` writes the phases until ``Scheduled``,
``virt-handler`` the rest. Everything here is simulated: no guest boots.
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
    """Seconds until a machine is taken up, placed, has its pod running, runs, and is gone after its deletion."""

    pending: float = 0.0
    scheduling: float = 0.0
    scheduled: float = 0.0
    running: float = 0.0
    shutdown: float = 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """One write, ``after`` so many seconds: a merge patch of the status, which ``enters`` a phase or ""."""

    after: float
    status: Json
    enters: str = ""
    finalizers: bool = False


def steps(phase: str, latencies: Latencies, *, node: str, address: str, thorough: bool) -> Iterator[Step]:
    """What is still to be written of a machine in that phase until it runs.

    ``thorough``: seven writes, as KubeVirt makes them; else four, each with more in it.
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
    """A condition of a VirtualMachineInstance."""
    now = timestamp()
    made = {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": now}
    # A time that is unknown is null, not absent: virt-controller's patches test that conditions are as it knows them.
    return {key: value for key, value in (made | {"reason": reason, "message": message}).items() if value != ""}


def with_condition(status: Json, new: Json) -> list[Json]:
    """The conditions of a status with this one added or replaced."""
    return [*without_condition(status, new["type"]), new]


def without_condition(status: Json, kind: str) -> list[Json]:
    """The conditions of a status but for one."""
    return [item for item in status.get("conditions") or () if item["type"] != kind]


def entered(status: Json, phase: str) -> Json:
    """The part of a status that says that a phase was entered now."""
    times = list(status.get("phaseTransitionTimestamps") or ())
    return {
        "phase": phase,
        "phaseTransitionTimestamps": [*times, {"phase": phase, "phaseTransitionTimestamp": timestamp()}],
    }


def timestamp() -> str:
    """Now, as objects have it: whole seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong with a machine: the condition that says so, the phase that it ends in or ""."""

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
"""By the last part of the image's name. Who ends, ends after it ran."""
