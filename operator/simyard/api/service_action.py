"""ServiceAction: one durable invocation of an action."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from simyard.api.base import (
    ATOMIC_MAP,
    FREE_FORM,
    IMMUTABLE,
    ApiModel,
    Conditions,
    Count,
    Generation,
    Metadata,
    Milliseconds,
    Name,
    Term,
    Time,
    Values,
    cel,
    rules,
)


class ActionTarget(ApiModel):
    """On what the action is called: one worker, any free worker of a pool, or any free worker of a service."""

    kind: Annotated[
        Literal["Worker", "WorkerPool", "SimulationService"],
        Field(description="`Worker`: that one; `WorkerPool` and `SimulationService`: any free worker of it."),
    ]
    name: Annotated[Name, Field(description="Its name, in the same namespace.")]


class ServiceActionSpec(ApiModel):
    """One durable invocation of an action. Only `cancel` and `ttlSecondsAfterFinished` may change."""

    model_config = rules(
        cel("self.?timeoutSeconds == oldSelf.?timeoutSeconds", "is immutable", ".timeoutSeconds"),
        cel("!oldSelf.cancel || self.cancel", "cannot be taken back", ".cancel"),
    )

    target: Annotated[ActionTarget, Field(json_schema_extra=IMMUTABLE)]
    action: Annotated[Term, Field(description="The name of the action.", json_schema_extra=IMMUTABLE)]
    parameters: Annotated[
        Values,
        Field(
            description="As the service's interface declares them. At most 1,114,112 characters of texts and names in"
            " all, where each number counts as 16, and lists and objects nest at most 6 deep.",
            json_schema_extra={**FREE_FORM, **IMMUTABLE, **ATOMIC_MAP},
        ),
    ] = {}
    timeout_seconds: Annotated[
        int | None,
        Field(ge=1, le=2_592_000, description="Cancel it after this time; at most, and by default, the declared time."),
    ] = None
    cancel: Annotated[bool, Field(description="Set it to cancel the invocation.")] = False
    ttl_seconds_after_finished: Annotated[
        int, Field(ge=0, le=31_536_000, description="The object is deleted this long after it finished.")
    ] = 86_400


class ActionFailure(ApiModel):
    """Why it failed."""

    reason: Annotated[str, Field(max_length=128, description="Why, in one word for programs.")]
    message: Annotated[str, Field(max_length=16_384, description="Why, in the words of the program that failed.")] = ""


class ServiceActionStatus(ApiModel):
    """The observed state of the invocation."""

    observed_generation: Generation = 0
    worker: Annotated[str, Field(max_length=253, description="The worker that runs it or ran it.")] = ""
    worker_uid: Annotated[str, Field(max_length=64, description="Its uid.")] = ""
    revision: Annotated[str, Field(max_length=64, description="The revision of that worker.")] = ""
    version: Annotated[
        str, Field(max_length=64, description="The service's version that the worker was made from.")
    ] = ""
    attempts: Annotated[Count, Field(description="How often it was given to a worker.")] = 0
    percent: Annotated[int | None, Field(ge=0, le=100, description="How much of it is done.")] = None
    progress: Annotated[str, Field(max_length=1024, description="What it does now.")] = ""
    started_time: Annotated[Time | None, Field(description="When the worker began with it.")] = None
    finished_time: Annotated[Time | None, Field(description="When it was done or had failed.")] = None
    run_milliseconds: Annotated[Milliseconds | None, Field(description="How long it ran.")] = None
    result: Annotated[Any, Field(json_schema_extra=FREE_FORM, description="As the interface declares it.")] = None
    failure: ActionFailure | None = None
    conditions: Conditions = []


class ServiceAction(ApiModel):
    """A ServiceAction is one invocation of an action that survives every process, with its result."""

    metadata: Metadata
    spec: ServiceActionSpec
    status: ServiceActionStatus = ServiceActionStatus()
