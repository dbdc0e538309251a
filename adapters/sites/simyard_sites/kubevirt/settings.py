# SPDX-License-Identifier: Apache-2.0
"""Reads the settings of a KubeVirt site: ``spec.provider.kubevirt`` of a CloudSite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simyard_sites.kubernetes.client import Json


@dataclass(frozen=True, slots=True)
class ContainerDisk:
    """A root disk that is the service's container image."""

    image_pull_policy: str = ""
    image_pull_secret: str = ""


@dataclass(frozen=True, slots=True)
class DataVolume:
    """A root disk that is a separate volume for each machine, which CDI creates.

    ``source`` is ``DataSource`` or ``PersistentVolumeClaim`` if the volume is a clone, or "" if it is imported from the
    service's container image. ``source_name`` is "" if the image of the service names the source.
    """

    size: str
    storage_class: str = ""
    source: str = ""
    source_namespace: str = ""
    source_name: str = ""


@dataclass(frozen=True, slots=True)
class Reference:
    """The name of an instance type or a preference."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a site; ``simyard.api.providers.kubevirt`` describes each member and has the defaults.

    ``namespace`` is "" if each machine is in its worker's own namespace.
    """

    namespace: str
    root_disk: ContainerDisk | DataVolume
    instancetype: Reference | None
    preference: Reference | None
    pod_network: bool
    multus: tuple[str, ...]
    node_selector: Mapping[str, str]
    tolerations: tuple[Json, ...]
    priority_class: str
    grace_seconds: int

    @classmethod
    def from_provider(cls, provider: Mapping[str, Any]) -> Settings:
        """Read the member of a CloudSite, which has the defaults of the CloudSite's definition."""
        network: Mapping[str, Any] = provider["network"]
        return cls(
            namespace=provider.get("namespace") or "",
            root_disk=_root_disk(provider["rootDisk"]),
            instancetype=_reference(provider.get("instancetype")),
            preference=_reference(provider.get("preference")),
            pod_network=network["pod"],
            multus=tuple(network["multus"]),
            node_selector=provider["nodeSelector"],
            tolerations=tuple(provider["tolerations"]),
            priority_class=provider.get("priorityClassName") or "",
            grace_seconds=provider["terminationGracePeriodSeconds"],
        )


def _root_disk(given: Mapping[str, Any]) -> ContainerDisk | DataVolume:
    volume = given.get("dataVolume")
    if volume is None:
        disk = given.get("containerDisk") or {}
        return ContainerDisk(disk.get("imagePullPolicy") or "", disk.get("imagePullSecret") or "")
    kinds = (("dataSource", "DataSource"), ("persistentVolumeClaim", "PersistentVolumeClaim"))
    member, source = next(((key, kind) for key, kind in kinds if volume.get(key)), ("", ""))
    of = volume.get(member) or {}
    return DataVolume(
        size=str(volume["size"]),
        storage_class=volume.get("storageClassName") or "",
        source=source,
        source_namespace=of.get("namespace") or "",
        source_name=of.get("name") or "",
    )


def _reference(given: Mapping[str, Any] | None) -> Reference | None:
    return Reference(given["kind"], given["name"]) if given else None
