"""What all kinds share: the base model, conditions, references, and the types of fields."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field
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
ATOMIC: Json = {"x-kubernetes-list-type": "atomic"}
ATOMIC_MAP: Json = {"x-kubernetes-map-type": "atomic"}
"""One writer has it all: the API server keeps no record of who wrote each of its leaves."""
SET: Json = {"x-kubernetes-list-type": "set"}


def unchanging(field: str, part: str, message: str) -> Json:
    """A rule of an object: an optional ``field`` of it, of which ``part`` counts (``.name``), stays as it was."""
    name = f"__{field}__" if field == "namespace" else field  # a reserved word of CEL
    now, before = f"self.{name}", f"oldSelf.{name}"
    rule = f"has({now}) == has({before}) && (!has({now}) || {now}{part} == {before}{part})"
    return cel(rule, message, f".{field}")


def map_by(*keys: str) -> Json:
    """Schema keywords of a list whose items are told apart by one field, or by several."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


QUANTITY = r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$"
"""The pattern of a Kubernetes quantity that is not negative, as text."""

Quantity = Annotated[str, Field(max_length=32, pattern=QUANTITY)] | Annotated[int, Field(ge=0)]
"""A Kubernetes quantity that is not negative: ``2``, ``500m``, ``4Gi``."""

Decimal = Annotated[str, Field(max_length=32, pattern=r"^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$")] | int
"""A number: an integer, or a decimal in quotes (Kubernetes objects hold no floats)."""

Name = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
"""The name of another object."""

Term = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z][a-z0-9_]*$")]
"""The name of an attribute, action, parameter or result: lower case, digits, underscores."""

Time = Annotated[AwareDatetime, Field(strict=False)]
"""A time with its zone; in JSON, a string of RFC 3339."""

Values = Annotated[Json, Field(max_length=1024, json_schema_extra=FREE_FORM)]
"""Values by name, of any JSON type: the service's interface says which."""

Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
Milliseconds = Annotated[int, Field(ge=0)]
Generation = Annotated[int, Field(ge=0, description="The `metadata.generation` that this was observed for.")]


class ApiModel(BaseModel):
    """Base of everything below a kind: camelCase names, unknown fields ignored as the API server prunes them.

    Types are strict, as they are there: no number is taken for a string, nor a string for a number.
    """

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True, strict=True)

    def to_json(self) -> Json:
        """As it stands in an object; fields that are not set are left out."""
        data: Json = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        return data


class Condition(ApiModel):
    """One observation of the object's state (`metav1.Condition`)."""

    type: Annotated[str, Field(max_length=316, description="What was observed, such as `Ready`.")]
    status: Annotated[Literal["True", "False", "Unknown"], Field(description="Whether it is so.")]
    observed_generation: Generation | None = None
    last_transition_time: Annotated[Time, Field(description="When the status last changed.")]
    reason: Annotated[
        str,
        Field(
            min_length=1,
            max_length=1024,
            pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            description="Why, in one word for programs; docs/conditions.md lists them.",
        ),
    ]
    message: Annotated[str, Field(max_length=32768, description="Why, for people.")] = ""


Conditions = Annotated[
    list[Condition],
    Field(
        max_length=16,
        description="The latest observations of the object's state.",
        json_schema_extra=map_by("type"),
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
    for item in conditions:  # a pass over a pool asks this of every worker: a generator takes twice as long
        if item.type == kind:
            return item
    return None


def from_seconds(seconds: float) -> datetime:
    """A time from seconds since the epoch."""
    return datetime.fromtimestamp(seconds, UTC)


class LocalReference(ApiModel):
    """Names an object in the same namespace."""

    name: Annotated[Name, Field(description="Name of an object in the same namespace.")]


class SecretReference(ApiModel):
    """Names a Secret in the namespace of the platform."""

    name: Annotated[Name, Field(description="Name of a Secret in the platform's own namespace.")]


class OwnerReference(ApiModel):
    """The parts of an owner reference that we read."""

    kind: str
    name: str
    uid: str
    controller: bool = False


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
    owner_references: list[OwnerReference] = []

    @property
    def controller(self) -> OwnerReference | None:
        """The object that manages this one."""
        return next((owner for owner in self.owner_references if owner.controller), None)
