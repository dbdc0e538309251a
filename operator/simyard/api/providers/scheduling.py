"""Where in a Kubernetes cluster a site's machines may run: shared by the providers that run there."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from simyard.api.base import ATOMIC, ApiModel, Count, cel, rules

LabelKey = Annotated[str, Field(min_length=1, max_length=317)]
LabelValue = Annotated[str, Field(max_length=63)]

NodeSelector = Annotated[
    dict[str, LabelValue], Field(max_length=32, description="Labels that a node must have to run machines.")
]


class Toleration(ApiModel):
    """A taint of nodes that machines bear, as a pod's `tolerations` have it."""

    model_config = rules(
        cel("!has(self.operator) || self.operator != 'Exists' || !has(self.value)", "value needs operator Equal"),
        cel("has(self.key) || has(self.operator) && self.operator == 'Exists'", "without key, operator must be Exists"),
    )

    key: Annotated[LabelKey | None, Field(description="The taint's key; without one, every taint.")] = None
    operator: Annotated[
        Literal["Exists", "Equal"] | None, Field(description="How the taint is compared; `Equal` by default.")
    ] = None
    value: Annotated[LabelValue | None, Field(description="The taint's value, with `Equal`.")] = None
    effect: Annotated[
        Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None,
        Field(description="The taint's effect; every effect by default."),
    ] = None
    toleration_seconds: Annotated[
        Count | None, Field(description="How long a machine stays once a `NoExecute` taint is there; by default, ever.")
    ] = None


Tolerations = Annotated[
    list[Toleration], Field(max_length=32, description="Taints that machines bear.", json_schema_extra=ATOMIC)
]
