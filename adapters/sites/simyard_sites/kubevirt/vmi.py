"""The VirtualMachineInstance of a machine, and the DataVolume of its root disk where it has one of its own."""

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
"""The image that a machine's root disk is made from, where it is a DataVolume: so that it can be made later as well."""


def machine_instance(
    request: MachineRequest, namespace: str, labels: dict[str, str], secret: str, settings: Settings
) -> Json:
    """The machine as it is asked for; ``secret`` has its user data. Instance types come later.

    The guest reads which worker it is from its firmware, so that all workers of a pool share one Secret.

    Raises:
        InvalidSpecError: the request cannot work with this site.
    """
    if not request.image:
        raise InvalidSpecError("spec.images.kubevirt: the SimulationService has no image for KubeVirt; name one")
    own = settings.preference is None
    devices: Json = {
        "disks": [
            {"name": "root", "disk": {"bus": "virtio"} if own else {}},
            {"name": "cloudinit", "disk": {"bus": "virtio"} if own else {}},
        ],
        "interfaces": _interfaces(settings, {"model": "virtio"} if own else {}),
    }
    if own:
        # Nobody looks at the screen, and a balloon would take the memory that a simulation has been promised.
        devices |= {"rng": {}, "autoattachGraphicsDevice": False, "autoattachMemBalloon": False}
    if not settings.pod_network:
        devices["autoattachPodInterface"] = False
    cores = {"cpu": str(request.cores)}
    spec: Json = {
        "hostname": hostname_of(request),
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
            # KubeVirt would ask for a tenth of the processors: simulations use all of theirs.
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


def hostname_of(request: MachineRequest) -> str:
    """Return the host name of the guest: the first label of the one that its worker asks for, else the machine's name.

    Raises:
        InvalidSpecError: it is no host name; KubeVirt would refuse the machine without naming our field.
    """
    if request.hostname and not _HOSTNAME.fullmatch(request.hostname):
        raise InvalidSpecError(
            f"spec.hostname: {request.hostname!r} is no host name: use lower-case letters, digits and '-' in labels of"
            " at most 63 characters, joined by dots",
            scope=ErrorScope.ITEM,
        )
    return request.hostname.partition(".")[0] or request.name


def secret_of(machine: Json) -> str:
    """The Secret that has the user data of a stored machine; "" where it refers to none."""
    for volume in machine["spec"].get("volumes") or ():
        if (source := volume.get("cloudInitNoCloud")) is not None:
            return str(source["secretRef"]["name"])
    return ""


def data_volume(machine: Json, disk: DataVolume) -> Json:
    """The root disk of a stored machine, which owns it: they go together.

    Machines come first and wait for their disks, because a disk without a machine would be nobody's.
    """
    metadata = machine["metadata"]
    image = metadata["annotations"][ANNOTATION_DISK]
    owner = {"apiVersion": "kubevirt.io/v1", "kind": VMIS.kind, "name": metadata["name"], "uid": metadata["uid"]}
    storage: Json = {"resources": {"requests": {"storage": disk.size}}}
    if disk.storage_class:
        storage["storageClassName"] = disk.storage_class
    spec: Json = {"storage": storage}
    of = {"namespace": disk.source_namespace, "name": disk.source_name or disk_name(image)}
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


def disk_name(image: str) -> str:
    """The last part of an image's name, without tag and digest: the name of the disk prepared from it."""
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
