# SPDX-License-Identifier: Apache-2.0
"""Options of ``study create`` that make the design ``optimise``, and the columns that it adds to a table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from simyard.api.base import Json
from simyard.api.study import Study
from simyard.cli.study.ranges import parse_decimal
from simyard.plan.studies.generations import Generations

ALGORITHMS = {"ga": "GA", "de": "DE", "pso": "PSO", "cmaes": "CMAES", "nsga2": "NSGAII", "nsga3": "NSGAIII"}
_BOUND = re.compile(r"\s*([a-z][a-z0-9_]*)\s*(<=|>=)\s*(\S+)\s*")
_OPTIONS = (
    click.option("--minimise", multiple=True, metavar="RESULT", help="A result to make small; repeatable."),
    click.option("--maximise", multiple=True, metavar="RESULT", help="A result to make large; repeatable."),
    click.option("--subject-to", "bounds", multiple=True, metavar="RESULT<=N",
                 help="A bound of a result (<= or >=); repeatable."),
    click.option("--algorithm", type=click.Choice(list(ALGORITHMS)),
                 help="The algorithm of the search. Default: de, or nsga2 for several results."),
    click.option("--population", type=click.IntRange(4, 1000), help="The number of points of a generation."),
    click.option("--evaluations", type=click.IntRange(min=4), help="The largest number of tasks of the search."),
    click.option("--generations", type=click.IntRange(min=1), help="The largest number of generations."),
    click.option("--islands", type=click.IntRange(2, 64), help="The number of populations that exchange points."),
)  # fmt: skip
F = TypeVar("F", bound=Callable[..., Any])
Row = list[str]


def add_search_options(command: F) -> F:
    """Add the options of a search to a command; :class:`SearchOptions` has their values."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """The values of the options of a search."""

    minimise: tuple[str, ...] = ()
    maximise: tuple[str, ...] = ()
    bounds: tuple[str, ...] = ()
    algorithm: str | None = None
    population: int | None = None
    evaluations: int | None = None
    generations: int | None = None
    islands: int | None = None

    @property
    def given(self) -> bool:
        """Whether the user asks for a search."""
        return self != SearchOptions()

    def make_design(self, axes: Sequence[Json], seed: int) -> Json:
        """Return the design.

        Raises:
            UsageError: an option is missing, or has another form.
        """
        objectives = [{"result": name, "goal": "Minimise"} for name in self.minimise]
        objectives += [{"result": name, "goal": "Maximise"} for name in self.maximise]
        if not objectives:
            raise click.UsageError("a search needs --minimise or --maximise with the name of a result")
        if self.evaluations is None and self.generations is None:
            raise click.UsageError("a search needs a budget: --evaluations or --generations")
        algorithm = ALGORITHMS[self.algorithm] if self.algorithm else "DE" if len(objectives) == 1 else "NSGAII"
        design: Json = {
            "axes": list(axes),
            "objectives": objectives,
            "constraints": [_parse_bound(text) for text in self.bounds],
            "algorithm": algorithm,
            "population": self.population,
            "evaluations": self.evaluations,
            "generations": self.generations,
            "seed": seed,
            "islands": None if self.islands is None else {"count": self.islands},
        }
        return {"optimise": {name: value for name, value in design.items() if value not in (None, [])}}


def _parse_bound(text: str) -> Json:
    found = _BOUND.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        value = parse_decimal(found[3])
    except ValueError:
        raise click.UsageError(f"--subject-to {text!r}: write RESULT<=NUMBER or RESULT>=NUMBER") from None
    return {"result": found[1], "atMost" if found[2] == "<=" else "atLeast": value}


def add_generations(rows: Iterable[Row], study: Study) -> Iterator[Row]:
    """Yield the rows of a study's table; those of an optimisation also have their generation and their island."""
    design = study.spec.design.optimise
    if design is None:
        yield from rows
        return
    lines, generations = iter(rows), Generations.read(design)
    header = next(lines)
    yield [header[0], "generation", "island", *header[1:]]
    for row in lines:
        index = int(row[0])
        yield [row[0], str(index // generations.size), str(generations.get_island(index)), *row[1:]]
