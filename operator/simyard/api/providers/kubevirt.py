# SPDX-License-Identifier: Apache-2.0
"""Settings of sites whose workers are KubeVirt VirtualMachineInstances."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from simyard.api.base import SET, ApiModel, Name, Quantity, SecretReference, add_cel_rules, make_cel_rule
from simyard.api.providers.identity import IN_A_CLUSTER
from simyard.api.providers.scheduling import NodeSelector, Tolerations

NetworkName = Annotated[
    str,
    Field(min_length=1, max_length=127, pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"),
]


class ContainerDisk(ApiModel):
    """Root disk from the container image that the service names; its content is lost with the machine."""

    image_pull_policy: Annotated[
        Literal["Always", "IfNotPresent", "Never"] | None,
        Field(description="Pull policy of the image; by default as for any pod."),
    ] = None
    image_pull_secret: Annotated[
        Name | None, Field(description="Secret of the machines' namespace with the registry's credentials.")
    ] = None


class DataSource(ApiModel):
    """Prepared disk in the machines' cluster, of which each machine gets a clone."""

    namespace: Annotated[Name, Field(description="Namespace of the disk.")]
    name: Annotated[
        Name | None,
        Field(description="Name of the disk; by default the last part of the service's image, without its tag."),
    ] = None


class DataVolume(ApiModel):
    """Root disk that is a separate volume per machine, made by CDI: a clone, or an import of the image (slow)."""

    model_config = add_cel_rules(
        make_cel_rule(
            "!has(self.dataSource) || !has(self.persistentVolumeClaim)",
            "at most one of dataSource and persistentVolumeClaim can be set",
        )
    )

    size: Annotated[Quantity, Field(description="Size of the disk.")]
    storage_class_name: Annotated[
        Name | None, Field(description="Storage class of the disk; by default the default class.")
    ] = None
    data_source: Annotated[DataSource | None, Field(description="DataSource of CDI to clone.")] = None
    persistent_volume_claim: Annotated[DataSource | None, Field(description="PersistentVolumeClaim to clone.")] = None


class RootDisk(ApiModel):
    """Source of a machine's root disk: at most one member is set; the default is `containerDisk: {}`."""

    model_config = add_cel_rules(
        make_cel_rule(
            "!has(self.containerDisk) || !has(self.dataVolume)",
            "at most one of containerDisk and dataVolume can be set",
        )
    )

    container_disk: ContainerDisk | None = None
    data_volume: DataVolume | None = None


class InstancetypeReference(ApiModel):
    """Instance type of the machines; it replaces the resources of service and Worker."""

    kind: Annotated[
        Literal["VirtualMachineClusterInstancetype", "VirtualMachineInstancetype"],
        Field(description="Kind of the instance type: of the cluster, or of the machines' namespace."),
    ] = "VirtualMachineClusterInstancetype"
    name: Annotated[Name, Field(description="Name of the instance type.")]


class PreferenceReference(ApiModel):
    """Preferences of the guests: devices, firmware, topology of the processors."""

    kind: Annotated[
        Literal["VirtualMachineClusterPreference", "VirtualMachinePreference"],
        Field(description="Kind of the preference: of the cluster, or of the machines' namespace."),
    ] = "VirtualMachineClusterPreference"
    name: Annotated[Name, Field(description="Name of the preference.")]


class KubevirtNetwork(ApiModel):
    """Networks of the machines; the guests connect to the broker over one of them."""

    model_config = add_cel_rules(
        make_cel_rule(
            "self.pod || size(self.multus) > 0", "a machine needs a network: set pod to true, or name one in multus"
        )
    )

    pod: Annotated[bool, Field(description="Adds the cluster's pod network as the first interface, by masquerade.")] = (
        True
    )
    multus: Annotated[
        list[NetworkName],
        Field(
            max_length=8,
            json_schema_extra=SET,
            description="NetworkAttachmentDefinitions, `NAME` or `NAMESPACE/NAME`, each bridged into an interface.",
        ),
    ] = []


class KubevirtProvider(ApiModel):
    """Site whose workers are KubeVirt VirtualMachineInstances of this or of another cluster (`kubeconfigSecretRef`)."""

    model_config = add_cel_rules(*IN_A_CLUSTER)

    namespace: Annotated[
        Name | None, Field(description="Namespace of the machines; by default the namespace of the pool.")
    ] = None
    kubeconfig_secret_ref: Annotated[
        SecretReference | None, Field(description="Secret with the key `kubeconfig` of a remote cluster.")
    ] = None
    root_disk: RootDisk = RootDisk()
    instancetype: InstancetypeReference | None = None
    preference: PreferenceReference | None = None
    network: KubevirtNetwork = KubevirtNetwork()
    node_selector: NodeSelector = {}
    tolerations: Tolerations = []
    priority_class_name: Annotated[Name | None, Field(description="PriorityClass of the machines.")] = None
    termination_grace_period_seconds: Annotated[
        int, Field(ge=0, le=86_400, description="Time that a guest gets to shut down before it is switched off.")
    ] = 30
