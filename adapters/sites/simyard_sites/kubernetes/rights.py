# SPDX-License-Identifier: Apache-2.0
"""Lists the rights that the account of a site needs in the cluster of its machines."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rule:
    """The verbs that the account needs on one resource. ``resource`` may have a subresource: ``pods/log``."""

    group: str
    resource: str
    verbs: tuple[str, ...]


SHARED = (
    Rule("", "secrets", ("create",)),
    Rule("apps", "controllerrevisions", ("get", "list", "create", "delete")),
)
"""The rights for the objects that the machines of a pool share."""

PODS = (Rule("", "pods", ("get", "list", "watch", "create", "delete")), *SHARED)
"""The rights for machines that are pods."""

MACHINES = (
    Rule("kubevirt.io", "virtualmachineinstances", ("get", "list", "watch", "create", "delete")),
    Rule("subresources.kubevirt.io", "virtualmachineinstances/pause", ("update",)),
    Rule("subresources.kubevirt.io", "virtualmachineinstances/unpause", ("update",)),
    *SHARED,
)
"""The rights for machines of KubeVirt, in their namespaces."""

VIRT_VERSION = Rule("subresources.kubevirt.io", "version", ("list",))
"""The right in the whole cluster with which the probe asks virt-api for its version.

KubeVirt grants it to every authenticated account (``kubevirt.io:default``), unless an administrator removed it.
"""

DISKS = (Rule("cdi.kubevirt.io", "datavolumes", ("list", "create")),)
"""The additional rights for root disks that are DataVolumes."""

INSTANCETYPES = tuple(
    Rule("instancetype.kubevirt.io", f"{kind.lower()}s", ("get",))
    for kind in (
        "VirtualMachineInstancetype",
        "VirtualMachinePreference",
        "VirtualMachineClusterInstancetype",
        "VirtualMachineClusterPreference",
    )
)
"""The additional rights for the instance type or preference that the CloudSite names."""
