# SPDX-License-Identifier: Apache-2.0
"""Pictures of a study: one result over one parameter, or as a map over two."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simyard.cli.drawing import SERIES_COLOURS, Format, draw_picture
from simyard.cli.output import Failure
from simyard.cli.study.table import Columns, Row, to_value
from simyard_adapter.chunks import PARAMETER, RESULT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INCHES = (7.0, 4.2)
MAX_SERIES = 6
CHECK_COLOUR = "#333333"
MAX_LINE_POINTS = 400
"""The largest number of points of a series that are joined by a line; more are drawn as dots."""


@dataclass(frozen=True, slots=True)
class Labels:
    """Names of the drawn columns with their units, as the service declares them."""

    units: dict[str, str]

    def format(self, name: str) -> str:
        """Return the label of an axis."""
        unit = self.units.get(name, "")
        return f"{name} [{unit}]" if unit else name


@dataclass(frozen=True, slots=True)
class Choice:
    """Columns to draw: parameters on the axes, the result, and the values to compare it with, if any."""

    parameters: tuple[int, ...]
    result: int
    check: int | None = None


def choose_columns(
    columns: Columns, rows: Sequence[Row], parameters: Sequence[str], result: str, check: str = ""
) -> Choice:
    """Return the columns to draw; by default the parameters that vary and the first result that is a number.

    Raises:
        Failure: a name is unknown, or the table does not decide which columns to draw.
    """
    known = {columns.shown[place]: place for place in columns.list_places(PARAMETER)}
    results = {columns.shown[place]: place for place in columns.list_places(RESULT)}
    _check_names(parameters, known)
    _check_names(filter(None, [result, check]), results)
    varying = [known[name] for name in parameters] or [
        place for place in known.values() if len({row[place] for row in rows if to_value(row[place]) is not None}) > 1
    ]
    if not 1 <= len(varying) <= 2:
        choices = ", ".join(known)
        raise Failure(f"a picture has one or two parameters: choose them with -x and --by among {choices}")
    numeric = [place for place in results.values() if any(to_value(row[place]) is not None for row in rows)]
    if not numeric:
        raise Failure("no task has a result that is a number")
    return Choice(tuple(varying), results[result] if result else numeric[0], results[check] if check else None)


def _check_names(names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise Failure(f"there is no column {name}; the columns are: {', '.join(known)}")


def draw_study(
    title: str, rows: Iterable[Row], columns: Columns, choice: Choice, labels: Labels, kind: Format
) -> bytes:
    """Return the picture of a study as SVG or PNG.

    One parameter makes a curve. Two parameters make a family of curves if the second has few values, else a map. The
    values to compare with are a dashed line beside each curve; a map has none.

    Raises:
        Failure: matplotlib is not installed, or no task has numbers in all columns.
    """
    places = (*choice.parameters, choice.result, *([] if choice.check is None else [choice.check]))
    cells = ([to_value(row[place]) for place in places] for row in rows)
    points = [tuple(value for value in values if value is not None) for values in cells if None not in values]
    if not points:
        raise Failure("no task has numbers in all of the columns to draw")
    names = [columns.shown[place] for place in (*choice.parameters, choice.result)]
    checked = "" if choice.check is None else columns.shown[choice.check]

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.set_title(title)
        axes.set_xlabel(labels.format(names[0]))
        if len(names) == 2:
            _draw_series(axes, points, 0, names[1] if checked else "")
            axes.set_ylabel(labels.format(names[1]))
        elif len(values := sorted({point[1] for point in points})) <= MAX_SERIES:
            for number, value in enumerate(values):
                label = f"{names[1]} = {value:g} {labels.units.get(names[1], '')}".rstrip()
                _draw_series(axes, [(x, *z) for x, y, *z in points if y == value], number, label)
            axes.set_ylabel(labels.format(names[2]))
        else:
            _draw_map(figure, axes, points, labels.format(names[2]))
            axes.set_ylabel(labels.format(names[1]))
        if checked and axes.lines:
            axes.plot([], [], "--", color=CHECK_COLOUR, linewidth=1, label=checked)
        if axes.get_legend_handles_labels()[1]:
            axes.legend()

    return draw_picture(paint, kind, inches=INCHES)


def _draw_series(axes: Axes, points: Sequence[Sequence[float]], number: int, label: str = "") -> None:
    """Draw a curve through points, which may have a third number to compare the second with."""
    ordered = sorted(tuple(point) for point in points)
    style = "o-" if len(ordered) <= MAX_LINE_POINTS else "."
    axes.plot(
        [point[0] for point in ordered],
        [point[1] for point in ordered],
        style,
        color=SERIES_COLOURS[number % len(SERIES_COLOURS)],
        markersize=3,
        linewidth=1,
        label=label,
    )
    if len(ordered[0]) > 2:
        axes.plot(
            [point[0] for point in ordered], [point[2] for point in ordered], "--", color=CHECK_COLOUR, linewidth=1
        )


def _draw_map(figure: Figure, axes: Axes, points: Sequence[Sequence[float]], label: str) -> None:
    x, y, z = ([point[place] for point in points] for place in range(3))  # a fourth number is not drawn
    if len(set(x)) > 1 and len(set(y)) > 1 and len(points) >= 9:
        figure.colorbar(axes.tricontourf(x, y, z, levels=14, cmap="viridis"), label=label)
        axes.plot(x, y, ".", color="white", markersize=1.5, alpha=0.5)
    else:
        figure.colorbar(axes.scatter(x, y, c=z, cmap="viridis"), label=label)
