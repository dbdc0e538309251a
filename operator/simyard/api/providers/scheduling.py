# SPDX-License-Identifier: Apache-2.0
"""Settings for the scheduling of machines in a Kubernetes cluster; the providers pod and kubevirt share them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from simyard.api.base import ATOMIC, ApiModel, Count, add_cel_rules, make_cel_rule

LabelKey = Annotated[str, Field(min_length=1, max_length=317)]
LabelValue = Annotated[str, Field(max_length=63)]

NodeSelector = Annotated[
    dict[str, LabelValue], Field(max_length=32, description="Labels that a node must have to run machines.")
]


class Toleration(ApiModel):
    """Taint of nodes that machines tolerate, like an item of a pod's `tolerations`."""

    model_config = add_cel_rules(
        make_cel_rule(
            "!has(self.operator) || self.operator != 'Exists' || !has(self.value)", "value needs the operator Equal"
        ),
        make_cel_rule(
            "has(self.key) || has(self.operator) && self.operator == 'Exists'",
            "operator must be Exists if key is absent",
        ),
    )

    key: Annotated[
        LabelKey | None, Field(description="Key of the taint. If absent, the toleration is for every key.")
    ] = None
    operator: Annotated[
        Literal["Exists", "Equal"] | None, Field(description="Comparison with the taint; `Equal` by default.")
    ] = None
    value: Annotated[LabelValue | None, Field(description="Value of the taint, for `Equal`.")] = None
    effect: Annotated[
        Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None,
        Field(description="Effect of the taint. If absent, the toleration is for every effect."),
    ] = None
    toleration_seconds: Annotated[
        Count | None,
        Field(
            description="Time that a machine stays on a node with a new `NoExecute` taint; by default without limit."
        ),
    ] = None


Tolerations = Annotated[
    list[Toleration], Field(max_length=32, description="Taints that machines tolerate.", json_schema_extra=ATOMIC)
]
