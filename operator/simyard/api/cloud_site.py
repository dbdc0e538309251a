"""CloudSite: one place that can run workers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from simyard.api.base import (
    SET,
    ApiModel,
    Conditions,
    Count,
    Generation,
    Metadata,
    Name,
    SecretReference,
    Time,
    cel,
    rules,
)

UpToADay = Annotated[int, Field(ge=0, le=86_400_000)]


class Latencies(ApiModel):
    """How long a machine of an emulated site stays in each stage of its start."""

    pending_milliseconds: Annotated[UpToADay, Field(description="Until it is placed on a host.")] = 0
    prolog_milliseconds: Annotated[UpToADay, Field(description="Until its disk is ready.")] = 0
    boot_milliseconds: Annotated[UpToADay, Field(description="Until the hypervisor says that it runs.")] = 0


class EmulatedProvider(ApiModel):
    """A cloud that is emulated on the operator's machine. Its guests are real adapters; its times are settings."""

    guests: Annotated[
        Literal["process", "shared"],
        Field(description="`process`: one adapter process per machine. `shared`: all adapters in one process."),
    ] = "process"
    latencies: Latencies = Latencies()
    jitter_percent: Annotated[int, Field(ge=0, le=100, description="Each latency varies by up to this share.")] = 0
    failure_percent: Annotated[int, Field(ge=0, le=100, description="This share of the machines fails to boot.")] = 0


class PodProvider(ApiModel):
    """Workers are pods of the cluster that runs the operator."""

    service_account_name: Annotated[Name | None, Field(description="Identity of the worker pods; none by default.")] = (
        None
    )


class KubevirtProvider(ApiModel):
    """Workers are KubeVirt VirtualMachineInstances, in this cluster or in the one of `kubeconfigSecretRef`."""

    namespace: Annotated[Name | None, Field(description="Namespace of the machines; the pool's own by default.")] = None
    kubeconfig_secret_ref: Annotated[
        SecretReference | None, Field(description="Secret with the key `kubeconfig` of a remote cluster.")
    ] = None


class OpenNebulaProvider(ApiModel):
    """Workers are virtual machines of an OpenNebula cloud."""

    endpoint: Annotated[
        str, Field(max_length=2048, pattern=r"^https?://", description="URL of the XML-RPC API, ending in /RPC2.")
    ]
    credentials_secret_ref: Annotated[
        SecretReference, Field(description="Secret with the keys `username` and `password` (or a login token).")
    ]
    template: Annotated[str, Field(min_length=1, max_length=128, description="Name of the template to instantiate.")]


PROVIDERS = ("emulated", "pod", "kubevirt", "openNebula")


class Provider(ApiModel):
    """Exactly one member says what kind of place it is."""

    model_config = rules(
        cel(
            "(has(self.emulated) ? 1 : 0) + (has(self.pod) ? 1 : 0) + (has(self.kubevirt) ? 1 : 0)"
            " + (has(self.openNebula) ? 1 : 0) == 1",
            "exactly one provider must be set: emulated, pod, kubevirt or openNebula",
        ),
        cel(
            "has(self.emulated) == has(oldSelf.emulated) && has(self.pod) == has(oldSelf.pod)"
            " && has(self.kubevirt) == has(oldSelf.kubevirt) && has(self.openNebula) == has(oldSelf.openNebula)",
            "the kind of provider is immutable: create another CloudSite",
        ),
    )

    emulated: EmulatedProvider | None = None
    pod: PodProvider | None = None
    kubevirt: KubevirtProvider | None = None
    open_nebula: OpenNebulaProvider | None = None

    def member(self) -> tuple[str, ApiModel]:
        """The name and the value of the member that is set."""
        for name, value in (
            ("emulated", self.emulated),
            ("pod", self.pod),
            ("kubevirt", self.kubevirt),
            ("openNebula", self.open_nebula),
        ):
            if value is not None:
                return name, value
        raise ValueError("spec.provider: exactly one provider must be set")


class SiteLimits(ApiModel):
    """What the platform may ask of the site at most."""

    max_workers: Annotated[int, Field(ge=0, le=1_000_000, description="Workers at the same time.")] = 1_000_000
    requests_per_second: Annotated[int, Field(ge=1, le=100_000, description="Requests that start or end machines.")] = (
        1000
    )
    max_in_flight: Annotated[int, Field(ge=1, le=10_000, description="Such requests under way at once.")] = 64


class Cost(ApiModel):
    """What a worker costs there, in thousandths of the currency per hour."""

    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$", description="ISO 4217 code, such as EUR.")] = "EUR"
    worker_hour_millis: Annotated[int, Field(ge=0, le=1_000_000_000, description="Per worker and hour.")] = 0
    core_hour_millis: Annotated[int, Field(ge=0, le=1_000_000_000, description="Per core and hour.")] = 0


class AllowedNamespaces(ApiModel):
    """Which namespaces may run workers there."""

    model_config = rules(
        cel(
            "self.from == 'Selected' ? size(self.names) > 0 : size(self.names) == 0",
            "names must be given with from: Selected, and only then",
            ".names",
        )
    )

    from_: Annotated[Literal["All", "Selected"], Field(alias="from", description="`All`, or `Selected` by name.")] = (
        "All"
    )
    names: Annotated[
        list[Name],
        Field(max_length=512, json_schema_extra=SET, description="Those namespaces, with `Selected`."),
    ] = []


class CloudSiteSpec(ApiModel):
    """One place that can run workers."""

    provider: Provider
    trust: Annotated[
        Literal["Regional", "External"],
        Field(description="Data goes to an `External` site only where the pool consents by name."),
    ] = "Regional"
    limits: SiteLimits = SiteLimits()
    cost: Cost = Cost()
    allowed_namespaces: AllowedNamespaces = AllowedNamespaces()
    cordoned: Annotated[bool, Field(description="No new workers start there; those that run go on.")] = False


class SiteWorkers(ApiModel):
    """How many machines of ours are there, by state."""

    total: Annotated[Count, Field(description="All of them.")] = 0
    starting: Annotated[Count, Field(description="On their way: placed, getting a disk, or booting.")] = 0
    running: Annotated[Count, Field(description="Running, as the site sees it.")] = 0
    failed: Annotated[Count, Field(description="Failed, and not yet removed.")] = 0


class CloudSiteStatus(ApiModel):
    """The observed state of the site."""

    observed_generation: Generation = 0
    version: Annotated[str, Field(max_length=256, description="What answers there.")] = ""
    workers: SiteWorkers = SiteWorkers()
    last_probe_time: Annotated[Time | None, Field(description="When the site was last asked.")] = None
    conditions: Conditions = []


class CloudSite(ApiModel):
    """A CloudSite is one place that can run workers: this cluster, a KubeVirt cluster, an OpenNebula cloud, ..."""

    metadata: Metadata
    spec: CloudSiteSpec
    status: CloudSiteStatus = CloudSiteStatus()
