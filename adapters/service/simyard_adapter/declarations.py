# SPDX-License-Identifier: Apache-2.0
"""The declarations of a service: typed attributes and actions, and the check of values against them.

The JSON form is ``spec.interface`` of a SimulationService (camelCase keys). The control plane and the adapter both
check values with this module.
"""

from __future__ import annotations

import enum
import hashlib
import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Iterable, Mapping, Optional, Union

from simyard_adapter.file_urls import AllowedUrls
from simyard_adapter.file_values import FileReference, FileValueError
from simyard_adapter.json_values import find_encoding_problem, format_number, is_finite, is_same, show_value

try:  # The control plane has RE2: it matches patterns of untrusted vendors in linear time.
    import re2 as regular_expressions

    _QUIET = regular_expressions.Options()
    _QUIET.log_errors = False
except ImportError:  # The adapter checks only the patterns of its own service.
    import re as regular_expressions

    _QUIET = 0

Json = Union[None, bool, int, float, str, list[Any], dict[str, Any]]


class ValueType(str, enum.Enum):
    """A type of an attribute, parameter or result field: OCCI 1.2 JSON rendering, ``integer``, and ``file``.

    The value of a file is a reference (:mod:`simyard_adapter.file_values`).
    """

    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    ARRAY = "array"
    OBJECT = "object"
    FILE = "file"


class ActionMode(str, enum.Enum):
    """The mode of an action: ``SYNC`` replies in the caller's request, ``ASYNC`` is stored and survives restarts."""

    SYNC = "Sync"
    ASYNC = "Async"


class InvalidValueError(ValueError):
    """A value that does not fit its declaration.

    Attributes:
        path: The path of the value, such as ``parameters.length``.
        problem: The problem, and the values that are accepted.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class InvalidValuesError(ValueError):
    """One or more values that do not fit; ``errors`` has one :class:`InvalidValueError` for each."""

    def __init__(self, errors: list[InvalidValueError]) -> None:
        super().__init__("; ".join(str(error) for error in errors))
        self.errors = errors


@dataclass(frozen=True)
class Value:
    """The declaration of one value: a parameter of an action, or a field of its result.

    ``minimum`` and ``maximum`` are inclusive bounds of numbers. ``max_length`` limits strings (characters) and arrays
    (items). ``pattern`` is a regular expression that must match the whole string. ``unit`` is for readers (``mm``).
    ``items`` is the type of an array's items; None permits all. ``max_bytes`` limits the size of each file, and
    ``media_type`` describes it.

    Raises:
        ValueError: The pattern is not a regular expression.
    """

    name: str
    type: ValueType
    description: str = ""
    unit: str = ""
    required: bool = False
    default: Json = None
    enum: tuple[Json, ...] = ()
    pattern: str = ""
    minimum: Optional[float] = None
    maximum: Optional[float] = None
    max_length: Optional[int] = None
    items: Optional[ValueType] = None
    media_type: str = ""
    max_bytes: Optional[int] = None

    def __post_init__(self) -> None:
        try:
            _compile(self.pattern)
        except (regular_expressions.error, OverflowError, RecursionError) as error:
            said = error.args[0] if error.args else ""
            problem = said.decode(errors="replace") if isinstance(said, bytes) else said
            text = f"{self.name}: the pattern {self.pattern} is not a regular expression (RE2 syntax): {problem}"
            raise ValueError(text) from None

    @property
    def holds_files(self) -> bool:
        """True if the value is a file or an array of files."""
        return ValueType.FILE in (self.type, self.items)

    def check(self, value: Json, path: str, urls: Optional[AllowedUrls] = None) -> Json:
        """Return the value in its normal form (an integral ``2.0`` becomes ``2`` if an integer is declared).

        Integers have 64 bits, numbers are finite, and text can be encoded as UTF-8. A file may be at one of ``urls``.

        Raises:
            InvalidValueError: The value does not fit.
        """
        if self.type is ValueType.FILE:
            checked = self._check_file(value, path, urls)
        else:
            checked = _of_type(value, self.type, path)
        if self.items is ValueType.FILE and isinstance(checked, list):
            checked = [self._check_file(item, f"{path}[{i}]", urls) for i, item in enumerate(checked)]
        if self.enum and not any(is_same(checked, allowed) for allowed in self.enum):
            allowed_text = ", ".join(json.dumps(item) for item in self.enum)
            raise InvalidValueError(path, f"{show_value(value)} is not one of {allowed_text}")
        if isinstance(checked, (str, list)) and self.max_length is not None and len(checked) > self.max_length:
            what = "characters" if isinstance(checked, str) else "items"
            raise InvalidValueError(path, f"has {len(checked)} {what}, at most {self.max_length} are accepted")
        if isinstance(checked, str) and self.pattern and not _compile(self.pattern).fullmatch(checked):
            raise InvalidValueError(path, f"{show_value(value)} does not match the pattern {self.pattern}")
        if isinstance(checked, (int, float)) and not isinstance(checked, bool):
            unit = f" {self.unit}" if self.unit else ""
            if self.minimum is not None and checked < self.minimum:
                raise InvalidValueError(
                    path, f"{show_value(value)} is below the minimum of {format_number(self.minimum)}{unit}"
                )
            if self.maximum is not None and checked > self.maximum:
                raise InvalidValueError(
                    path, f"{show_value(value)} is above the maximum of {format_number(self.maximum)}{unit}"
                )
        return checked

    def _check_file(self, value: Json, path: str, urls: Optional[AllowedUrls]) -> Json:
        try:
            reference = FileReference.from_json(value, urls)
        except FileValueError as error:
            raise InvalidValueError(path + error.field, error.problem) from None
        if self.max_bytes is not None and (reference.size or 0) > self.max_bytes:
            raise InvalidValueError(path, f"has {reference.size} bytes, at most {self.max_bytes} are accepted")
        return reference.to_json()

    def to_json(self) -> dict[str, Any]:
        """Return the declaration as in a manifest; fields with their default value are omitted."""
        data: dict[str, Any] = {"name": self.name, "type": self.type.value}
        for key in ("description", "unit", "pattern"):
            if getattr(self, key):
                data[key] = getattr(self, key)
        if self.required:
            data["required"] = True
        if self.default is not None:
            data["default"] = self.default
        if self.enum:
            data["enum"] = list(self.enum)
        for key in ("minimum", "maximum"):
            bound = getattr(self, key)
            if bound is not None:
                data[key] = _bound_to_json(bound)
        if self.max_length is not None:
            data["maxLength"] = self.max_length
        if self.items is not None:
            data["items"] = {"type": self.items.value}
        if self.media_type:
            data["mediaType"] = self.media_type
        if self.max_bytes is not None:
            data["maxBytes"] = self.max_bytes
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Value":
        """Read a declaration; unknown keys are ignored, so that newer manifests work with older adapters."""
        return cls(**_value_fields(data))


@dataclass(frozen=True)
class Attribute(Value):
    """The declaration of one attribute. Clients may set a ``mutable`` attribute."""

    mutable: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the declaration of the attribute as in a manifest."""
        data = super().to_json()
        if self.mutable:
            data["mutable"] = True
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Attribute":
        """Read the declaration of an attribute."""
        return cls(**_value_fields(data), mutable=bool(data.get("mutable", False)))


@dataclass(frozen=True)
class Action:
    """The declaration of one action.

    Attributes:
        idempotent: A second run after an interruption does no harm, so another worker may run the action again.
        concurrent: The action may run beside other actions of the worker, as a ``cancel`` action must. All other
            actions run one at a time.
        timeout_seconds: The time after which the action is stopped and reported as timed out.
    """

    name: str
    description: str = ""
    parameters: tuple[Value, ...] = ()
    result: tuple[Value, ...] = ()
    mode: ActionMode = ActionMode.SYNC
    timeout_seconds: int = 30
    idempotent: bool = False
    concurrent: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the declaration as in a manifest; fields with their default value are omitted."""
        data: dict[str, Any] = {"name": self.name}
        if self.description:
            data["description"] = self.description
        if self.parameters:
            data["parameters"] = [value.to_json() for value in self.parameters]
        if self.result:
            data["result"] = [value.to_json() for value in self.result]
        data["mode"] = self.mode.value
        data["timeoutSeconds"] = self.timeout_seconds
        if self.idempotent:
            data["idempotent"] = True
        if self.concurrent:
            data["concurrent"] = True
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Action":
        """Read a declaration; unknown keys are ignored."""
        return cls(
            name=str(data["name"]),
            description=str(data.get("description") or ""),
            parameters=tuple(Value.from_json(item) for item in data.get("parameters") or ()),
            result=tuple(Value.from_json(item) for item in data.get("result") or ()),
            mode=ActionMode(data.get("mode") or ActionMode.SYNC.value),
            timeout_seconds=int(data.get("timeoutSeconds") or 30),
            idempotent=bool(data.get("idempotent", False)),
            concurrent=bool(data.get("concurrent", False)),
        )


@dataclass(frozen=True)
class Interface:
    """The interface of one service: ``spec.interface`` of its SimulationService."""

    attributes: tuple[Attribute, ...] = ()
    actions: tuple[Action, ...] = ()
    _attributes: Mapping[str, Attribute] = field(init=False, repr=False, compare=False)
    _actions: Mapping[str, Action] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_attributes", {item.name: item for item in self.attributes})
        object.__setattr__(self, "_actions", {item.name: item for item in self.actions})

    def find_attribute(self, name: str) -> Optional[Attribute]:
        """Return the attribute with this name, or None."""
        return self._attributes.get(name)

    def find_action(self, name: str) -> Optional[Action]:
        """Return the action with this name, or None."""
        return self._actions.get(name)

    def to_json(self) -> dict[str, Any]:
        """Return the interface as ``spec.interface`` of a manifest."""
        return {
            "attributes": [item.to_json() for item in self.attributes],
            "actions": [item.to_json() for item in self.actions],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Interface":
        """Read ``spec.interface`` of a manifest."""
        return cls(
            attributes=tuple(Attribute.from_json(item) for item in data.get("attributes") or ()),
            actions=tuple(Action.from_json(item) for item in data.get("actions") or ()),
        )

    def compute_digest(self) -> str:
        """Return 12 hexadecimal digits that change whenever the interface changes."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def check_values(
    values: Mapping[str, Json],
    declared: Iterable[Value],
    path: str,
    *,
    partial: bool = False,
    urls: Optional[AllowedUrls] = None,
) -> dict[str, Json]:
    """Check values against their declarations, and fill in the defaults.

    Args:
        values: The values by name.
        declared: The declarations.
        path: The path of the values in error messages, such as ``parameters``.
        partial: Leave absent values out: no default is filled in and no value is required (for updates).
        urls: The URLs that files may have; None if they may have none.

    Raises:
        InvalidValuesError: One error for each value that is unknown, missing, of the wrong type or out of bounds.
    """
    known = {item.name: item for item in declared}
    errors: list[InvalidValueError] = []
    checked: dict[str, Json] = {}
    for name in values:
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            errors.append(InvalidValueError(f"{path}.{name}", f"is not declared; the declared names are: {names}"))
    for name, declaration in known.items():
        if name in values and values[name] is not None:
            try:
                checked[name] = declaration.check(values[name], f"{path}.{name}", urls)
            except InvalidValueError as error:
                errors.append(error)
        elif partial:
            continue
        elif declaration.default is not None:
            checked[name] = declaration.default
        elif declaration.required:
            errors.append(InvalidValueError(f"{path}.{name}", f"is required (type {declaration.type.value})"))
    if errors:
        raise InvalidValuesError(errors)
    return checked


def _of_type(value: Json, wanted: ValueType, path: str) -> Json:
    types = {ValueType.STRING: str, ValueType.ARRAY: list, ValueType.OBJECT: dict}
    if wanted in types and isinstance(value, types[wanted]):
        if problem := find_encoding_problem(value):
            raise InvalidValueError(path, f"cannot be encoded as JSON in UTF-8: {problem}")
        return value
    if wanted is ValueType.BOOLEAN and isinstance(value, bool):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool) and is_finite(value):
        if wanted is ValueType.NUMBER:
            return value
        if wanted is ValueType.INTEGER and value == int(value) and -(2**63) <= value < 2**63:
            return int(value)
    raise InvalidValueError(path, f"{show_value(value)} is not of type {wanted.value}")


@lru_cache(maxsize=1024)
def _compile(pattern: str) -> Any:
    return regular_expressions.compile(pattern, _QUIET)


def _bound_to_json(bound: float) -> Union[int, str]:
    """Return a bound as a Kubernetes object stores it, without floats: an integer, or a decimal number in a string."""
    return int(bound) if float(bound).is_integer() else repr(float(bound))


def _bound(data: Mapping[str, Any], key: str) -> Optional[float]:
    bound = data.get(key)
    return None if bound is None else float(bound)


def _value_fields(data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": str(data["name"]),
        "type": ValueType(data["type"]),
        "description": str(data.get("description") or ""),
        "unit": str(data.get("unit") or ""),
        "required": bool(data.get("required", False)),
        "default": data.get("default"),
        "enum": tuple(data.get("enum") or ()),
        "pattern": str(data.get("pattern") or ""),
        "minimum": _bound(data, "minimum"),
        "maximum": _bound(data, "maximum"),
        "max_length": data.get("maxLength"),
        "items": ValueType(data["items"]["type"]) if data.get("items") else None,
        "media_type": str(data.get("mediaType") or ""),
        "max_bytes": data.get("maxBytes"),
    }
