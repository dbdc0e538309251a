# SPDX-License-Identifier: Apache-2.0
"""Axis of a study's design: the values of one parameter."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from simyard.api.base import (
    ATOMIC,
    FREE_FORM,
    ApiModel,
    Decimal,
    Term,
    add_cel_rules,
    make_cel_rule,
    map_by,
)

MAX_AXES = 32
"""Maximum number of parameters of a study that vary."""

Seed = Annotated[
    int, Field(ge=0, le=2**31 - 1, description="Seed of the points: equal designs with equal seeds have equal points.")
]


class StudyAxis(ApiModel):
    """Values of one parameter: a list (`values`), or a range (`start` and `stop`)."""

    model_config = add_cel_rules(
        make_cel_rule("has(self.start) == has(self.stop)", "`start` and `stop` need each other", ".start"),
        make_cel_rule("!(has(self.step) && has(self.count))", "`step` and `count` exclude each other", ".step"),
    )

    name: Annotated[Term, Field(description="Name of the parameter.")]
    values: Annotated[
        list[Any] | None,
        Field(
            min_length=1,
            max_length=10_000,
            json_schema_extra={**ATOMIC, "items": FREE_FORM},
            description="Values of the parameter. A design with samples draws each of them with the same frequency.",
        ),
    ] = None
    start: Annotated[Decimal | None, Field(description="First value of the range.")] = None
    stop: Annotated[
        Decimal | None, Field(description="Last value of the range. It is included if the steps reach it.")
    ] = None
    step: Annotated[
        Decimal | None,
        Field(
            description="Distance of neighbouring values. By default, a grid needs `count`, a sample of a number is"
            " continuous, and a sample of an integer has the step 1."
        ),
    ] = None
    count: Annotated[
        int | None,
        Field(ge=1, le=1_000_000, description="Number of values of a grid from `start` to `stop`, both included."),
    ] = None
    scale: Annotated[
        Literal["Linear", "Log"],
        Field(description="Scale on which values have equal distances, or samples are uniform."),
    ] = "Linear"
    unit: Annotated[
        str,
        Field(max_length=63, description="Unit of the values. The study is refused if the service declares another."),
    ] = ""


Axes = Annotated[
    list[StudyAxis],
    Field(min_length=1, max_length=MAX_AXES, json_schema_extra=map_by("name"), description="Parameters that vary."),
]
