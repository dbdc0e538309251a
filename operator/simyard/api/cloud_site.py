# SPDX-License-Identifier: Apache-2.0
"""Kind CloudSite: one place that can run workers."""

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
    add_cel_rules,
    make_cel_rule,
    map_by,
)
from simyard.api.providers.emulated import EmulatedProvider
from simyard.api.providers.kubevirt import KubevirtProvider
from simyard.api.providers.open_nebula import OpenNebulaProvider
from simyard.api.providers.other import OtherProvider
from simyard.api.providers.pod import PodProvider


class Provider(ApiModel):
    """Kind of the site: exactly one member is set."""

    model_config = add_cel_rules(
        make_cel_rule(
            "(has(self.emulated) ? 1 : 0) + (has(self.pod) ? 1 : 0) + (has(self.kubevirt) ? 1 : 0)"
            " + (has(self.openNebula) ? 1 : 0) + (has(self.other) ? 1 : 0) == 1",
            "exactly one provider must be set: emulated, pod, kubevirt, openNebula or other",
        ),
        make_cel_rule(
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
        """Name of the provider's entry point in the group ``simyard.sites``."""
        return self.other.name if self.other is not None else self.get_member()[0]

    def get_member(self) -> tuple[str, ApiModel]:
        """Return the name and the value of the member that is set.

        Raises:
            ValueError: No member is set.
        """
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
    """Limits that the platform obeys at the site."""

    max_workers: Annotated[
        int, Field(ge=0, le=1_000_000, description="Maximum number of Workers at the same time.")
    ] = 1_000_000
    requests_per_second: Annotated[
        int, Field(ge=1, le=100_000, description="Maximum rate of requests that start, stop, delete or read machines.")
    ] = 10_000
    max_in_flight: Annotated[
        int,
        Field(
            ge=1,
            le=10_000,
            description="Maximum number of such requests at the same time. The platform may send fewer.",
        ),
    ] = 1000


class Cost(ApiModel):
    """Price of a worker at the site, in thousandths of the currency per hour."""

    currency: Annotated[
        str, Field(pattern=r"^[A-Z]{3}$", description="ISO 4217 code of the currency, such as EUR.")
    ] = "EUR"
    worker_hour_millis: Annotated[int, Field(ge=0, le=1_000_000_000, description="Price per worker and hour.")] = 0
    core_hour_millis: Annotated[int, Field(ge=0, le=1_000_000_000, description="Price per core and hour.")] = 0


class AllowedNamespaces(ApiModel):
    """Namespaces that may use the object."""

    model_config = add_cel_rules(
        make_cel_rule(
            "self.from == 'Selected' ? size(self.names) > 0 : size(self.names) == 0",
            "names must be set with from: Selected, and must be empty with from: All",
            ".names",
        )
    )

    from_: Annotated[
        Literal["All", "Selected"],
        Field(
            alias="from",
            description="Permitted namespaces. `All`: all namespaces. `Selected`: the namespaces in `names`.",
        ),
    ] = "All"
    names: Annotated[
        list[Name],
        Field(max_length=512, json_schema_extra=SET, description="Names of the namespaces, with `from: Selected`."),
    ] = []


class CloudSiteSpec(ApiModel):
    """Desired state of a place that can run workers."""

    provider: Provider
    trust: Annotated[
        Literal["Regional", "External"],
        Field(
            description="Trust in the site: a pool uses an `External` site only if its `placement.consent` names it."
        ),
    ] = "Regional"
    limits: SiteLimits = SiteLimits()
    cost: Cost = Cost()
    allowed_namespaces: AllowedNamespaces = AllowedNamespaces()
    cordoned: Annotated[bool, Field(description="Keeps new workers away from the site; existing workers continue.")] = (
        False
    )
    orphan_grace_seconds: Annotated[
        int, Field(ge=0, le=86_400, description="Grace period after which a machine without a Worker is deleted.")
    ] = 30


class SiteWorkers(ApiModel):
    """Number of the platform's machines at the site, by state."""

    total: Annotated[Count, Field(description="Machines in any state.")] = 0
    starting: Annotated[
        Count, Field(description="Machines that are waiting for a host, getting a disk, or booting.")
    ] = 0
    running: Annotated[Count, Field(description="Machines that run, as the site reports.")] = 0
    failed: Annotated[Count, Field(description="Machines that failed and are not deleted yet.")] = 0


class CallTuning(ApiModel):
    """Measured behaviour of one kind of call, and the limit that applies to it."""

    call: Annotated[
        Literal["Create", "Delete", "Look", "Start", "Stop", "Suspend", "Restart"], Field(description="Kind of call.")
    ]
    in_flight: Annotated[Count, Field(description="Requests under way at the same time.")] = 0
    batch_size: Annotated[Count, Field(description="Requests in one call.")] = 0
    requests_per_second: Annotated[
        Count, Field(description="Requests that the site answered per second when it was last busy.")
    ] = 0
    latency_milliseconds: Annotated[Milliseconds, Field(description="Median duration of the newest calls.")] = 0
    high_latency_milliseconds: Annotated[
        Milliseconds, Field(description="95th percentile of the duration of the newest calls.")
    ] = 0
    throttled: Annotated[
        Count, Field(description="Requests that the site refused as too many since the operator started.")
    ] = 0
    limited_by: Annotated[
        Literal["Idle", "Growing", "Latency", "Throttled", "Bound"],
        Field(
            description="Limit of this kind of call. `Idle`: there is no work. `Growing`: no limit was met yet."
            " `Latency`: with more requests at the same time, each would only wait longer. `Throttled`: the"
            " site refuses more requests. `Bound`: `spec.limits` applies."
        ),
    ] = "Idle"
    message: Annotated[str, Field(max_length=1024, description="Explanation of `limitedBy` for people.")] = ""


class StageMedians(ApiModel):
    """Median duration of each stage in the starts of the newest machines."""

    pending_milliseconds: Annotated[Milliseconds, Field(description="Time until the machine was placed on a host.")] = 0
    prolog_milliseconds: Annotated[
        Milliseconds, Field(description="Time from the placement until the machine's disk was ready.")
    ] = 0
    boot_milliseconds: Annotated[
        Milliseconds, Field(description="Time from the ready disk until the hypervisor reported that the machine runs.")
    ] = 0
    total_milliseconds: Annotated[
        Milliseconds, Field(description="Time from the accepted request until the machine ran.")
    ] = 0


class SiteBreaker(ApiModel):
    """Circuit breaker of the site: no requests while it is open, one at a time while it is half open."""

    state: Annotated[
        Literal["Closed", "Open", "HalfOpen"], Field(description="State of the breaker; `Closed` is the normal state.")
    ] = "Closed"
    since: Annotated[Time | None, Field(description="Time at which the breaker entered this state.")] = None
    reason: Annotated[
        str, Field(max_length=128, description="Reason of the failure that opened the breaker, in one word.")
    ] = ""
    message: Annotated[str, Field(max_length=1024, description="Failure that opened the breaker, for people.")] = ""
    next_probe_time: Annotated[Time | None, Field(description="Time of the next probe of the site.")] = None


class CloudSiteStatus(ApiModel):
    """Observed state of the site."""

    observed_generation: Generation = 0
    version: Annotated[str, Field(max_length=256, description="Product and version that answered the last probe.")] = ""
    workers: SiteWorkers = SiteWorkers()
    last_probe_time: Annotated[Time | None, Field(description="Time of the last probe.")] = None
    tuning: Annotated[
        list[CallTuning],
        Field(
            max_length=8,
            description="Measured behaviour of the site, by kind of call.",
            json_schema_extra=map_by("call"),
        ),
    ] = []
    stages: StageMedians = StageMedians()
    breaker: SiteBreaker = SiteBreaker()
    conditions: Conditions = []


class CloudSite(ApiModel):
    """A CloudSite is one place that can run workers: this cluster, a KubeVirt cluster, an OpenNebula cloud, ..."""

    metadata: Metadata
    spec: CloudSiteSpec
    status: CloudSiteStatus = CloudSiteStatus()
