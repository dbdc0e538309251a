# SPDX-License-Identifier: Apache-2.0
"""Builds the VirtualMachineInstance of a machine, and the DataVolume of its root disk."""

from __future__ import annotations

import re
import uuid

from simyard_sites.base import ErrorScope, InvalidSpecError, MachineRequest
from simyard_sites.kubernetes.client import Json
from simyard_sites.kubernetes.resource import Resource
from simyard_sites.kubevirt.settings import ContainerDisk, DataVolume, Settings

VMIS = Resource("kubevirt.io", "v1", "virtualmachineinstances", "VirtualMachineInstance")
DATA_VOLUMES = Resource("cdi.kubevirt.io", "v1beta1", "datavolumes", "DataVolume")
_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_HOSTNAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
ANNOTATION_DISK = "simyard.dev/root-disk"
"""The annotation with the image of a machine's DataVolume, from which a missing disk can be created later."""


def build_machine_instance(
    request: MachineRequest, namespace: str, labels: dict[str, str], secret: str, settings: Settings
) -> Json:
    """Return the VirtualMachineInstance of a request, before instance types; ``secret`` contains its user data.

    The guest reads its worker's identity from its firmware, so that all workers of a pool share one Secret.

    Raises:
        InvalidSpecError: The request is not possible at this site.
    """
    if not request.image:
        raise InvalidSpecError("spec.images.kubevirt: the SimulationService has no image for KubeVirt; set one")
    own = settings.preference is None
    devices: Json = {
        "disks": [
            {"name": "root", "disk": {"bus": "virtio"} if own else {}},
            {"name": "cloudinit", "disk": {"bus": "virtio"} if own else {}},
        ],
        "interfaces": _interfaces(settings, {"model": "virtio"} if own else {}),
    }
    if own:
        # No user looks at the screen, and a balloon would take memory that is promised to the simulation.
        devices |= {"rng": {}, "autoattachGraphicsDevice": False, "autoattachMemBalloon": False}
    if not settings.pod_network:
        devices["autoattachPodInterface"] = False
    cores = {"cpu": str(request.cores)}
    spec: Json = {
        "hostname": choose_hostname(request),
        "evictionStrategy": "External",
        "terminationGracePeriodSeconds": settings.grace_seconds,
        "networks": _networks(settings),
        "volumes": [
            {"name": "root"} | _root_volume(request, settings.root_disk),
            {"name": "cloudinit", "cloudInitNoCloud": {"secretRef": {"name": secret}}},
        ],
        "domain": {
            "cpu": {"cores": request.cores},
            "memory": {"guest": f"{request.memory_mib}Mi"},
            # KubeVirt would request a tenth of the processors, but simulations use all of them.
            "resources": {"requests": cores},
            "firmware": {"uuid": _uuid(request), "serial": request.owner.worker},
            "devices": devices,
        },
    }
    if settings.node_selector:
        spec["nodeSelector"] = dict(settings.node_selector)
    if settings.tolerations:
        spec["tolerations"] = list(settings.tolerations)
    if settings.priority_class:
        spec["priorityClassName"] = settings.priority_class
    metadata: Json = {"name": request.name, "namespace": namespace, "labels": labels}
    if isinstance(settings.root_disk, DataVolume):
        metadata["annotations"] = {ANNOTATION_DISK: request.image}
    return {"apiVersion": "kubevirt.io/v1", "kind": VMIS.kind, "metadata": metadata, "spec": spec}


def choose_hostname(request: MachineRequest) -> str:
    """Return the host name of the guest: the first label of the requested one, else the machine's name.

    Raises:
        InvalidSpecError: The host name is not valid. KubeVirt would refuse the machine without naming our field.
    """
    if request.hostname and not _HOSTNAME.fullmatch(request.hostname):
        raise InvalidSpecError(
            f"spec.hostname: {request.hostname!r} is not a host name: use labels of at most 63 lower-case letters,"
            " digits and '-', joined by dots",
            scope=ErrorScope.ITEM,
        )
    return request.hostname.partition(".")[0] or request.name


def read_secret_name(machine: Json) -> str:
    """Return the name of the Secret with the user data of a stored machine, or ""."""
    for volume in machine["spec"].get("volumes") or ():
        if (source := volume.get("cloudInitNoCloud")) is not None:
            return str(source["secretRef"]["name"])
    return ""


def build_data_volume(machine: Json, disk: DataVolume) -> Json:
    """Return the root disk of a stored machine, which owns it, so that both are deleted together.

    The machine is created first and waits for its disk, because no object would own a disk without a machine.
    """
    metadata = machine["metadata"]
    image = metadata["annotations"][ANNOTATION_DISK]
    owner = {"apiVersion": "kubevirt.io/v1", "kind": VMIS.kind, "name": metadata["name"], "uid": metadata["uid"]}
    storage: Json = {"resources": {"requests": {"storage": disk.size}}}
    if disk.storage_class:
        storage["storageClassName"] = disk.storage_class
    spec: Json = {"storage": storage}
    of = {"namespace": disk.source_namespace, "name": disk.source_name or make_disk_name(image)}
    if disk.source == "DataSource":
        spec["sourceRef"] = {"kind": "DataSource", **of}
    elif disk.source:
        spec["source"] = {"pvc": of}
    else:
        spec["source"] = {"registry": {"url": f"docker://{image}"}}
    return {
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": DATA_VOLUMES.kind,
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": metadata["labels"],
            "ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": False}],
        },
        "spec": spec,
    }


def make_disk_name(image: str) -> str:
    """Return the last part of an image's name, without tag and digest: the name of the disk prepared from it."""
    return image.rpartition("/")[2].partition("@")[0].partition(":")[0]


def _root_volume(request: MachineRequest, disk: ContainerDisk | DataVolume) -> Json:
    if isinstance(disk, DataVolume):
        return {"dataVolume": {"name": request.name}}
    container: Json = {"image": request.image}
    if disk.image_pull_policy:
        container["imagePullPolicy"] = disk.image_pull_policy
    if disk.image_pull_secret:
        container["imagePullSecret"] = disk.image_pull_secret
    return {"containerDisk": container}


def _networks(settings: Settings) -> list[Json]:
    networks: list[Json] = [{"name": "default", "pod": {}}] if settings.pod_network else []
    multus = enumerate(settings.multus, 1)
    return networks + [{"name": f"net{count}", "multus": {"networkName": name}} for count, name in multus]


def _interfaces(settings: Settings, model: Json) -> list[Json]:
    interfaces: list[Json] = [{"name": "default", "masquerade": {}} | model] if settings.pod_network else []
    return interfaces + [{"name": f"net{count}", "bridge": {}} | model for count, _ in enumerate(settings.multus, 1)]


def _uuid(request: MachineRequest) -> str:
    try:
        return str(uuid.UUID(request.owner.worker_uid))
    except ValueError:
        raise InvalidSpecError(f"the uid {request.owner.worker_uid!r} of the worker is not a UUID") from None
