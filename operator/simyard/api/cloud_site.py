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
    Milliseconds,
    Name,
    Time,
    cel,
    map_by,
    rules,
)
from simyard.api.providers.emulated import EmulatedProvider
from simyard.api.providers.kubevirt import KubevirtProvider
from simyard.api.providers.open_nebula import OpenNebulaProvider
from simyard.api.providers.other import OtherProvider
from simyard.api.providers.pod import PodProvider


class Provider(ApiModel):
    """Exactly one member says what kind of place it is."""

    model_config = rules(
        cel(
            "(has(self.emulated) ? 1 : 0) + (has(self.pod) ? 1 : 0) + (has(self.kubevirt) ? 1 : 0)"
            " + (has(self.openNebula) ? 1 : 0) + (has(self.other) ? 1 : 0) == 1",
            "exactly one provider must be set: emulated, pod, kubevirt, openNebula or other",
        ),
        cel(
            "has(self.emulated) == has(oldSelf.emulated) && has(self.pod) == has(oldSelf.pod)"
            " && has(self.kubevirt) == has(oldSelf.kubevirt) && has(self.openNebula) == has(oldSelf.openNebula)"
            " && has(self.other) == has(oldSelf.other) && (!has(self.other) || self.other.name == oldSelf.other.name)",
            "the kind of provider is immutable: create another CloudSite",
        ),
    )

    emulated: EmulatedProvider | None = None
    pod: PodProvider | None = None
    kubevirt: KubevirtProvider | None = None
    open_nebula: OpenNebulaProvider | None = None
    other: OtherProvider | None = None

    @property
    def entry_point(self) -> str:
        """The name under which the provider is installed."""
        return self.other.name if self.other is not None else self.member()[0]

    def member(self) -> tuple[str, ApiModel]:
        """The name and the value of the member that is set."""
        for name, value in (
            ("emulated", self.emulated),
            ("pod", self.pod),
            ("kubevirt", self.kubevirt),
            ("openNebula", self.open_nebula),
            ("other", self.other),
        ):
            if value is not None:
                return name, value
        raise ValueError("spec.provider: exactly one provider must be set")


class SiteLimits(ApiModel):
    """What the platform may ask of the site at most."""

    max_workers: Annotated[int, Field(ge=0, le=1_000_000, description="Workers at the same time.")] = 1_000_000
    requests_per_second: Annotated[
        int, Field(ge=1, le=100_000, description="Requests that start, end or look at machines, at most.")
    ] = 10_000
    max_in_flight: Annotated[
        int, Field(ge=1, le=10_000, description="Such requests under way at once, at most; fewer where that is enough.")
    ] = 1000


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
    orphan_grace_seconds: Annotated[
        int, Field(ge=0, le=86_400, description="A machine of ours that has no Worker is removed after this time.")
    ] = 30


class SiteWorkers(ApiModel):
    """How many machines of ours are there, by state."""

    total: Annotated[Count, Field(description="All of them.")] = 0
    starting: Annotated[Count, Field(description="On their way: placed, getting a disk, or booting.")] = 0
    running: Annotated[Count, Field(description="Running, as the site sees it.")] = 0
    failed: Annotated[Count, Field(description="Failed, and not yet removed.")] = 0


class CallTuning(ApiModel):
    """What was learned of one kind of call, and what limits it."""

    call: Annotated[
        Literal["Create", "Delete", "Look", "Start", "Stop", "Suspend", "Restart"], Field(description="Which call.")
    ]
    in_flight: Annotated[Count, Field(description="Requests under way at once.")] = 0
    batch_size: Annotated[Count, Field(description="Requests that one call carries.")] = 0
    requests_per_second: Annotated[Count, Field(description="What the site did when it was last busy.")] = 0
    latency_milliseconds: Annotated[Milliseconds, Field(description="Median time of the newest calls.")] = 0
    high_latency_milliseconds: Annotated[Milliseconds, Field(description="19 of 20 of them took no longer.")] = 0
    throttled: Annotated[Count, Field(description="Requests refused as too many since the operator started.")] = 0
    limited_by: Annotated[
        Literal["Idle", "Growing", "Latency", "Throttled", "Bound"],
        Field(
            description="`Idle`: nothing to do. `Growing`: no limit was met yet. `Latency`: more at once only waits "
            "longer. `Throttled`: the site refuses more. `Bound`: spec.limits."
        ),
    ] = "Idle"
    message: Annotated[str, Field(max_length=1024, description="The same, for people.")] = ""


class StageMedians(ApiModel):
    """How long the newest machines stayed in each stage of their start (medians)."""

    pending_milliseconds: Annotated[Milliseconds, Field(description="Until it was placed on a host.")] = 0
    prolog_milliseconds: Annotated[Milliseconds, Field(description="Until its disk was ready.")] = 0
    boot_milliseconds: Annotated[Milliseconds, Field(description="Until the hypervisor said that it runs.")] = 0
    total_milliseconds: Annotated[Milliseconds, Field(description="From acceptance until it ran.")] = 0


class SiteBreaker(ApiModel):
    """Whether requests are sent: none while it is open, one at a time while it is half open."""

    state: Annotated[Literal["Closed", "Open", "HalfOpen"], Field(description="Closed is good.")] = "Closed"
    since: Annotated[Time | None, Field(description="Since when it is so.")] = None
    reason: Annotated[str, Field(max_length=128, description="What failed, in one word.")] = ""
    message: Annotated[str, Field(max_length=1024, description="What failed, for people.")] = ""
    next_probe_time: Annotated[Time | None, Field(description="When the site is tried next.")] = None


class CloudSiteStatus(ApiModel):
    """The observed state of the site."""

    observed_generation: Generation = 0
    version: Annotated[str, Field(max_length=256, description="What answers there.")] = ""
    workers: SiteWorkers = SiteWorkers()
    last_probe_time: Annotated[Time | None, Field(description="When the site was last asked.")] = None
    tuning: Annotated[
        list[CallTuning],
        Field(max_length=8, description="What was learned by calling it.", json_schema_extra=map_by("call")),
    ] = []
    stages: StageMedians = StageMedians()
    breaker: SiteBreaker = SiteBreaker()
    conditions: Conditions = []


class CloudSite(ApiModel):
    """A CloudSite is one place that can run workers: this cluster, a KubeVirt cluster, an OpenNebula cloud, ..."""

    metadata: Metadata
    spec: CloudSiteSpec
    status: CloudSiteStatus = CloudSiteStatus()
