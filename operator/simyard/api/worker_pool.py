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


class StartPolicy(ApiModel):
    """When a start counts as done, and what becomes of stragglers."""

    quorum_percent: Annotated[
        int, Field(ge=1, le=100, description="The pool is Available when this share of its workers is ready.")
    ] = 100
    deadline_seconds: Annotated[
        int | None,
        Field(ge=1, le=86_400, description="Workers not ready by then are replaced; the service's by default."),
    ] = None


class ScaleInPolicy(ApiModel):
    """Which workers go first when there are too many."""

    policy: Annotated[
        Literal["IdleFirst", "Newest", "Oldest"],
        Field(description="Workers that are not ready always go first."),
    ] = "IdleFirst"
    drain_seconds: Annotated[
        int, Field(ge=0, le=86_400, description="How long a worker may finish what it runs before it is ended.")
    ] = 30


class WorkerPoolSpec(ApiModel):
    """N workers of one service."""

    service_ref: Annotated[LocalReference, Field(description="The SimulationService.", json_schema_extra=IMMUTABLE)]
    replicas: Annotated[int, Field(ge=0, le=100_000, description="How many workers there should be.")] = 1
    placement: Placement = Placement()
    start: StartPolicy = StartPolicy()
    scale_in: ScaleInPolicy = ScaleInPolicy()
    suspend: Annotated[bool, Field(description="No workers while it is true; replicas is kept.")] = False
    attributes: Annotated[Values, Field(description="Initial values of the service's attributes, by name.")] = {}


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


class WorkerPoolStatus(ApiModel):
    """The observed state of the pool: counters, never a list of its workers."""

    observed_generation: Generation = 0
    replicas: Annotated[Count, Field(description="Workers that exist.")] = 0
    ready_replicas: Annotated[Count, Field(description="Workers that take actions.")] = 0
    starting_replicas: Annotated[Count, Field(description="Workers on their way.")] = 0
    failed_replicas: Annotated[Count, Field(description="Workers about to be replaced.")] = 0
    selector: Annotated[str, Field(max_length=512, description="Label selector of its workers.")] = ""
    start: PoolStart | None = None
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
