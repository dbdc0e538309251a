# SPDX-License-Identifier: Apache-2.0
"""Designs of studies: the parameters of each task, as a function of its index.

``build_design`` checks the whole design against the interface of the service, so a design that it returns has valid
points only. The points have the same order and the same values on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from simyard.api.study import MAX_TASKS, SampledDesign, StudySpec, TableDesign
from simyard.api.study_axis import StudyAxis
from simyard.plan.studies import sequences
from simyard.plan.studies.axes import Axis, GridAxis, read_grid_axis, read_sampled_axis
from simyard.plan.studies.generations import Generations
from simyard.plan.studies.layout import Layout, make_layout
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


@dataclass(slots=True)
class Searched:
    """Points that an algorithm chooses, one generation after the other.

    Attributes:
        names: names of the parameters that vary.
        axes: axes of the space.
        generations: the tasks of each generation.
        chosen: number of generations whose points are chosen.
        coordinates: coordinates in [0, 1] of the points of each generation that is not finished.
    """

    names: tuple[str, ...]
    axes: tuple[Axis, ...]
    generations: Generations
    chosen: int = 0
    coordinates: dict[int, Sequence[Sequence[float]]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """The number of points of all generations."""
        return self.generations.tasks

    def compute_point(self, index: int) -> tuple[Json, ...]:
        """Return the values of one point; its generation must be in ``coordinates``."""
        generation, place = divmod(index, self.generations.size)
        return self._place(self.coordinates[generation][place])

    def compute_middle(self) -> tuple[Json, ...]:
        """Return the point in the middle of the space."""
        return self._place([0.5] * len(self.axes))

    def _place(self, coordinates: Sequence[float]) -> tuple[Json, ...]:
        return tuple(axis.sample(position) for axis, position in zip(self.axes, coordinates, strict=True))


Design = Grid | Sampled | Table | Searched
"""Points of a study: ``names`` of the parameters that vary, their ``count``, and a function of the index."""


def build_design(spec: StudySpec, action: Action, table: TableDesign | None = None) -> Design:
    """Return the design of a study, checked against the declaration of its action.

    ``table`` has the points of a table that is in a file.

    Raises:
        InvalidValuesError: The design, the fixed parameters or the stop rules do not fit the declared action. Each
            error has the path of the field.
    """
    numbers = [item.name for item in action.result if item.type in (ValueType.NUMBER, ValueType.INTEGER)]
    for path, result in _list_results(spec):
        if result not in numbers:
            problem = f"{result} is no result that is a number; such results are: {', '.join(numbers) or 'none'}"
            raise InvalidValuesError([InvalidValueError(path, problem)])
    try:
        design = _read_design(spec, {item.name: item for item in action.parameters}, table)
    except InvalidValueError as error:
        raise InvalidValuesError([error]) from None
    if design.count > MAX_TASKS:
        raise InvalidValuesError(
            [InvalidValueError(PATH, f"has {design.count} points, at most {MAX_TASKS} are accepted")]
        )
    example = design.compute_middle() if isinstance(design, Searched) else design.compute_point(0)
    check_values(
        {**spec.parameters, **dict(zip(design.names, example, strict=True))},
        action.parameters,
        "spec.parameters",
    )
    return design


def lay_out(design: Design, wanted: int | None, decided: int | None) -> Layout:
    """Return the chunks of a design; the other arguments are those of :func:`make_layout`."""
    if isinstance(design, Searched):
        return design.generations.make_layout(wanted, decided)
    return make_layout(design.count, wanted, decided)


def _list_results(spec: StudySpec) -> Iterator[tuple[str, str]]:
    """Yield the path and the name of each result that must be a number."""
    for place, rule in enumerate(spec.stop_when):
        yield f"spec.stopWhen[{place}].result", rule.result
    if (search := spec.design.optimise) is not None:
        for place, objective in enumerate(search.objectives):
            yield f"{PATH}.optimise.objectives[{place}].result", objective.result
        for place, constraint in enumerate(search.constraints):
            yield f"{PATH}.optimise.constraints[{place}].result", constraint.result


def _read_design(spec: StudySpec, declared: dict[str, Value], table: TableDesign | None) -> Design:
    given = spec.design
    if given.grid is not None:
        path = f"{PATH}.grid.axes"
        names = _check_names([axis.name for axis in given.grid.axes], spec, declared, path)
        grid = tuple(
            read_grid_axis(axis, declared[axis.name], f"{path}[{place}]") for place, axis in enumerate(given.grid.axes)
        )
        return Grid(names, grid, math.prod(axis.count for axis in grid))
    if given.table is not None:
        table = table or given.table
        if table.rows is None:
            raise InvalidValueError(f"{PATH}.table.rows", "has no points")
        names = _check_names(table.columns or [], spec, declared, f"{PATH}.table.columns")
        columns = [declared[name] for name in names]
        rows = [_read_row(row, columns, f"{PATH}.table.rows[{place}]") for place, row in enumerate(table.rows)]
        return Table(names, tuple(rows))
    if (search := given.optimise) is not None:
        path = f"{PATH}.optimise.axes"
        names = _check_names([axis.name for axis in search.axes], spec, declared, path)
        generations = Generations.read(search)
        generations.check(f"{PATH}.optimise.evaluations")
        return Searched(names, _read_axes(search.axes, declared, path), generations)
    for kind, sampled, make_draw in (
        ("random", given.random, lambda count: sequences.draw_uniform),
        ("latinHypercube", given.latin_hypercube, _make_stratified),
        ("sobol", given.sobol, lambda count: sequences.draw_sobol),
        ("halton", given.halton, lambda count: sequences.draw_halton),
    ):
        if sampled is not None:
            return _read_sampled(sampled, spec, declared, f"{PATH}.{kind}.axes", make_draw(sampled.count))
    raise InvalidValueError(PATH, "needs exactly one kind of design")


def _read_sampled(given: SampledDesign, spec: StudySpec, declared: dict[str, Value], path: str, draw: Draw) -> Sampled:
    names = _check_names([axis.name for axis in given.axes], spec, declared, path)
    return Sampled(names, _read_axes(given.axes, declared, path), given.count, given.seed, draw)


def _read_axes(axes: Sequence[StudyAxis], declared: dict[str, Value], path: str) -> tuple[Axis, ...]:
    return tuple(_read_axis(axis, declared, f"{path}[{place}]") for place, axis in enumerate(axes))


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
