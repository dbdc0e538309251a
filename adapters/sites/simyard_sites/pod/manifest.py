# SPDX-License-Identifier: Apache-2.0
"""Builds the pod of a worker."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from simyard_sites.base import ErrorScope, InvalidSpecError, MachineRequest
from simyard_sites.kubernetes.client import Json
from simyard_sites.kubernetes.ownership import build_owner_labels

CONTAINER = "worker"
INIT_CONTAINER = "adapter"
BOOTSTRAP_KEY = "bootstrap.json"
BOOTSTRAP_DIRECTORY = "/etc/simyard"
SCRATCH_DIRECTORY = "/var/lib/simyard"
ADAPTER_DIRECTORY = "/opt/simyard-adapter"
"""The directory of the adapter's files, in the adapter image and in the pods that receive them."""

_COPIED = (
    "serviceAccountName",
    "nodeSelector",
    "tolerations",
    "priorityClassName",
    "runtimeClassName",
    "imagePullSecrets",
)
"""The settings that have the same names as members of a pod's ``spec``."""
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_RUN = ["run", "--bootstrap", f"{BOOTSTRAP_DIRECTORY}/{BOOTSTRAP_KEY}", "--directory", f"{SCRATCH_DIRECTORY}/adapter"]
_RESTRICTED: Json = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def check(request: MachineRequest) -> None:
    """Check that a pod can satisfy the request.

    Raises:
        InvalidSpecError: A field is missing or impossible.
    """
    if not request.image:
        raise InvalidSpecError("spec.images.pod: the SimulationService has no image for pods; set one")
    if request.hostname and not _LABEL.fullmatch(request.hostname):
        raise InvalidSpecError(
            "spec.hostname: must be one DNS label of at most 63 characters at a site with pods", scope=ErrorScope.ITEM
        )
    for given, field in ((request.user_data, "userData"), (request.ssh_public_keys, "sshPublicKeys")):
        if given:
            raise InvalidSpecError(
                f"spec.{field}: is not possible for pods, which have no cloud-init; use a site with virtual machines",
                scope=ErrorScope.ITEM,
            )


def build_pod(
    request: MachineRequest, secret: str, provider: Mapping[str, Any], site_labels: Mapping[str, str]
) -> Json:
    """Return the pod of one machine.

    ``provider`` is ``spec.provider.pod`` with the defaults of the CloudSite's definition. ``secret`` contains the
    document that the pool's workers share. The worker reads its identity from environment variables. Only the pod's
    group can read the Secret's files.
    """
    adapter_image = provider.get("adapterImage")
    user = int(provider["userId"])
    security: Json = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    if user:
        security |= {"runAsUser": user, "runAsGroup": user, "fsGroup": user}
    read_only = bool(provider["readOnlyRootFilesystem"])
    spec: Json = {
        "containers": [_container(request, provider, read_only=read_only, brought=bool(adapter_image))],
        "volumes": _volumes(secret, provider["scratch"], group=bool(user), brought=bool(adapter_image)),
        "securityContext": security,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": provider["terminationGracePeriodSeconds"],
    }
    if adapter_image:
        spec["initContainers"] = [_init_container(adapter_image, provider)]
    if request.hostname:
        spec["hostname"] = request.hostname
    for field in _COPIED:
        if provider.get(field):
            spec[field] = provider[field]
    labels = {**provider["labels"], **site_labels, **build_owner_labels(request.owner)}
    metadata: Json = {"name": request.name, "labels": labels}
    if provider["annotations"]:
        metadata["annotations"] = provider["annotations"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _container(request: MachineRequest, provider: Mapping[str, Any], *, read_only: bool, brought: bool) -> Json:
    size = {"cpu": f"{request.cpu_millis or request.cores * 1000}m", "memory": f"{request.memory_mib}Mi"}
    mounts: list[Json] = [
        {"name": "bootstrap", "mountPath": BOOTSTRAP_DIRECTORY, "readOnly": True},
        {"name": "scratch", "mountPath": SCRATCH_DIRECTORY, "subPath": "work"},
        {"name": "scratch", "mountPath": "/tmp", "subPath": "tmp"},  # noqa: S108 - in the pod
    ]
    if brought:
        mounts.append({"name": "adapter", "mountPath": ADAPTER_DIRECTORY, "readOnly": True})
    container: Json = {
        "name": CONTAINER,
        "image": request.image,
        "command": ["python3", ADAPTER_DIRECTORY, *_RUN] if brought else ["simyard-adapter", *_RUN],
        "workingDir": SCRATCH_DIRECTORY,
        "env": [
            {"name": "SIMYARD_WORKER", "value": request.owner.worker},
            {"name": "SIMYARD_WORKER_UID", "value": request.owner.worker_uid},
            {"name": "HOME", "value": SCRATCH_DIRECTORY},
        ],
        "resources": {"requests": size, "limits": size},
        "securityContext": {**_RESTRICTED, "readOnlyRootFilesystem": read_only},
        "volumeMounts": mounts,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    return _with_policy(container, provider)


def _init_container(image: str, provider: Mapping[str, Any]) -> Json:
    size = {"cpu": "100m", "memory": "64Mi"}
    container: Json = {
        "name": INIT_CONTAINER,
        "image": image,
        "command": ["cp", "-R", f"{ADAPTER_DIRECTORY}/.", "/adapter"],
        "resources": {"requests": size, "limits": size},
        "securityContext": {**_RESTRICTED, "readOnlyRootFilesystem": True},
        "volumeMounts": [{"name": "adapter", "mountPath": "/adapter"}],
    }
    return _with_policy(container, provider)


def _with_policy(container: Json, provider: Mapping[str, Any]) -> Json:
    if policy := provider.get("imagePullPolicy"):
        container["imagePullPolicy"] = policy
    return container


def _volumes(secret: str, scratch: Mapping[str, Any], *, group: bool, brought: bool) -> list[Json]:
    size = str(scratch["size"])
    volume: Json = {"name": "scratch", "emptyDir": {"sizeLimit": size}}
    if storage_class := scratch.get("storageClassName"):
        claim = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": size}},
        }
        volume = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
    mode = 0o400 if group else 0o444
    volumes: list[Json] = [{"name": "bootstrap", "secret": {"secretName": secret, "defaultMode": mode}}, volume]
    if brought:
        volumes.append({"name": "adapter", "emptyDir": {"sizeLimit": "64Mi"}})
    return volumes


def read_secret_name(item: Json) -> str:
    """Return the name of the shared Secret that a pod refers to, or ""."""
    for volume in item["spec"].get("volumes") or ():
        if volume["name"] == "bootstrap" and "secret" in volume:
            return str(volume["secret"]["secretName"])
    return ""
