# SPDX-License-Identifier: Apache-2.0
"""Design ``optimise`` of a study: objectives, constraints, algorithm, budget and the state of the algorithm."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from simyard.api.base import ATOMIC, ApiModel, Count, Decimal, Term, add_cel_rules, make_cel_rule, map_by
from simyard.api.study_axis import MAX_AXES, Axes, Seed

MAX_GENERATIONS = 10_000
MAX_POPULATION = 1_000
MAX_ISLANDS = 64
MAX_OBJECTIVES = 4
MAX_CONSTRAINTS = 16
DEFAULT_POPULATION = 40
MAX_VALUE_CHARACTERS = 63


Algorithm = Literal["GA", "DE", "PSO", "CMAES", "NSGAII", "NSGAIII"]
MULTI_OBJECTIVE: tuple[Algorithm, ...] = ("NSGAII", "NSGAIII")
"""Algorithms that search the front of several objectives; all others have one objective."""
SearchEnd = Literal["BudgetSpent", "GoodEnough", "NoGain"]


class Objective(ApiModel):
    """Result that the study makes as small or as large as possible."""

    result: Annotated[Term, Field(description="Name of the result, which must be a number.")]
    goal: Annotated[Literal["Minimise", "Maximise"], Field(description="Direction of the search.")] = "Minimise"


class Constraint(ApiModel):
    """Bound of a result. A point is feasible if its task succeeds and its results are within all bounds."""

    model_config = add_cel_rules(
        make_cel_rule("has(self.atMost) != has(self.atLeast)", "needs exactly one of `atMost` and `atLeast`")
    )

    result: Annotated[Term, Field(description="Name of the result, which must be a number.")]
    at_most: Annotated[Decimal | None, Field(description="Largest permitted value.")] = None
    at_least: Annotated[Decimal | None, Field(description="Smallest permitted value.")] = None


class Islands(ApiModel):
    """Populations that search side by side, and exchange their best points from time to time."""

    count: Annotated[int, Field(ge=1, le=MAX_ISLANDS, description="Number of islands.")]
    topology: Annotated[
        Literal["Ring", "Complete"],
        Field(description="Islands that receive the migrants of an island: the next one, or all others."),
    ] = "Ring"
    interval: Annotated[
        int, Field(ge=1, le=MAX_GENERATIONS, description="Number of generations between two migrations.")
    ] = 10
    migrants: Annotated[
        int,
        Field(
            ge=1,
            le=MAX_POPULATION,
            description="Number of points that an island sends to each receiver. They replace its worst points.",
        ),
    ] = 2


class OptimisedDesign(ApiModel):
    """Points that an algorithm chooses, one generation after the other."""

    model_config = add_cel_rules(
        make_cel_rule(
            "has(self.generations) || has(self.evaluations)",
            "needs a budget: set `evaluations`, `generations`, or both",
            ".evaluations",
        ),
        make_cel_rule(
            f"(self.algorithm in {list(MULTI_OBJECTIVE)}) == (self.objectives.size() > 1)",
            "NSGAII and NSGAIII are for several objectives, and all other algorithms are for one",
            ".algorithm",
        ),
        make_cel_rule(
            "self.algorithm != 'CMAES' || self.axes.size() > 1",
            "CMAES needs at least two parameters that vary: choose DE",
            ".algorithm",
        ),
        make_cel_rule(
            "self.objectives.size() == 1 || !(has(self.goodEnough) || has(self.maxGenerationsWithoutGain))",
            "`goodEnough` and `maxGenerationsWithoutGain` need a single objective: remove them",
        ),
    )

    axes: Axes
    objectives: Annotated[
        list[Objective],
        Field(min_length=1, max_length=MAX_OBJECTIVES, json_schema_extra=map_by("result"), description="Objectives."),
    ]
    constraints: Annotated[
        list[Constraint],
        Field(max_length=MAX_CONSTRAINTS, json_schema_extra=ATOMIC, description="Bounds of results."),
    ] = []
    algorithm: Annotated[
        Algorithm,
        Field(
            description="Algorithm: genetic (`GA`), differential evolution (`DE`), particle swarm (`PSO`), or"
            " covariance matrix adaptation (`CMAES`) for one objective; `NSGAII` or `NSGAIII` for several.",
        ),
    ]
    population: Annotated[
        int, Field(ge=4, le=MAX_POPULATION, description="Number of points of each generation of an island.")
    ] = DEFAULT_POPULATION
    evaluations: Annotated[
        int | None,
        Field(
            ge=4,
            le=10_000_000,
            description="Maximum number of tasks. Only whole generations run, and at least one.",
        ),
    ] = None
    generations: Annotated[
        int | None, Field(ge=1, le=MAX_GENERATIONS, description="Maximum number of generations.")
    ] = None
    seed: Seed = 0
    islands: Annotated[
        Islands | None, Field(description="Several populations. By default, there is a single population.")
    ] = None
    quorum_percent: Annotated[
        int,
        Field(
            ge=50,
            le=100,
            description="Share of the tasks of a generation that must have ended before the next generation is chosen."
            " The other tasks still run, but the algorithm counts their points as the worst.",
        ),
    ] = 100
    good_enough: Annotated[
        Decimal | None,
        Field(description="Value of the objective: the study ends when a feasible point is as good, or better."),
    ] = None
    max_generations_without_gain: Annotated[
        int | None,
        Field(
            ge=1,
            le=MAX_GENERATIONS,
            description="Number of generations after which the study ends if the best value did not become better by"
            " 0.01 %.",
        ),
    ] = None


class NamedValue(ApiModel):
    """Value of a parameter or a result."""

    name: Annotated[str, Field(max_length=63, description="Name of the parameter or the result.")]
    value: Annotated[str, Field(max_length=MAX_VALUE_CHARACTERS, description="Value as text.")]


class BestPoint(ApiModel):
    """Best feasible point of a study with one objective."""

    index: Annotated[Count, Field(description="Index of its task.")]
    value: Annotated[str, Field(max_length=32, description="Value of the objective, a decimal number.")]
    parameters: Annotated[
        list[NamedValue],
        Field(max_length=MAX_AXES, json_schema_extra=map_by("name"), description="Values of the parameters that vary."),
    ] = []


class OptimisationStatus(ApiModel):
    """State of the algorithm. The process `simyard optimiser` writes it."""

    generations: Annotated[Count, Field(description="Number of generations whose points are chosen.")] = 0
    evaluations: Annotated[Count, Field(description="Number of tasks whose results the algorithm has.")] = 0
    feasible: Annotated[Count, Field(description="Number of these tasks that fulfil all constraints.")] = 0
    best: Annotated[BestPoint | None, Field(description="Best feasible point, with one objective.")] = None
    front_size: Annotated[
        Count | None,
        Field(description="Number of feasible points that no other point dominates, with several objectives."),
    ] = None
    ended: Annotated[SearchEnd | None, Field(description="Reason for the end of the search.")] = None
