# SPDX-License-Identifier: Apache-2.0
"""Pictures of an optimisation: the convergence of one objective, or the front of two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from simyard.api.optimisation import OptimisedDesign
from simyard.cli.drawing import SERIES_COLOURS, Format, draw_picture
from simyard.cli.output import Failure
from simyard.cli.study.picture import INCHES, Labels
from simyard.cli.study.table import Columns, Row, to_value
from simyard.plan.studies.evaluations import Archive, Values, evaluate, list_results
from simyard_adapter.chunks import RESULT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_DRAWN_OBJECTIVES = 2


def draw_search(
    title: str, rows: Sequence[Row], columns: Columns, design: OptimisedDesign, labels: Labels, kind: Format
) -> bytes:
    """Return the picture of an optimisation as SVG or PNG.

    Raises:
        Failure: no point is feasible, the study has too many objectives, or matplotlib is not installed.
    """
    if len(design.objectives) > MAX_DRAWN_OBJECTIVES:
        raise Failure("a front of more than two objectives cannot be drawn: choose two columns with -x and -y")
    told = dict(_read_values(rows, columns, design))
    feasible = {index: values for index, values in told.items() if values is not None and _is_feasible(design, values)}
    if not feasible:
        raise Failure("no point is feasible yet")
    archive = Archive(design)
    archive.add_generation(told)
    names = [item.result for item in design.objectives]

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.set_title(title)
        if len(names) == 1:
            better = min if design.objectives[0].goal == "Minimise" else max
            best: list[float] = []
            for values in feasible.values():
                best.append(better(values[0], best[-1]) if best else values[0])
            axes.plot(list(feasible), [values[0] for values in feasible.values()], ".", color="silver", markersize=3)
            axes.step(list(feasible), best, where="post", color=SERIES_COLOURS[0], label="best feasible point")
            axes.set_xlabel("task")
            axes.set_ylabel(labels.format(names[0]))
        else:
            others = [values for index, values in feasible.items() if index not in archive.front]
            front = sorted(feasible[index] for index in archive.front)
            axes.plot([item[0] for item in others], [item[1] for item in others], ".", color="silver", markersize=3)
            axes.plot(
                [item[0] for item in front], [item[1] for item in front], "o", color=SERIES_COLOURS[0], markersize=3,
                label="front",
            )  # fmt: skip
            axes.set_xlabel(labels.format(names[0]))
            axes.set_ylabel(labels.format(names[1]))
        axes.legend()

    return draw_picture(paint, kind, inches=INCHES)


def _is_feasible(design: OptimisedDesign, values: Values) -> bool:
    found = evaluate(design, values)
    return found is not None and found.feasible


def _read_values(rows: Sequence[Row], columns: Columns, design: OptimisedDesign) -> Iterator[tuple[int, Values | None]]:
    """Yield the index of each task, and the results that the algorithm receives."""
    places = [columns.stored.index(RESULT + name) for name in list_results(design)]
    for row in rows:
        values = [to_value(row[place]) for place in places]
        yield int(row[0]), None if None in values else tuple(values)
