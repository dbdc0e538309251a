# SPDX-License-Identifier: Apache-2.0
"""Kind WorkerPool: N workers of one service."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from simyard.api.base import (
    ATOMIC,
    IMMUTABLE,
    SET,
    ApiModel,
    Conditions,
    Count,
    Generation,
    LocalReference,
    Metadata,
    Milliseconds,
    Name,
    Time,
    Values,
)

Reason = Annotated[str, Field(max_length=128, description="Reason, one word for programs.")]
Message = Annotated[str, Field(max_length=1024, description="Explanation for people.")]
CountOrPercent = (
    Annotated[str, Field(max_length=4, pattern=r"^(100|[1-9]?[0-9])%$")] | Annotated[int, Field(ge=1, le=100_000)]
)
"""Number of workers, such as ``5``, or percentage, such as ``10%``."""


class Placement(ApiModel):
    """Sites at which the workers run."""

    sites: Annotated[
        list[Name],
        Field(
            max_length=64,
            json_schema_extra=SET,
            description="CloudSites in order of preference; empty: every permitted CloudSite.",
        ),
    ] = []
    strategy: Annotated[
        Literal["Ordered", "Spread", "Cheapest", "Fastest"],
        Field(
            description="Order in which sites get workers. `Ordered` fills one site after the other in the order of"
            " `sites`, `Cheapest` in the order of price, `Fastest` in the order of boot time. `Spread` keeps"
            " the number of workers equal at all sites."
        ),
    ] = "Ordered"
    consent: Annotated[
        list[Name],
        Field(
            max_length=64,
            json_schema_extra=SET,
            description="External sites that may receive this pool's data; the pool uses no other External site.",
        ),
    ] = []
    site_failure: Annotated[
        Literal["Replace", "Wait"],
        Field(
            description="Treatment of lost workers while their site is not Ready. `Replace` creates new workers at"
            " other sites. `Wait` waits until the site is Ready again."
        ),
    ] = "Replace"
    rebalance: Annotated[
        Literal["Never", "WhenIdle"],
        Field(
            description="With `WhenIdle`, idle workers move to sites that the strategy prefers, as soon as these sites"
            " have room. At most `rollout.maxUnavailable` workers move at a time."
        ),
    ] = "Never"


class StartPolicy(ApiModel):
    """Conditions under which a start is complete, and the treatment of slow workers."""

    quorum_percent: Annotated[
        int, Field(ge=1, le=100, description="Minimum share of ready workers with which the pool is Available.")
    ] = 100
    deadline_seconds: Annotated[
        int | None,
        Field(
            ge=1,
            le=86_400,
            description="Timeout for the registration of a worker; by default the timeout of the service. The pool"
            " replaces workers that exceed it, at most `rollout.maxUnavailable` at a time. The timeout grows"
            " while no replacement becomes ready, so that a slow site can finish.",
        ),
    ] = None


class RolloutPolicy(ApiModel):
    """Replacement of workers after a change of the service or of the pool's attributes (except texts and timeouts)."""

    max_unavailable: Annotated[
        CountOrPercent,
        Field(
            description="Maximum number of workers that may be missing or draining at the same time: a number, or a"
            " percentage of the replicas (rounded down, at least one). Workers that are not ready are replaced first."
        ),
    ] = "10%"


class ScaleInPolicy(ApiModel):
    """Order in which surplus workers are removed, and the time to drain them."""

    policy: Annotated[
        Literal["IdleFirst", "Newest", "Oldest"],
        Field(description="Order of removal among ready workers; workers that are not ready are removed first."),
    ] = "IdleFirst"
    drain_seconds: Annotated[
        int | None,
        Field(
            ge=0,
            le=2_592_000,
            description="Time that a worker gets to finish its actions before it is deleted; by default the timeout"
            " of its ServiceAction.",
        ),
    ] = None


class WorkerPoolSpec(ApiModel):
    """Desired state of a pool: N workers of one service."""

    service_ref: Annotated[
        LocalReference, Field(description="SimulationService that the workers run.", json_schema_extra=IMMUTABLE)
    ]
    replicas: Annotated[int, Field(ge=0, le=100_000, description="Desired number of workers.")] = 1
    placement: Placement = Placement()
    start: StartPolicy = StartPolicy()
    rollout: RolloutPolicy = RolloutPolicy()
    scale_in: ScaleInPolicy = ScaleInPolicy()
    suspend: Annotated[
        bool, Field(description="If true, the pool removes all workers and keeps the value of `replicas`.")
    ] = False
    idle_timeout_seconds: Annotated[
        int | None,
        Field(
            ge=1,
            le=31_536_000,
            description="Time without an action after which the pool removes its workers; `replicas` is kept. The pool"
            " creates workers again when an action waits for it, or when its spec changes. The time counts"
            " from the last action, registration or change of the spec. By default the pool keeps its workers.",
        ),
    ] = None
    reserved_for_sync: Annotated[
        CountOrPercent | None,
        Field(
            description="Ready workers that stay free for Sync calls while ServiceActions on the pool or its service"
            " wait: a number, or a percentage of the ready workers (rounded down). By default no workers are"
            " reserved."
        ),
    ] = None
    attributes: Annotated[
        Values,
        Field(
            description="Initial values of the service's attributes, by name. All texts and names together have at"
            " most 65,536 characters, where each number counts as 16. Lists and objects nest at most 6 levels deep."
        ),
    ] = {}


class StageTime(ApiModel):
    """Duration of one stage, over the workers of a start."""

    median_milliseconds: Annotated[Milliseconds, Field(description="Median duration.")]
    slowest_milliseconds: Annotated[Milliseconds, Field(description="Duration of the slowest worker.")]


class StartStages(ApiModel):
    """Durations of the stages of a start; each stage is named after its end."""

    pending: Annotated[
        StageTime | None, Field(description="Time from the request until the site accepted it (`start -> pending`).")
    ] = None
    prolog: Annotated[
        StageTime | None, Field(description="Time until the machine was placed on a host (`pending -> prolog`).")
    ] = None
    boot: Annotated[StageTime | None, Field(description="Time until the disk was ready (`prolog -> boot`).")] = None
    running: Annotated[
        StageTime | None,
        Field(description="Time until the hypervisor reported that the machine runs (`boot -> running`)."),
    ] = None
    registered: Annotated[
        StageTime | None, Field(description="Time until the service adapter registered (`running -> registered`).")
    ] = None


class PoolStart(ApiModel):
    """Newest start of the pool: from the change that asked for more workers until all were ready."""

    requested_time: Annotated[Time, Field(description="Time at which the operator saw the change.")]
    workers: Annotated[Count, Field(description="Number of workers to start.")]
    boot_milliseconds: Annotated[
        Milliseconds | None, Field(description="T_boot: time until all machines ran, as the sites report.")
    ] = None
    registered_milliseconds: Annotated[
        Milliseconds | None, Field(description="T_r: time until all workers had registered with the platform.")
    ] = None
    published_milliseconds: Annotated[
        Milliseconds | None,
        Field(
            description="T_m: time until the API server had stored that all workers are ready. From then on its"
            " watchers see this."
        ),
    ] = None
    stages: StartStages | None = None


class PoolFailure(ApiModel):
    """Failure of one worker."""

    time: Annotated[Time, Field(description="Time of the failure.")]
    worker: Annotated[Name, Field(description="Name of the worker.")]
    reason: Reason
    message: Message = ""


class PoolActivity(ApiModel):
    """Action of the platform for the pool."""

    time: Annotated[Time, Field(description="Time of the action.")]
    reason: Reason
    message: Message = ""


class BrokerCredentials(ApiModel):
    """Rotation of the password of the pool's user at the message broker."""

    generation: Annotated[Count, Field(description="Number of changes of the password for this pool alone.")] = 0
    rotated_time: Annotated[Time | None, Field(description="Time of the last of these changes.")] = None
    worker_left_time: Annotated[
        Time | None, Field(description="Time at which the first worker that knew the present password left the pool.")
    ] = None


class WorkerPoolStatus(ApiModel):
    """Observed state of the pool: counters, but no list of its workers."""

    observed_generation: Generation = 0
    replicas: Annotated[Count, Field(description="Workers that exist.")] = 0
    ready_replicas: Annotated[Count, Field(description="Workers that accept actions.")] = 0
    starting_replicas: Annotated[Count, Field(description="Workers that are starting.")] = 0
    failed_replicas: Annotated[
        Count, Field(description="Workers that failed and whose replacements are not ready yet.")
    ] = 0
    updated_replicas: Annotated[
        Count, Field(description="Workers with the present revision of service and pool, ready or starting.")
    ] = 0
    licensed_replicas: Annotated[
        Count | None, Field(description="Workers for which the pool has seats, if its service has a licence.")
    ] = None
    selector: Annotated[str, Field(max_length=512, description="Label selector of the pool's workers.")] = ""
    start: PoolStart | None = None
    broker_credentials: BrokerCredentials | None = None
    last_active_time: Annotated[
        Time | None,
        Field(description="Time from which `idleTimeoutSeconds` counts, rounded up so that it seldom changes."),
    ] = None
    failures: Annotated[
        list[PoolFailure], Field(max_length=10, json_schema_extra=ATOMIC, description="Newest failures of workers.")
    ] = []
    activities: Annotated[
        list[PoolActivity],
        Field(max_length=20, json_schema_extra=ATOMIC, description="Newest actions of the platform."),
    ] = []
    conditions: Conditions = []


class WorkerPool(ApiModel):
    """A WorkerPool keeps N workers of a SimulationService running."""

    metadata: Metadata
    spec: WorkerPoolSpec
    status: WorkerPoolStatus = WorkerPoolStatus()
