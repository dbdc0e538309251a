"""Values that workers claim, and what they become when they are held against the service's declared interface.

A claim gives its values to nobody who does not name the declaration: undeclared values stay out, and so does a value
of another type or out of bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import orjson

from simyard.guest.reading import Refusal, RefusedError
from simyard.guest.text import printable, printable_value
from simyard_adapter.declarations import Action, Attribute, InvalidValueError, InvalidValuesError, Json, check_values
from simyard_adapter.limits import MAX_ATTRIBUTES_BYTES, MAX_RESULT_BYTES, MAX_VALUE_BYTES
from simyard_adapter.wire import Reason, WireError, result_too_large

OnRefused = Callable[[RefusedError], None]


@dataclass(frozen=True, slots=True)
class ClaimedAttributes:
    """Attributes as a worker tells them."""

    _values: Mapping[str, Json] = field(repr=False)

    def checked(self, declared: Iterable[Attribute], refused: OnRefused) -> dict[str, Json]:
        """Return the values that are declared and fit; ``refused`` is called for each declared one that does not."""
        found: dict[str, Json] = {}
        for attribute in declared:
            if attribute.name not in self._values or (value := self._values[attribute.name]) is None:
                continue
            try:
                found[attribute.name] = printable_value(_fitting(attribute, value))
            except RefusedError as error:
                refused(error)
        return found


def merged(known: Mapping[str, Json], changes: Mapping[str, Json], refused: OnRefused) -> dict[str, Json]:
    """Return the attributes of a worker after changes; all together have at most ``MAX_ATTRIBUTES_BYTES``.

    A change that does not fit any more is left out, and the value before it stays.
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


def _fitting(attribute: Attribute, value: Json) -> Json:
    path = f"attributes.{attribute.name}"
    size = len(orjson.dumps(value))
    if size > MAX_VALUE_BYTES:
        raise RefusedError(Refusal.TOO_LARGE, f"{path}: has {size} bytes, at most {MAX_VALUE_BYTES} are accepted")
    try:
        return attribute.check(value, path)
    except InvalidValueError as error:
        raise RefusedError(Refusal.INVALID, printable(str(error), 500)) from None


class InvalidResultError(ValueError):
    """A worker gave a result that the service does not declare; ``error`` says so to the caller of the action."""

    def __init__(self, error: WireError) -> None:
        super().__init__(error.message)
        self.error = error


@dataclass(frozen=True, slots=True)
class ClaimedResult:
    """The result of an action as a worker tells it."""

    _value: Json = field(repr=False)

    def checked(self, action: Action | None) -> dict[str, Json]:
        """Return the result's declared fields; nothing when the service does not declare the action (any more).

        Raises:
            InvalidResultError: the result is too large, or a field does not fit its declaration.
        """
        value = {} if self._value is None else self._value
        if not isinstance(value, dict):
            raise InvalidResultError(WireError(Reason.INVALID_RESULT, _not_an_object(value), "result"))
        declared = {item.name: item for item in action.result} if action is not None else {}
        kept = {name: item for name, item in value.items() if name in declared}
        if (size := len(orjson.dumps(kept))) > MAX_RESULT_BYTES:
            raise InvalidResultError(result_too_large(size))
        try:
            checked = check_values(kept, declared.values(), "result")
        except InvalidValuesError as error:
            first = error.errors[0]
            problem = f"{first.problem}: the service's program gave a result that its interface does not declare"
            raise InvalidResultError(WireError(Reason.INVALID_RESULT, printable(problem, 2000), first.path)) from None
        return {name: printable_value(item) for name, item in checked.items()}


def _not_an_object(value: Json) -> str:
    return f"a {type(value).__name__} is no object of the declared fields"
