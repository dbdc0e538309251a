# SPDX-License-Identifier: Apache-2.0
"""Part ``spec.frontend`` of the kind SimulationService: the OCCI frontends of a service."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from simyard.api.base import SET, ApiModel, Count, add_cel_rules, make_cel_rule

MAX_FRONTENDS = 64
Replicas = Annotated[int, Field(ge=1, le=MAX_FRONTENDS)]


class Autoscaling(ApiModel):
    """Scaling of the frontends by load: more at once when a target is exceeded, fewer after some minutes."""

    model_config = add_cel_rules(
        make_cel_rule("self.minReplicas <= self.maxReplicas", "must not be greater than maxReplicas", ".minReplicas"),
    )

    min_replicas: Annotated[Replicas, Field(description="Minimum number of frontends.")] = 2
    max_replicas: Annotated[Replicas, Field(description="Maximum number of frontends.")] = 4
    target_queue_depth: Annotated[
        int, Field(ge=1, le=100_000, description="Target number of waiting requests in the AMQP queue, per frontend.")
    ] = 10
    target_latency_milliseconds: Annotated[
        int,
        Field(
            ge=1,
            le=60_000,
            description="Target of the mean latency of reads: the wait before a frontend begins, and its work.",
        ),
    ] = 100


class Frontend(ApiModel):
    """OCCI frontends of the service: a fixed number, or a number that follows the load."""

    model_config = add_cel_rules(
        make_cel_rule(
            "has(self.replicas) != has(self.autoscaling)", "exactly one of replicas and autoscaling must be set"
        ),
    )

    replicas: Annotated[int | None, Field(ge=0, le=MAX_FRONTENDS, description="Fixed number of frontends.")] = None
    autoscaling: Autoscaling | None = None


class FrontendsStatus(ApiModel):
    """Numbers of frontends."""

    desired: Annotated[Count, Field(description="Desired number of frontends.")]
    ready: Annotated[Count, Field(description="Number of frontends that answer requests.")]


Endpoints = Annotated[
    list[Annotated[str, Field(max_length=2048)]],
    Field(max_length=4, json_schema_extra=SET, description="URLs of the service's OCCI frontends."),
]
