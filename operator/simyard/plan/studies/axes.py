# SPDX-License-Identifier: Apache-2.0
"""Axes of a design: the values of one parameter, as a list, as steps, or as a continuous range."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

from simyard.api.study_axis import StudyAxis
from simyard_adapter.declarations import InvalidValueError, Json, Value, ValueType

MAX_CHECKED_STEPS = 10_000
"""Number of steps up to which each step is checked against the interface; of a longer range, both ends are checked."""
MAX_STEPS = 2**53
"""Maximum number of steps of a range: as many as a position in [0, 1] can select."""
MAX_EXPONENT = 150
"""Maximum order of magnitude of a number of a range; the quotient of two such numbers is a finite float."""


class Axis(Protocol):
    """Values of one parameter."""

    def sample(self, position: float) -> Json:
        """Return the value at a position in [0, 1]; equal parts of the axis belong to equal parts of the interval."""


@dataclass(frozen=True, slots=True)
class Choices:
    """A list of values."""

    values: tuple[Json, ...]

    @property
    def count(self) -> int:
        """The number of values."""
        return len(self.values)

    def get_value(self, place: int) -> Json:
        """Return the value at a place of the list."""
        return self.values[place]

    def sample(self, position: float) -> Json:
        """Return the value at a position in [0, 1]."""
        return self.values[min(int(position * self.count), self.count - 1)]


@dataclass(frozen=True, slots=True)
class Steps:
    """Values with equal distances on a linear scale: ``start + place * step``, computed with decimals."""

    start: Decimal
    step: Decimal
    count: int

    def get_value(self, place: int) -> Json:
        """Return the value at a place, as an integer where it is one."""
        return _to_number(self.start + place * self.step)

    def sample(self, position: float) -> Json:
        """Return the value at a position in [0, 1]."""
        return self.get_value(min(int(position * self.count), self.count - 1))


@dataclass(frozen=True, slots=True)
class LogSteps:
    """Values with equal ratios, both ends included."""

    start: float
    stop: float
    count: int

    def get_value(self, place: int) -> Json:
        """Return the value at a place; both ends are exact."""
        if place in (0, self.count - 1):
            return _shorten(self.start if place == 0 else self.stop)
        return _shorten(self.start * (self.stop / self.start) ** (place / (self.count - 1)))

    def sample(self, position: float) -> Json:
        """Return the value at a position in [0, 1]."""
        return self.get_value(min(int(position * self.count), self.count - 1))


@dataclass(frozen=True, slots=True)
class Interval:
    """A continuous range, on a linear or a logarithmic scale."""

    start: float
    stop: float
    log: bool = False

    def sample(self, position: float) -> Json:
        """Return the value at a position in [0, 1]."""
        if self.log:
            value = math.exp(math.log(self.start) + position * (math.log(self.stop) - math.log(self.start)))
        else:
            value = self.start + position * (self.stop - self.start)
        low, high = min(self.start, self.stop), max(self.start, self.stop)
        return min(max(value, low), high)


@dataclass(frozen=True, slots=True)
class RoundedInterval:
    """Integers between two bounds on a logarithmic scale; both bounds are included."""

    start: int
    stop: int

    def sample(self, position: float) -> Json:
        """Return the integer at a position in [0, 1]."""
        low, high = math.log(self.start), math.log(self.stop + 1)
        value = int(math.exp(low + position * (high - low)))  # the exponential of log(5) is below 5
        return min(max(value, self.start), self.stop)


GridAxis = Choices | Steps | LogSteps
"""An axis with a known number of values."""


def read_grid_axis(axis: StudyAxis, declared: Value, path: str) -> GridAxis:
    """Return an axis of a grid.

    Raises:
        InvalidValueError: A value does not fit the declared parameter, or the range has no steps.
    """
    _check_form(axis, declared, path)
    if axis.values is not None:
        return _read_choices(axis.values, declared, path)
    start, stop = _read_bounds(axis, path)
    if axis.count is not None:
        values = _make_counted(axis, start, stop, path)
    else:
        step = axis.step
        if step is None and declared.type is ValueType.INTEGER:
            step = 1 if stop >= start else -1
        if step is None:
            raise InvalidValueError(path, f"a range of {axis.name} needs `step` or `count` in a grid")
        if axis.scale == "Log":
            raise InvalidValueError(f"{path}.scale", "a grid on a logarithmic scale needs `count` in place of `step`")
        values = _make_steps(start, stop, _read_decimal(step, f"{path}.step"), path)
    _check_steps(values, declared, path)
    return values


def read_sampled_axis(axis: StudyAxis, declared: Value, path: str) -> Axis:
    """Return an axis of a design with samples.

    Raises:
        InvalidValueError: A value does not fit the declared parameter, or the range is empty.
    """
    _check_form(axis, declared, path)
    if axis.values is not None:
        return _read_choices(axis.values, declared, path)
    start, stop = _read_bounds(axis, path)
    if axis.count is not None:
        raise InvalidValueError(f"{path}.count", "belongs to a grid; the number of samples is `count` of the design")
    if stop <= start:
        raise InvalidValueError(f"{path}.stop", "must be above `start`")
    step = axis.step if axis.step is not None else (1 if declared.type is ValueType.INTEGER else None)
    if step is None:
        declared.check(_to_number(start), f"{path}.start")
        declared.check(_to_number(stop), f"{path}.stop")
        return Interval(float(start), float(stop), axis.scale == "Log")
    distance = _read_decimal(step, f"{path}.step")
    if axis.scale == "Log":
        if distance != 1 or start != start.to_integral_value() or stop != stop.to_integral_value():
            raise InvalidValueError(f"{path}.step", "a logarithmic scale has continuous values, or integers (step 1)")
        declared.check(int(start), f"{path}.start")
        declared.check(int(stop), f"{path}.stop")
        return RoundedInterval(int(start), int(stop))
    steps = _make_steps(start, stop, distance, path)
    _check_steps(steps, declared, path)
    return steps


def _check_form(axis: StudyAxis, declared: Value, path: str) -> None:
    """Raise InvalidValueError unless an axis has the declared unit, and either a list of values or a range."""
    if axis.unit and axis.unit != declared.unit:
        unit = f"the unit {declared.unit}" if declared.unit else "no unit"
        raise InvalidValueError(f"{path}.unit", f"is {axis.unit}, but the service declares {unit} for {axis.name}")
    if (axis.values is None) == (axis.start is None or axis.stop is None):
        raise InvalidValueError(path, "needs either `values`, or `start` and `stop`")
    if axis.values is not None and (axis.step is not None or axis.count is not None or axis.scale != "Linear"):
        raise InvalidValueError(f"{path}.values", "`step`, `count` and `scale` belong to a range, not to `values`")


def _read_choices(values: list[Json], declared: Value, path: str) -> Choices:
    return Choices(tuple(declared.check(value, f"{path}.values[{place}]") for place, value in enumerate(values)))


def _read_bounds(axis: StudyAxis, path: str) -> tuple[Decimal, Decimal]:
    start, stop = _read_decimal(axis.start, f"{path}.start"), _read_decimal(axis.stop, f"{path}.stop")
    if axis.scale == "Log" and min(start, stop) <= 0:
        raise InvalidValueError(f"{path}.start", "a logarithmic scale needs bounds above 0")
    return start, stop


def _read_decimal(value: object, path: str) -> Decimal:
    try:
        number = Decimal(str(value))
    except ArithmeticError:  # the exponent has too many digits
        number = Decimal("inf")
    if not number.is_finite() or (number and abs(number.adjusted()) >= MAX_EXPONENT):
        problem = f"{value} is too large or too small: the exponent of a number of a range is below {MAX_EXPONENT}"
        raise InvalidValueError(path, problem)
    return number


def _make_counted(axis: StudyAxis, start: Decimal, stop: Decimal, path: str) -> GridAxis:
    count = axis.count or 1
    if count == 1 and start != stop:
        raise InvalidValueError(f"{path}.count", "one value cannot include both `start` and `stop`")
    if axis.scale == "Log":
        return LogSteps(float(start), float(stop), count)
    return Steps(start, (stop - start) / max(1, count - 1), count)


def _make_steps(start: Decimal, stop: Decimal, step: Decimal, path: str) -> Steps:
    if step == 0 or (stop - start) * step < 0:
        raise InvalidValueError(f"{path}.step", "does not lead from `start` to `stop`")
    steps = (stop - start) / step
    if steps >= MAX_STEPS:
        raise InvalidValueError(f"{path}.step", f"leads from `start` to `stop` in more than {MAX_STEPS} steps")
    return Steps(start, step, int(steps) + 1)


def _check_steps(axis: GridAxis, declared: Value, path: str) -> None:
    places = range(axis.count) if axis.count <= MAX_CHECKED_STEPS else (0, 1, axis.count - 1)
    for place in places:
        declared.check(axis.get_value(place), path)


def _to_number(value: Decimal) -> int | float:
    return int(value) if value == value.to_integral_value() else float(value)


def _shorten(value: float) -> int | float:
    """Return a number with 15 significant digits, so that it does not depend on the last bit of a power."""
    short = float(f"{value:.15g}")
    return int(short) if short.is_integer() and abs(short) < 2**53 else short
