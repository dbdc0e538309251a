"""Workers as KubeVirt VirtualMachineInstances."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from simyard.api.base import SET, ApiModel, Name, Quantity, SecretReference, cel, rules
from simyard.api.providers.identity import IN_A_CLUSTER
from simyard.api.providers.scheduling import NodeSelector, Tolerations

NetworkName = Annotated[
    str,
    Field(min_length=1, max_length=127, pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"),
]


class ContainerDisk(ApiModel):
    """The root disk is in the container image that the service names; what a machine writes is lost with it."""

    image_pull_policy: Annotated[
        Literal["Always", "IfNotPresent", "Never"] | None,
        Field(description="When a node pulls the image; by default as for any pod."),
    ] = None
    image_pull_secret: Annotated[
        Name | None, Field(description="Secret of the machines' namespace with the registry's credentials.")
    ] = None


class DataSource(ApiModel):
    """A prepared disk in the machines' cluster, of which each machine gets a clone."""

    namespace: Annotated[Name, Field(description="Namespace of the disk.")]
    name: Annotated[
        Name | None,
        Field(description="Name of the disk; by default the last part of the service's image, without its tag."),
    ] = None


class DataVolume(ApiModel):
    """The root disk is a volume of each machine's own, made by CDI: a clone, or (slow) an import of the image."""

    model_config = rules(
        cel(
            "!has(self.dataSource) || !has(self.persistentVolumeClaim)",
            "only one of dataSource and persistentVolumeClaim",
        )
    )

    size: Annotated[Quantity, Field(description="Size of the disk.")]
    storage_class_name: Annotated[Name | None, Field(description="Its storage class; the default one by default.")] = (
        None
    )
    data_source: Annotated[DataSource | None, Field(description="A DataSource of CDI to clone.")] = None
    persistent_volume_claim: Annotated[DataSource | None, Field(description="A PersistentVolumeClaim to clone.")] = None


class RootDisk(ApiModel):
    """Where a machine's root disk comes from: at most one member; without any, `containerDisk: {}`."""

    model_config = rules(
        cel("!has(self.containerDisk) || !has(self.dataVolume)", "only one of containerDisk and dataVolume")
    )

    container_disk: ContainerDisk | None = None
    data_volume: DataVolume | None = None


class InstancetypeReference(ApiModel):
    """The shape of the machines; instead of the resources of service and Worker, which are then not looked at."""

    kind: Annotated[
        Literal["VirtualMachineClusterInstancetype", "VirtualMachineInstancetype"],
        Field(description="Of the cluster, or of the machines' namespace."),
    ] = "VirtualMachineClusterInstancetype"
    name: Annotated[Name, Field(description="Its name.")]


class PreferenceReference(ApiModel):
    """What the guests prefer: devices, firmware, the topology of their processors."""

    kind: Annotated[
        Literal["VirtualMachineClusterPreference", "VirtualMachinePreference"],
        Field(description="Of the cluster, or of the machines' namespace."),
    ] = "VirtualMachineClusterPreference"
    name: Annotated[Name, Field(description="Its name.")]


class KubevirtNetwork(ApiModel):
    """The networks of the machines, whose guests dial out to the broker over one of them."""

    model_config = rules(cel("self.pod || size(self.multus) > 0", "a machine needs a network"))

    pod: Annotated[bool, Field(description="The cluster's pod network, by masquerade, as the first interface.")] = True
    multus: Annotated[
        list[NetworkName],
        Field(
            max_length=8,
            json_schema_extra=SET,
            description="NetworkAttachmentDefinitions, `NAME` or `NAMESPACE/NAME`, each bridged into an interface.",
        ),
    ] = []


class KubevirtProvider(ApiModel):
    """Workers are KubeVirt VirtualMachineInstances, in this cluster or in the one of `kubeconfigSecretRef`."""

    model_config = rules(*IN_A_CLUSTER)

    namespace: Annotated[Name | None, Field(description="Namespace of the machines; the pool's own by default.")] = None
    kubeconfig_secret_ref: Annotated[
        SecretReference | None, Field(description="Secret with the key `kubeconfig` of a remote cluster.")
    ] = None
    root_disk: RootDisk = RootDisk()
    instancetype: InstancetypeReference | None = None
    preference: PreferenceReference | None = None
    network: KubevirtNetwork = KubevirtNetwork()
    node_selector: NodeSelector = {}
    tolerations: Tolerations = []
    priority_class_name: Annotated[Name | None, Field(description="Priority of the machines.")] = None
    termination_grace_period_seconds: Annotated[
        int, Field(ge=0, le=86_400, description="So long a guest may take to shut down before it is switched off.")
    ] = 30
