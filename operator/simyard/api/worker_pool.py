"""WorkerPool: N workers of one service."""

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

Reason = Annotated[str, Field(max_length=128, description="Why, in one word for programs.")]
Message = Annotated[str, Field(max_length=1024, description="What happened, for people.")]
CountOrPercent = (
    Annotated[str, Field(max_length=4, pattern=r"^(100|[1-9]?[0-9])%$")] | Annotated[int, Field(ge=1, le=100_000)]
)
"""``5`` or ``10%``."""


class Placement(ApiModel):
    """Where the workers run."""

    sites: Annotated[
        list[Name],
        Field(max_length=64, json_schema_extra=SET, description="CloudSites, in order; every permitted one if empty."),
    ] = []
    strategy: Annotated[
        Literal["Ordered", "Spread", "Cheapest", "Fastest"],
        Field(description="`Ordered` fills one site after the other, `Spread` keeps them even."),
    ] = "Ordered"
    consent: Annotated[
        list[Name],
        Field(
            max_length=64,
            json_schema_extra=SET,
            description="The External sites that may get this pool's data; no External site is used without.",
        ),
    ] = []
    site_failure: Annotated[
        Literal["Replace", "Wait"],
        Field(
            description="While a site is not Ready, its lost workers are replaced elsewhere (`Replace`) or waited for."
        ),
    ] = "Replace"
    rebalance: Annotated[
        Literal["Never", "WhenIdle"],
        Field(
            description="With `WhenIdle`, workers that rest go (back) to sites that the strategy prefers "
            "when these have room, `rollout.maxUnavailable` at a time."
        ),
    ] = "Never"


class StartPolicy(ApiModel):
    """When a start counts as done, and what becomes of stragglers."""

    quorum_percent: Annotated[
        int, Field(ge=1, le=100, description="The pool is Available when this share of its workers is ready.")
    ] = 100
    deadline_seconds: Annotated[
        int | None,
        Field(
            ge=1,
            le=86_400,
            description="Workers not ready by then are replaced, `rollout.maxUnavailable` at a time; while none of"
            " those comes up the deadline grows, so that a slow site catches up. The service's by default.",
        ),
    ] = None


class RolloutPolicy(ApiModel):
    """How workers are replaced when the service or the pool's attributes change (except texts and time limits)."""

    max_unavailable: Annotated[
        CountOrPercent,
        Field(
            description="How many workers may be missing or draining at a time: a number, or a percentage of the"
            " replicas (rounded down, at least one). Those that are not ready are replaced first."
        ),
    ] = "10%"


class ScaleInPolicy(ApiModel):
    """Which workers go first when there are too many."""

    policy: Annotated[
        Literal["IdleFirst", "Newest", "Oldest"],
        Field(description="Workers that are not ready always go first."),
    ] = "IdleFirst"
    drain_seconds: Annotated[
        int | None,
        Field(
            ge=0,
            le=2_592_000,
            description="How long a worker may finish what it runs before it is ended; by default as long as the"
            " timeout of its ServiceAction permits.",
        ),
    ] = None


class WorkerPoolSpec(ApiModel):
    """N workers of one service."""

    service_ref: Annotated[LocalReference, Field(description="The SimulationService.", json_schema_extra=IMMUTABLE)]
    replicas: Annotated[int, Field(ge=0, le=100_000, description="How many workers there should be.")] = 1
    placement: Placement = Placement()
    start: StartPolicy = StartPolicy()
    rollout: RolloutPolicy = RolloutPolicy()
    scale_in: ScaleInPolicy = ScaleInPolicy()
    suspend: Annotated[bool, Field(description="No workers while it is true; replicas is kept.")] = False
    idle_timeout_seconds: Annotated[
        int | None,
        Field(
            ge=1,
            le=31_536_000,
            description="After so long without an action the pool has no workers until an action waits for it, or its"
            " spec changes; replicas is kept. Counted from the last action, registration or change; not set: never.",
        ),
    ] = None
    reserved_for_sync: Annotated[
        CountOrPercent | None,
        Field(
            description="How many ready workers ServiceActions on the pool or its service leave free, so that Sync"
            " calls are answered while a backlog waits: a number, or a percentage of the ready workers (rounded down)."
            " None by default."
        ),
    ] = None
    attributes: Annotated[
        Values,
        Field(
            description="Initial values of the service's attributes, by name. At most 65,536 characters of texts and"
            " names in all, where each number counts as 16, and lists and objects nest at most 6 deep."
        ),
    ] = {}


class StageTime(ApiModel):
    """How long one stage took, over the workers of a start."""

    median_milliseconds: Annotated[Milliseconds, Field(description="Half of the workers were through after this.")]
    slowest_milliseconds: Annotated[Milliseconds, Field(description="The last worker was through after this.")]


class StartStages(ApiModel):
    """How long the stages of a start took; each is named after its end."""

    pending: Annotated[
        StageTime | None, Field(description="From the request until the site accepted it (`start -> pending`).")
    ] = None
    prolog: Annotated[StageTime | None, Field(description="Until placed on a host (`pending -> prolog`).")] = None
    boot: Annotated[StageTime | None, Field(description="Until the disk was ready (`prolog -> boot`).")] = None
    running: Annotated[
        StageTime | None, Field(description="Until the hypervisor said that it runs (`boot -> running`).")
    ] = None
    registered: Annotated[
        StageTime | None, Field(description="Until the service adapter's message (`running -> registered`).")
    ] = None


class PoolStart(ApiModel):
    """The newest start: from the change that asked for more workers until all were there (milliseconds)."""

    requested_time: Annotated[Time, Field(description="When the change was seen.")]
    workers: Annotated[Count, Field(description="How many were started.")]
    boot_milliseconds: Annotated[
        Milliseconds | None, Field(description="T_boot: all machines booted, as the sites see it.")
    ] = None
    registered_milliseconds: Annotated[
        Milliseconds | None, Field(description="T_r: all services registered, as the platform sees it.")
    ] = None
    published_milliseconds: Annotated[
        Milliseconds | None,
        Field(description="T_m: the API server has stored that all workers are ready, and tells whoever watches."),
    ] = None
    stages: StartStages | None = None


class PoolFailure(ApiModel):
    """A worker that failed."""

    time: Annotated[Time, Field(description="When it failed.")]
    worker: Annotated[Name, Field(description="The worker.")]
    reason: Reason
    message: Message = ""


class PoolActivity(ApiModel):
    """Something that the platform did for the pool."""

    time: Annotated[Time, Field(description="When it was done.")]
    reason: Reason
    message: Message = ""


class BrokerCredentials(ApiModel):
    """The password of the pool's user at the message broker, which changes while its workers run."""

    generation: Annotated[Count, Field(description="How often the password was changed for this pool alone.")] = 0
    rotated_time: Annotated[Time | None, Field(description="When that was last done.")] = None
    worker_left_time: Annotated[
        Time | None, Field(description="When the first worker left the pool that knew the present password.")
    ] = None


class WorkerPoolStatus(ApiModel):
    """The observed state of the pool: counters, never a list of its workers."""

    observed_generation: Generation = 0
    replicas: Annotated[Count, Field(description="Workers that exist.")] = 0
    ready_replicas: Annotated[Count, Field(description="Workers that take actions.")] = 0
    starting_replicas: Annotated[Count, Field(description="Workers on their way.")] = 0
    failed_replicas: Annotated[
        Count, Field(description="Workers that failed and whose successors are not ready yet.")
    ] = 0
    updated_replicas: Annotated[
        Count, Field(description="Workers that are as the service and the pool say now, ready or on their way.")
    ] = 0
    licensed_replicas: Annotated[
        Count | None, Field(description="Workers for which it has seats of the service's licence, if there is one.")
    ] = None
    selector: Annotated[str, Field(max_length=512, description="Label selector of its workers.")] = ""
    start: PoolStart | None = None
    broker_credentials: BrokerCredentials | None = None
    last_active_time: Annotated[
        Time | None,
        Field(description="From when `idleTimeoutSeconds` counts, rounded up so that it seldom changes."),
    ] = None
    failures: Annotated[
        list[PoolFailure], Field(max_length=10, json_schema_extra=ATOMIC, description="The last workers that failed.")
    ] = []
    activities: Annotated[
        list[PoolActivity], Field(max_length=20, json_schema_extra=ATOMIC, description="What was done last.")
    ] = []
    conditions: Conditions = []


class WorkerPool(ApiModel):
    """A WorkerPool keeps N workers of a SimulationService running."""

    metadata: Metadata
    spec: WorkerPoolSpec
    status: WorkerPoolStatus = WorkerPoolStatus()
