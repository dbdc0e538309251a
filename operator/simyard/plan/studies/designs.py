# SPDX-License-Identifier: Apache-2.0
"""Designs of studies: the parameters of each task, as a function of its index.

``build_design`` checks the whole design against the interface of the service, so a design that it returns has valid
points only. The points have the same order and the same values on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from simyard.api.study import MAX_TASKS, SampledDesign, StudyAxis, StudySpec
from simyard.plan.studies import sequences
from simyard.plan.studies.axes import Axis, GridAxis, read_grid_axis, read_sampled_axis
from simyard_adapter.declarations import (
    Action,
    InvalidValueError,
    InvalidValuesError,
    Json,
    Value,
    ValueType,
    check_values,
)

PATH = "spec.design"
Draw = Callable[[int, int, int], float]
"""Function of seed, axis and index to a coordinate in [0, 1)."""


@dataclass(frozen=True, slots=True)
class Grid:
    """All combinations of the values of its axes; the last axis varies fastest."""

    names: tuple[str, ...]
    axes: tuple[GridAxis, ...]
    count: int

    def compute_point(self, index: int) -> tuple[Json, ...]:
        """Return the values of one point: the index in mixed radix selects a value of each axis."""
        values: list[Json] = []
        for axis in reversed(self.axes):
            index, place = divmod(index, axis.count)
            values.append(axis.get_value(place))
        return tuple(reversed(values))


@dataclass(frozen=True, slots=True)
class Sampled:
    """Samples of the space of its axes."""

    names: tuple[str, ...]
    axes: tuple[Axis, ...]
    count: int
    seed: int
    draw: Draw

    def compute_point(self, index: int) -> tuple[Json, ...]:
        """Return the values of one point."""
        return tuple(axis.sample(self.draw(self.seed, number, index)) for number, axis in enumerate(self.axes))


@dataclass(frozen=True, slots=True)
class Table:
    """Points in a list."""

    names: tuple[str, ...]
    rows: tuple[tuple[Json, ...], ...]

    @property
    def count(self) -> int:
        """The number of points."""
        return len(self.rows)

    def compute_point(self, index: int) -> tuple[Json, ...]:
        """Return the values of one row."""
        return self.rows[index]


Design = Grid | Sampled | Table
"""Points of a study: ``names`` of the parameters that vary, their ``count``, and a function of the index."""


def build_design(spec: StudySpec, action: Action) -> Design:
    """Return the design of a study, checked against the declaration of its action.

    Raises:
        InvalidValuesError: The design, the fixed parameters or the stop rules do not fit the declared action. Each
            error has the path of the field.
    """
    numbers = [item.name for item in action.result if item.type in (ValueType.NUMBER, ValueType.INTEGER)]
    for place, rule in enumerate(spec.stop_when):
        if rule.result not in numbers:
            problem = f"{rule.result} is no result that is a number; such results are: {', '.join(numbers) or 'none'}"
            raise InvalidValuesError([InvalidValueError(f"spec.stopWhen[{place}].result", problem)])
    try:
        design = _read_design(spec, {item.name: item for item in action.parameters})
    except InvalidValueError as error:
        raise InvalidValuesError([error]) from None
    if design.count > MAX_TASKS:
        raise InvalidValuesError(
            [InvalidValueError(PATH, f"has {design.count} points, at most {MAX_TASKS} are accepted")]
        )
    check_values(
        {**spec.parameters, **dict(zip(design.names, design.compute_point(0), strict=True))},
        action.parameters,
        "spec.parameters",
    )
    return design


def _read_design(spec: StudySpec, declared: dict[str, Value]) -> Design:
    given = spec.design
    if given.grid is not None:
        path = f"{PATH}.grid.axes"
        names = _check_names([axis.name for axis in given.grid.axes], spec, declared, path)
        grid = tuple(
            read_grid_axis(axis, declared[axis.name], f"{path}[{place}]") for place, axis in enumerate(given.grid.axes)
        )
        return Grid(names, grid, math.prod(axis.count for axis in grid))
    if given.table is not None:
        names = _check_names(given.table.columns, spec, declared, f"{PATH}.table.columns")
        rows = [
            _read_row(row, [declared[name] for name in names], f"{PATH}.table.rows[{place}]")
            for place, row in enumerate(given.table.rows)
        ]
        return Table(names, tuple(rows))
    for field, sampled, make_draw in (
        ("random", given.random, lambda count: sequences.draw_uniform),
        ("latinHypercube", given.latin_hypercube, _make_stratified),
        ("sobol", given.sobol, lambda count: sequences.draw_sobol),
        ("halton", given.halton, lambda count: sequences.draw_halton),
    ):
        if sampled is not None:
            return _read_sampled(sampled, spec, declared, f"{PATH}.{field}.axes", make_draw(sampled.count))
    raise InvalidValueError(PATH, "needs exactly one kind of design")


def _read_sampled(given: SampledDesign, spec: StudySpec, declared: dict[str, Value], path: str, draw: Draw) -> Sampled:
    names = _check_names([axis.name for axis in given.axes], spec, declared, path)
    axes = tuple(_read_axis(axis, declared, f"{path}[{place}]") for place, axis in enumerate(given.axes))
    return Sampled(names, axes, given.count, given.seed, draw)


def _read_axis(axis: StudyAxis, declared: dict[str, Value], path: str) -> Axis:
    return read_sampled_axis(axis, declared[axis.name], path)


def _make_stratified(count: int) -> Draw:
    def draw(seed: int, axis: int, index: int) -> float:
        return sequences.draw_stratified(seed, axis, index, count)

    return draw


def _read_row(row: list[Json], columns: list[Value], path: str) -> tuple[Json, ...]:
    if len(row) != len(columns):
        raise InvalidValueError(path, f"has {len(row)} values, but the table has {len(columns)} columns")
    return tuple(
        column.check(value, f"{path}[{place}]") for place, (value, column) in enumerate(zip(row, columns, strict=True))
    )


def _check_names(names: list[str], spec: StudySpec, declared: dict[str, Value], path: str) -> tuple[str, ...]:
    for place, name in enumerate(names):
        where = f"{path}[{place}]"
        if name not in declared:
            known = ", ".join(sorted(declared)) or "none"
            raise InvalidValueError(where, f"{name} is not a parameter of the action; its parameters are: {known}")
        if name in spec.parameters:
            raise InvalidValueError(where, f"{name} has a fixed value in spec.parameters: remove it there or here")
        if name in names[:place]:
            raise InvalidValueError(where, f"{name} appears twice")
    return tuple(names)
