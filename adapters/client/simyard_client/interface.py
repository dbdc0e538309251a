# SPDX-License-Identifier: Apache-2.0
"""The interface of a service as its vendor declared it: actions, parameters, results, attributes, units and texts."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simyard_client.display import Table

_TYPES: Mapping[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
    "file": "File",
}
SYNC_SECONDS = 30
"""Time that the API waits for a Sync action."""


@dataclass(frozen=True)
class Value:
    """A declared value: a parameter, a field of a result, or an attribute.

    Attributes:
        name: The name.
        type: The type: ``string``, ``integer``, ``number``, ``boolean``, ``array``, ``object`` or ``file``.
        description: The meaning.
        unit: The unit, such as ``mm``.
        required: A caller must give the value.
        default: The value if the caller gives none; None without a default.
        choices: The strings that are accepted; empty for all.
        minimum: The smallest number; None without a bound.
        maximum: The largest number; None without a bound.
        mutable: Users may set the attribute.
        of_files: The value is an array of files.
    """

    name: str
    type: str
    description: str = ""
    unit: str = ""
    required: bool = False
    default: Any = None
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    mutable: bool = False
    of_files: bool = False

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Value:
        """Read a declared value."""
        return cls(
            name=str(data["name"]),
            type=str(data["type"]),
            description=str(data.get("description") or ""),
            unit=str(data.get("unit") or ""),
            required=bool(data.get("required")),
            default=data.get("default"),
            choices=tuple(data.get("enum") or ()),
            minimum=_read_bound(data.get("minimum")),
            maximum=_read_bound(data.get("maximum")),
            mutable=bool(data.get("mutable")),
            of_files=bool(data.get("items")),
        )

    def describe(self) -> str:
        """Return one line: type, unit, bounds, default and meaning."""
        words = [self.type, f"in {self.unit}" if self.unit else ""]
        if self.minimum is not None or self.maximum is not None:
            low, high = ("" if bound is None else f"{bound:g}" for bound in (self.minimum, self.maximum))
            words.append(f"{low}..{high}")
        words.append(f"one of {', '.join(self.choices)}" if self.choices else "")
        words.append("required" if self.required else "")
        words.append(f"default {self.default!r}" if self.default is not None else "")
        line = ", ".join(word for word in words if word)
        return f"{line}. {self.description}" if self.description else line


@dataclass(frozen=True)
class Action:
    """A declared action.

    Attributes:
        name: The name.
        description: The meaning.
        parameters: The declared parameters.
        results: The declared fields of the result.
        mode: ``Sync`` or ``Async``.
        timeout_seconds: The time after which the platform cancels the action.
        idempotent: A second run does no harm.
    """

    name: str
    description: str = ""
    parameters: tuple[Value, ...] = ()
    results: tuple[Value, ...] = ()
    mode: str = "Sync"
    timeout_seconds: int = 30
    idempotent: bool = False

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Action:
        """Read a declared action."""
        return cls(
            name=str(data["name"]),
            description=str(data.get("description") or ""),
            parameters=tuple(map(Value.from_json, data.get("parameters") or ())),
            results=tuple(map(Value.from_json, data.get("result") or ())),
            mode=str(data.get("mode") or "Sync"),
            timeout_seconds=int(data.get("timeoutSeconds") or 30),
            idempotent=bool(data.get("idempotent")),
        )

    @property
    def is_sync(self) -> bool:
        """True if a request can wait for the result: the mode is Sync, and the timeout is short enough."""
        return self.mode == "Sync" and self.timeout_seconds <= SYNC_SECONDS

    @property
    def units(self) -> dict[str, str]:
        """The unit of each field of the result that has one."""
        return {value.name: value.unit for value in self.results if value.unit}

    def make_signature(self) -> inspect.Signature:
        """Return the signature for people and completion: keyword parameters with types and defaults."""
        ordered = sorted(self.parameters, key=lambda value: not value.required)
        return inspect.Signature(
            [
                inspect.Parameter(
                    value.name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=inspect.Parameter.empty if value.required else value.default,
                    annotation=_TYPES.get(value.type, Any),
                )
                for value in ordered
            ],
            return_annotation="Result",
        )

    def make_docstring(self) -> str:
        """Return the text of ``help()``."""
        lines = [self.description or f"Call the action {self.name}."]
        for title, values in (("Parameters", self.parameters), ("Results", self.results)):
            if values:
                lines += ["", f"{title}:"]
                lines += [f"    {value.name}: {value.describe()}" for value in values]
        return "\n".join(lines)


@dataclass(frozen=True)
class Interface:
    """The declared actions and attributes of a service, by name."""

    actions: Mapping[str, Action]
    attributes: Mapping[str, Value]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Interface:
        """Read an interface as the API has it."""
        actions = map(Action.from_json, data.get("actions") or ())
        attributes = map(Value.from_json, data.get("attributes") or ())
        return cls({action.name: action for action in actions}, {value.name: value for value in attributes})

    def to_table(self) -> Table:
        """Return a table of all actions, parameters and results."""
        rows: list[Sequence[Any]] = []
        for action in self.actions.values():
            for kind, values in (("parameter", action.parameters), ("result", action.results)):
                rows += [(action.name, kind, value.name, value.unit, value.describe()) for value in values]
        rows += [("", "attribute", value.name, value.unit, value.describe()) for value in self.attributes.values()]
        return Table(("action", "kind", "name", "unit", "meaning"), rows)

    def _repr_html_(self) -> str:
        return self.to_table()._repr_html_()

    def __str__(self) -> str:
        return str(self.to_table())


def _read_bound(value: Any) -> float | None:
    """Return a bound, which a manifest may have as a text such as ``'0.1'``."""
    return None if value is None else float(value)
