"""What all kinds share: the base model, conditions, references, and the types of fields."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

Json = dict[str, Any]
"""A raw Kubernetes object or a free-form value, as JSON."""


def schema_extra(**keywords: Any) -> ConfigDict:
    """Model configuration with additional schema keywords."""
    return ConfigDict(json_schema_extra=keywords)


def cel(rule: str, message: str, field_path: str = "") -> Json:
    """One entry of ``x-kubernetes-validations``. ``field_path`` is relative to where the rule stands: ``.spec.x``."""
    entry = {"rule": rule, "message": message}
    if field_path:
        entry["fieldPath"] = field_path
    return entry


def rules(*entries: Json) -> ConfigDict:
    """Model configuration with CEL rules."""
    return schema_extra(**{"x-kubernetes-validations": list(entries)})


IMMUTABLE: Json = {"x-kubernetes-validations": [cel("self == oldSelf", "is immutable")]}
FREE_FORM: Json = {"x-kubernetes-preserve-unknown-fields": True}

Quantity = Annotated[
    str | int,
    Field(
        json_schema_extra={
            "x-kubernetes-int-or-string": True,
            "pattern": r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$",
            "maxLength": 32,
        }
    ),
]
"""A Kubernetes quantity that is not negative: ``2``, ``500m``, ``4Gi``."""

Decimal = Annotated[
    str | int,
    Field(
        json_schema_extra={
            "x-kubernetes-int-or-string": True,
            "pattern": r"^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$",
            "maxLength": 32,
        }
    ),
]
"""A number: an integer, or a decimal in quotes (Kubernetes objects hold no floats)."""

Name = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
"""The name of another object."""

Term = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z][a-z0-9_]*$")]
"""The name of an attribute, action, parameter or result: lower case, digits, underscores."""

Time = Annotated[datetime, Field(json_schema_extra={"format": "date-time"})]
"""A time in UTC."""


class ApiModel(BaseModel):
    """Base of everything below a kind: camelCase names, unknown fields ignored as the API server prunes them."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)

    def to_json(self) -> Json:
        """As it stands in an object; fields that are not set are left out."""
        data: Json = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        return data


class Condition(ApiModel):
    """A ``metav1.Condition``."""

    type: Annotated[str, Field(max_length=316)]
    status: Literal["True", "False", "Unknown"]
    observed_generation: Annotated[int | None, Field(ge=0)] = None
    last_transition_time: Time
    reason: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")]
    message: Annotated[str, Field(max_length=32768)] = ""


Conditions = Annotated[
    list[Condition],
    Field(
        max_length=16,
        description="The latest observations of the object's state.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    ),
]


def set_condition(conditions: list[Condition], new: Condition) -> list[Condition]:
    """The conditions with this one added or replaced; an unchanged status keeps its transition time."""
    result = []
    for old in conditions:
        if old.type != new.type:
            result.append(old)
        elif old.status == new.status:
            new = new.model_copy(update={"last_transition_time": old.last_transition_time})
    return sorted([*result, new], key=lambda item: item.type)


def find_condition(conditions: list[Condition], kind: str) -> Condition | None:
    """The condition of that type."""
    return next((item for item in conditions if item.type == kind), None)


def from_seconds(seconds: float) -> datetime:
    """A time from seconds since the epoch."""
    return datetime.fromtimestamp(seconds, UTC)


class LocalReference(ApiModel):
    """Names an object in the same namespace."""

    name: Name


class SecretReference(ApiModel):
    """Names a Secret in the namespace of the platform."""

    name: Annotated[Name, Field(description="Name of a Secret in the platform's own namespace.")]


class Metadata(ApiModel):
    """The parts of ``metadata`` that we read."""

    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
