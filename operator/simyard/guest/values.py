# SPDX-License-Identifier: Apache-2.0
"""Checks the values that workers report against the declared interface of their service.

Code can read reported values only through the check, which omits undeclared values, values of a wrong type, and values
out of bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import orjson

from simyard.guest.reading import Refusal, RefusedError
from simyard.guest.text import make_printable, make_printable_value
from simyard_adapter.declarations import Action, Attribute, InvalidValueError, InvalidValuesError, Json, check_values
from simyard_adapter.limits import MAX_ATTRIBUTES_BYTES, MAX_RESULT_BYTES, MAX_VALUE_BYTES
from simyard_adapter.wire import ErrorReason, WireError, make_too_large_error

OnRefused = Callable[[RefusedError], None]


@dataclass(frozen=True, slots=True)
class ClaimedAttributes:
    """The attributes that a worker reports, not checked yet."""

    _values: Mapping[str, Json] = field(repr=False)

    def check(self, declared: Iterable[Attribute], refused: OnRefused) -> dict[str, Json]:
        """Return the valid declared values, and call ``refused`` for each invalid declared value."""
        found: dict[str, Json] = {}
        for attribute in declared:
            if attribute.name not in self._values or (value := self._values[attribute.name]) is None:
                continue
            try:
                found[attribute.name] = make_printable_value(_check_value(attribute, value))
            except RefusedError as error:
                refused(error)
        return found


def merge_attributes(known: Mapping[str, Json], changes: Mapping[str, Json], refused: OnRefused) -> dict[str, Json]:
    """Return the attributes of a worker after changes; together they have at most ``MAX_ATTRIBUTES_BYTES``.

    If a change would exceed this size, the attribute keeps its former value.
    """
    values = {**known}
    if len(orjson.dumps(values)) + len(orjson.dumps(changes)) <= MAX_ATTRIBUTES_BYTES:
        return {**known, **changes}
    sizes = {name: len(orjson.dumps({name: value})) for name, value in values.items()}
    for name, value in changes.items():
        size = len(orjson.dumps({name: value}))
        if sum(sizes.values()) - sizes.get(name, 0) + size > MAX_ATTRIBUTES_BYTES:
            problem = f"attributes: all together have more than {MAX_ATTRIBUTES_BYTES} bytes with a new {name}"
            refused(RefusedError(Refusal.TOO_LARGE, problem))
            continue
        values[name], sizes[name] = value, size
    return values


def _check_value(attribute: Attribute, value: Json) -> Json:
    path = f"attributes.{attribute.name}"
    size = len(orjson.dumps(value))
    if size > MAX_VALUE_BYTES:
        raise RefusedError(Refusal.TOO_LARGE, f"{path}: has {size} bytes, at most {MAX_VALUE_BYTES} are accepted")
    try:
        return attribute.check(value, path)
    except InvalidValueError as error:
        raise RefusedError(Refusal.INVALID, make_printable(str(error), 500)) from None


class InvalidResultError(ValueError):
    """The error for a result that does not match the declaration; ``error`` is what the caller of the action gets."""

    def __init__(self, error: WireError) -> None:
        super().__init__(error.message)
        self.error = error


@dataclass(frozen=True, slots=True)
class ClaimedResult:
    """The result of an action that a worker reports, not checked yet."""

    _value: Json = field(repr=False)

    def check(self, action: Action | None) -> dict[str, Json]:
        """Return the declared fields of the result; no fields if the service does not declare the action (any more).

        Raises:
            InvalidResultError: The result is too large, or a field does not match its declaration.
        """
        value = {} if self._value is None else self._value
        if not isinstance(value, dict):
            raise InvalidResultError(WireError(ErrorReason.INVALID_RESULT, _describe_wrong_type(value), "result"))
        declared = {item.name: item for item in action.result} if action is not None else {}
        kept = {name: item for name, item in value.items() if name in declared}
        if (size := len(orjson.dumps(kept))) > MAX_RESULT_BYTES:
            raise InvalidResultError(make_too_large_error(size))
        try:
            checked = check_values(kept, declared.values(), "result")
        except InvalidValuesError as error:
            first = error.errors[0]
            problem = f"{first.problem}: the service's program gave a result that its interface does not declare"
            raise InvalidResultError(
                WireError(ErrorReason.INVALID_RESULT, make_printable(problem, 2000), first.path)
            ) from None
        return {name: make_printable_value(item) for name, item in checked.items()}


def _describe_wrong_type(value: Json) -> str:
    return f"a {type(value).__name__} is no object of the declared fields"
