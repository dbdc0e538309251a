# SPDX-License-Identifier: Apache-2.0
"""Base model, conditions, references and field types that all kinds share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

Json = dict[str, Any]
"""A raw Kubernetes object or a free-form value, as JSON."""


def add_schema_keywords(**keywords: Any) -> ConfigDict:
    """Return a model configuration with additional schema keywords."""
    return ConfigDict(json_schema_extra=keywords)


def make_cel_rule(rule: str, message: str, field_path: str = "") -> Json:
    """Return one entry of ``x-kubernetes-validations``.

    ``field_path`` is the path of the wrong field, such as ``.spec.x``, relative to the object that has the rule.
    """
    entry = {"rule": rule, "message": message}
    if field_path:
        entry["fieldPath"] = field_path
    return entry


def add_cel_rules(*entries: Json) -> ConfigDict:
    """Return a model configuration with CEL rules."""
    return add_schema_keywords(**{"x-kubernetes-validations": list(entries)})


_IMMUTABLE_MESSAGE = "is immutable: delete the object and create it again with the new value"
IMMUTABLE: Json = {"x-kubernetes-validations": [make_cel_rule("self == oldSelf", _IMMUTABLE_MESSAGE)]}
FREE_FORM: Json = {"x-kubernetes-preserve-unknown-fields": True}
ATOMIC: Json = {"x-kubernetes-list-type": "atomic"}
ATOMIC_MAP: Json = {"x-kubernetes-map-type": "atomic"}
"""Schema keyword of a map that has one writer: the API server then records one owner for the whole map."""
SET: Json = {"x-kubernetes-list-type": "set"}


def make_immutable_rule(field: str, part: str, message: str) -> Json:
    """Return a rule that refuses changes of an optional ``field`` of an object.

    The rule compares only ``part``, a path below the field such as ``.name``; with an empty part, the whole field.
    """
    name = f"__{field}__" if field == "namespace" else field  # a reserved word of CEL
    now, before = f"self.{name}", f"oldSelf.{name}"
    rule = f"has({now}) == has({before}) && (!has({now}) || {now}{part} == {before}{part})"
    return make_cel_rule(rule, message, f".{field}")


def map_by(*keys: str) -> Json:
    """Return the schema keywords of a list whose items are identified by their fields ``keys``."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


QUANTITY = r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$"
"""Regular expression of a Kubernetes quantity that is not negative."""

Quantity = Annotated[str, Field(max_length=32, pattern=QUANTITY)] | Annotated[int, Field(ge=0)]
"""A Kubernetes quantity that is not negative: ``2``, ``500m``, ``4Gi``."""

_DECIMAL = r"^-?[0-9]+(\.[0-9]+)?([eE][-+]?{})?$"
Decimal = (
    Annotated[
        str,
        Field(
            max_length=32,
            pattern=_DECIMAL.format("[0-9]+"),
            json_schema_extra={"pattern": _DECIMAL.format("[01]?[0-9]{1,2}")},
        ),
    ]
    | int
)
"""A number: an integer, or a decimal in quotes (Kubernetes objects hold no floats).

The API server refuses exponents above 199, so that the number fits into a float. The model accepts them, because
objects that were stored before this rule must stay readable.
"""
NOT_NEGATIVE: Json = {
    "x-kubernetes-validations": [
        make_cel_rule("type(self) == int ? self >= 0 : !self.startsWith('-')", "must not be negative")
    ]
}
"""Schema keyword of a decimal that is not negative."""

Name = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
"""Name of another object."""

Pattern = Annotated[str, Field(max_length=512)]
Term = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z][a-z0-9_]*$")]
"""Name of an attribute, action, parameter or result: lower case letters, digits, underscores."""

Time = Annotated[AwareDatetime, Field(strict=False)]
"""A time with its zone; in JSON, a string of RFC 3339."""

Values = Annotated[Json, Field(max_length=1024, json_schema_extra=FREE_FORM)]
"""Values by name, of any JSON type; the interface of the service declares the types."""

Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
Milliseconds = Annotated[int, Field(ge=0)]
Generation = Annotated[int, Field(ge=0, description="Value of `metadata.generation` when this state was observed.")]


class ApiModel(BaseModel):
    """Base class of all models of kinds and of their parts.

    Field names are camelCase in JSON. The models ignore unknown fields, because the API server removes them. Types are
    strict, as in the API server: a number is not a valid string, and a string is not a valid number.
    """

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True, strict=True)

    def to_json(self) -> Json:
        """Return the JSON form for an object of the API server, without the fields that are not set."""
        data: Json = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        return data


class Condition(ApiModel):
    """Observation of one aspect of the object's state (`metav1.Condition`)."""

    type: Annotated[str, Field(max_length=316, description="Type of the condition, such as `Ready`.")]
    status: Annotated[Literal["True", "False", "Unknown"], Field(description="Status of the condition.")]
    observed_generation: Generation | None = None
    last_transition_time: Annotated[Time, Field(description="Time at which the status last changed.")]
    reason: Annotated[
        str,
        Field(
            min_length=1,
            max_length=1024,
            pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            description="Reason of the status, one word for programs; docs/conditions.md lists all reasons.",
        ),
    ]
    message: Annotated[str, Field(max_length=32768, description="Explanation of the status for people.")] = ""


Conditions = Annotated[
    list[Condition],
    Field(
        max_length=16,
        description="Latest observations of the object's state.",
        json_schema_extra=map_by("type"),
    ),
]


def set_condition(conditions: list[Condition], new: Condition) -> list[Condition]:
    """Return the conditions with ``new`` in place of the condition of the same type.

    If the status does not change, the transition time of the old condition stays.
    """
    result = []
    for old in conditions:
        if old.type != new.type:
            result.append(old)
        elif old.status == new.status:
            new = new.model_copy(update={"last_transition_time": old.last_transition_time})
    return sorted([*result, new], key=lambda item: item.type)


def find_condition(conditions: list[Condition], kind: str) -> Condition | None:
    """Return the condition of the type ``kind``; None if there is no such condition."""
    for item in conditions:  # a generator would take twice as long, and this function runs for every worker of a pool
        if item.type == kind:
            return item
    return None


def from_seconds(seconds: float) -> datetime:
    """Return the UTC time that lies ``seconds`` after the epoch."""
    return datetime.fromtimestamp(seconds, UTC)


class LocalReference(ApiModel):
    """Reference to an object in the same namespace."""

    name: Annotated[Name, Field(description="Name of an object in the same namespace.")]


class SecretReference(ApiModel):
    """Reference to a Secret in the namespace of the platform."""

    name: Annotated[Name, Field(description="Name of a Secret in the platform's namespace.")]


class OwnerReference(ApiModel):
    """Fields of an owner reference that Simyard reads."""

    kind: str
    name: str
    uid: str
    controller: bool = False


class Metadata(ApiModel):
    """Fields of ``metadata`` that Simyard reads."""

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
        """Owner reference of the object that controls this object; None if there is no controller."""
        return next((owner for owner in self.owner_references if owner.controller), None)
