"""The OCCI frontends of a SimulationService."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from simyard.api.base import SET, ApiModel, Count, cel, rules

MOST_FRONTENDS = 64
Replicas = Annotated[int, Field(ge=1, le=MOST_FRONTENDS)]


class Autoscaling(ApiModel):
    """How many frontends serve the service, by load: more at once when a target is exceeded, fewer after a while."""

    model_config = rules(
        cel("self.minReplicas <= self.maxReplicas", "must not be above maxReplicas", ".minReplicas"),
    )

    min_replicas: Annotated[Replicas, Field(description="At least so many.")] = 2
    max_replicas: Annotated[Replicas, Field(description="At most so many.")] = 4
    target_queue_depth: Annotated[
        int, Field(ge=1, le=100_000, description="Requests that may wait in the AMQP queue, for each frontend.")
    ] = 10
    target_latency_milliseconds: Annotated[
        int,
        Field(ge=1, le=60_000, description="Mean time in which a frontend answers a read, and is late to begin it."),
    ] = 100


class Frontend(ApiModel):
    """The OCCI frontends of the service: so many, or as many as the load asks for."""

    model_config = rules(
        cel("has(self.replicas) != has(self.autoscaling)", "exactly one of replicas and autoscaling must be set"),
    )

    replicas: Annotated[int | None, Field(ge=0, le=MOST_FRONTENDS, description="How many, whatever the load.")] = None
    autoscaling: Autoscaling | None = None


class FrontendsStatus(ApiModel):
    """How many frontends there are."""

    desired: Annotated[Count, Field(description="How many there should be.")]
    ready: Annotated[Count, Field(description="How many answer requests.")]


Endpoints = Annotated[
    list[Annotated[str, Field(max_length=2048)]],
    Field(max_length=4, json_schema_extra=SET, description="URLs under which the service is served over OCCI."),
]
