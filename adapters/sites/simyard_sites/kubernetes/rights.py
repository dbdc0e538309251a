"""What the account of a site must be permitted to do in the machines' cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rule:
    """Verbs for one resource; ``resource`` may have a subresource: ``pods/log``."""

    group: str
    resource: str
    verbs: tuple[str, ...]


SHARED = (
    Rule("", "secrets", ("create",)),
    Rule("apps", "controllerrevisions", ("get", "list", "create", "delete")),
)
"""For what the machines of a pool share."""

PODS = (Rule("", "pods", ("get", "list", "watch", "create", "delete")), *SHARED)
"""Where the machines are pods."""

MACHINES = (
    Rule("kubevirt.io", "virtualmachineinstances", ("get", "list", "watch", "create", "delete")),
    Rule("subresources.kubevirt.io", "virtualmachineinstances/pause", ("update",)),
    Rule("subresources.kubevirt.io", "virtualmachineinstances/unpause", ("update",)),
    *SHARED,
)
"""Where the machines are KubeVirt's, in their namespaces."""

VIRT_VERSION = Rule("subresources.kubevirt.io", "version", ("list",))
"""In the whole cluster: the probe asks virt-api for its version. KubeVirt grants it to every account that is known
(``kubevirt.io:default``), unless somebody took that away."""

DISKS = (Rule("cdi.kubevirt.io", "datavolumes", ("list", "create")),)
"""There as well, where root disks are DataVolumes."""

INSTANCETYPES = tuple(
    Rule("instancetype.kubevirt.io", f"{kind.lower()}s", ("get",))
    for kind in (
        "VirtualMachineInstancetype",
        "VirtualMachinePreference",
        "VirtualMachineClusterInstancetype",
        "VirtualMachineClusterPreference",
    )
)
"""Where the CloudSite names an instance type or a preference: of those kinds."""
