# SPDX-License-Identifier: Apache-2.0
"""Applies instance types and preferences to a machine, because a VirtualMachineInstance cannot refer to them.

The rules are those of KubeVirt v1.9 for VirtualMachines (``pkg/instancetype/apply`` and
``pkg/instancetype/preference/apply``): an instance type sets its fields, and a preference fills in fields that are
still empty.
"""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

from simyard_sites.base import InvalidSpecError
from simyard_sites.kubernetes.client import Json

_UNITS = {"": 1, "k": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4, "P": 1000**5} | {
    unit + "i": 1024**power for power, unit in enumerate("KMGTP", 1)
}
_QUANTITY = re.compile(r"(\d+)(\.\d+)?([kKMGTP]i?)?")
_SPREAD_RATIO = 2

_CPU = (
    ("model", "model"),
    ("dedicatedCPUPlacement", "dedicatedCpuPlacement"),
    ("isolateEmulatorThread", "isolateEmulatorThread"),
    ("numa", "numa"),
    ("realtime", "realtime"),
    ("maxSockets", "maxSockets"),
)
"""The fields of an instance type, and the corresponding fields of a machine."""

_FILLED_IN = (
    ("clock.preferredTimer", "domain.clock.timer"),
    ("machine.preferredMachineType", "domain.machine.type"),
    ("preferredArchitecture", "architecture"),
    ("preferredLaunchSecurity", "domain.launchSecurity"),
    ("preferredSubdomain", "subdomain"),
    ("cpu.preferredCPUFeatures", "domain.cpu.features"),
    ("features.preferredAcpi", "domain.features.acpi"),
    ("features.preferredApic", "domain.features.apic"),
    ("features.preferredHyperv", "domain.features.hyperv"),
    ("features.preferredKvm", "domain.features.kvm"),
    ("features.preferredPvspinlock", "domain.features.pvspinlock"),
    ("features.preferredSmm", "domain.features.smm"),
    ("devices.preferredUseVirtioTransitional", "domain.devices.useVirtioTransitional"),
    ("devices.preferredBlockMultiQueue", "domain.devices.blockMultiQueue"),
    ("devices.preferredNetworkInterfaceMultiQueue", "domain.devices.networkInterfaceMultiqueue"),
    ("devices.preferredDisableHotplug", "domain.devices.disableHotplug"),
    ("devices.preferredRng", "domain.devices.rng"),
    ("devices.preferredTPM", "domain.devices.tpm"),
    ("devices.preferredVideoType", "domain.devices.video.type"),
    ("devices.preferredAutoattachGraphicsDevice", "domain.devices.autoattachGraphicsDevice"),
    ("devices.preferredAutoattachInputDevice", "domain.devices.autoattachInputDevice"),
    ("devices.preferredAutoattachMemBalloon", "domain.devices.autoattachMemBalloon"),
    ("devices.preferredAutoattachPodInterface", "domain.devices.autoattachPodInterface"),
    ("devices.preferredAutoattachSerialConsole", "domain.devices.autoattachSerialConsole"),
)
"""The fields of a preference, and the fields of the spec that they fill in if these are empty."""

_DISK = (
    ("preferredDiskBlockSize", "blockSize"),
    ("preferredDiskCache", "cache"),
    ("preferredDiskIO", "io"),
)


def apply_instancetype(machine: Json, instancetype: Json | None, preference: Json | None) -> Json:
    """Return the machine with the fields of the instance type and the preference (whole objects).

    Raises:
        InvalidSpecError: The instance type and the CloudSite contradict each other, or the preference needs more than
            the machine has.
    """
    result = deepcopy(machine)
    wants: Json = (preference or {}).get("spec") or {}
    if instancetype is not None:
        _decide(result, instancetype, wants)
    if preference is not None:
        _require(result["spec"]["domain"], preference)
        _prefer(result["spec"], wants)
        _annotate(result, wants)
    return result


def parse_bytes(quantity: str | int) -> int:
    """Return a Kubernetes quantity of memory in bytes: ``512Mi``, ``2G``, ``1.5Gi``, ``1073741824``."""
    found = _QUANTITY.fullmatch(str(quantity))
    if found is None or (found[3] or "") not in _UNITS:
        raise InvalidSpecError(f"{quantity!r} is not a quantity of memory, such as 512Mi or 2G")
    return int(float(found[1] + (found[2] or "")) * _UNITS[found[3] or ""])


def _decide(machine: Json, instancetype: Json, wants: Json) -> None:
    spec, given = machine["spec"], deepcopy(instancetype["spec"])
    domain: Json = spec["domain"]
    if given.get("nodeSelector"):
        if spec.get("nodeSelector"):
            name = instancetype["metadata"]["name"]
            raise InvalidSpecError(
                f"spec.provider.kubevirt.nodeSelector: the instance type {name} also has a nodeSelector;"
                " remove one of the two"
            )
        spec["nodeSelector"] = given["nodeSelector"]
    if given.get("schedulerName"):
        spec["schedulerName"] = given["schedulerName"]
    cpu, memory = given["cpu"], given["memory"]
    domain["cpu"] = {target: cpu[source] for source, target in _CPU if source in cpu} | _topology(cpu["guest"], wants)
    domain["memory"] = {key: memory[key] for key in ("guest", "hugepages", "maxGuest") if key in memory}
    domain.pop("resources", None)
    if overcommit := memory.get("overcommitPercent"):
        requested = parse_bytes(memory["guest"]) * (100 - overcommit) // 100
        domain["resources"] = {"requests": {"memory": str(requested)}}
    for key in ("ioThreads", "ioThreadsPolicy", "launchSecurity"):
        if given.get(key):
            domain[key] = given[key]
    for key in ("gpus", "hostDevices"):
        if given.get(key):
            domain["devices"][key] = given[key]
    _annotate(machine, given)


def _topology(count: int, wants: Json) -> Json:
    """Return the CPU topology of the guest: one socket per processor, unless the preference names another topology."""
    topology = {"sockets": 1, "cores": 1, "threads": 1}
    if count == 1:
        return topology
    cpu = wants.get("cpu") or {}
    preferred = str(cpu.get("preferredCPUTopology") or "sockets").removeprefix("prefer").lower()
    if preferred != "spread":
        return topology | {preferred if preferred in topology else "sockets": count}
    options = cpu.get("spreadOptions") or {}
    ratio = options.get("ratio") or wants.get("preferSpreadSocketToCoreRatio") or _SPREAD_RATIO
    across = options.get("across") or "SocketsCores"
    if across == "CoresThreads":
        return topology | {"cores": count // ratio, "threads": ratio}
    if across == "SocketsCoresThreads":
        return {"sockets": count // 2 // ratio, "cores": ratio, "threads": 2}
    return topology | {"sockets": count // ratio, "cores": ratio}


def _require(domain: Json, preference: Json) -> None:
    name = preference["metadata"]["name"]
    needs = preference["spec"].get("requirements") or {}
    cpu: Json = domain["cpu"]
    count = cpu.get("sockets", 1) * cpu.get("cores", 1) * cpu.get("threads", 1)
    least = (needs.get("cpu") or {}).get("guest") or 0
    if count < least:
        raise InvalidSpecError(f"the preference {name} needs at least {least} processors, but a machine has {count}")
    memory, guest = (needs.get("memory") or {}).get("guest"), domain["memory"]["guest"]
    if memory and parse_bytes(guest) < parse_bytes(memory):
        raise InvalidSpecError(f"the preference {name} needs at least {memory} of memory, but a machine has {guest}")


def _prefer(spec: Json, wants: Json) -> None:
    for source, target in _FILLED_IN:
        _fill_in(spec, target, _find(wants, source))
    for key, value in (_find(wants, "clock.preferredClockOffset") or {}).items():
        _fill_in(spec, f"domain.clock.{key}", value)
    if model := _find(wants, "devices.preferredPanicDeviceModel"):
        _fill_in(spec, "domain.devices.panicDevices", [{"model": model}])
    _prefer_firmware(spec, wants.get("firmware") or {})
    devices, wanted = spec["domain"]["devices"], wants.get("devices") or {}
    for disk in devices.get("disks") or ():
        _fill_in(disk, "disk.bus", wanted.get("preferredDiskBus"))
        for source, target in _DISK:
            _fill_in(disk, target, wanted.get(source))
        if disk["disk"].get("bus") == "virtio":
            _fill_in(disk, "dedicatedIOThread", wanted.get("preferredDiskDedicatedIoThread"))
    for interface in devices.get("interfaces") or ():
        _fill_in(interface, "model", wanted.get("preferredInterfaceModel"))


def _prefer_firmware(spec: Json, wanted: Json) -> None:
    if wanted.get("preferredUseBios"):
        serial = wanted.get("preferredUseBiosSerial")
        _fill_in(spec, "domain.firmware.bootloader.bios", {} if serial is None else {"useSerial": serial})
    elif wanted.get("preferredEfi") is not None:
        _fill_in(spec, "domain.firmware.bootloader.efi", wanted["preferredEfi"])
    elif wanted.get("preferredUseEfi"):
        secure = wanted.get("preferredUseSecureBoot")
        _fill_in(spec, "domain.firmware.bootloader.efi", {} if secure is None else {"secureBoot": secure})


def _annotate(machine: Json, spec: Json) -> None:
    if annotations := spec.get("annotations"):
        metadata = machine["metadata"]
        metadata["annotations"] = annotations | (metadata.get("annotations") or {})


def _find(tree: Json, path: str) -> Any:
    value: Any = tree
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _fill_in(tree: Json, path: str, value: Any) -> None:
    """Set a field if it is empty. Do nothing if the value is None."""
    if value is None:
        return
    *parents, last = path.split(".")
    for key in parents:
        tree = tree.setdefault(key, {})
    tree.setdefault(last, deepcopy(value))
