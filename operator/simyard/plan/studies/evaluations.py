# SPDX-License-Identifier: Apache-2.0
"""Evaluations of the points of an optimisation, and the archive of all of them: the best one, or the front."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import le

from simyard.api.optimisation import OptimisedDesign, SearchEnd

Values = tuple[float, ...]
"""Results of a task: those of the objectives, then those of the constraints."""
MIN_GAIN = 1e-4
"""Relative improvement of the best value that counts as a gain."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of a task as algorithms see it: all objectives are minimised.

    Attributes:
        objectives: values of the objectives; those to maximise with the other sign.
        violations: for each constraint, the distance to its bound divided by the bound (unless that is 0); positive
            if the constraint is violated.
    """

    objectives: tuple[float, ...]
    violations: tuple[float, ...] = ()

    @property
    def feasible(self) -> bool:
        """Whether all constraints are fulfilled."""
        return all(violation <= 0 for violation in self.violations)

    @property
    def violation(self) -> float:
        """Sum of the violations."""
        return sum(violation for violation in self.violations if violation > 0)


def evaluate(design: OptimisedDesign, values: Values | None) -> Evaluation | None:
    """Return the evaluation of a task; None if it failed."""
    if values is None:
        return None
    count = len(design.objectives)
    objectives = [
        value if item.goal == "Minimise" else -value
        for item, value in zip(design.objectives, values[:count], strict=True)
    ]
    violations = []
    for item, value in zip(design.constraints, values[count:], strict=True):
        bound = float(item.at_most if item.at_most is not None else item.at_least or 0)
        excess = value - bound if item.at_most is not None else bound - value
        violations.append(excess / (abs(bound) or 1.0))
    return Evaluation(tuple(objectives), tuple(violations))


def list_results(design: OptimisedDesign) -> list[str]:
    """Return the names of the results of objectives and constraints, in the order of ``Values``."""
    return [*(item.result for item in design.objectives), *(item.result for item in design.constraints)]


@dataclass(slots=True)
class Archive:
    """Sums over all evaluated points.

    Attributes:
        design: the design of the study.
        evaluations: number of points.
        feasible: number of feasible points.
        front: objectives of the feasible points that no other one dominates, by the index of their tasks; the best
            point alone if there is one objective.
        gains: the best value at the last gain, and the number of generations since then.
    """

    design: OptimisedDesign
    evaluations: int = 0
    feasible: int = 0
    front: dict[int, tuple[float, ...]] = field(default_factory=dict)
    _gain_value: float | None = None
    _generations_without_gain: int = 0

    def add_generation(self, told: Mapping[int, Values | None]) -> None:
        """Add the results that arrived since the last generation was chosen."""
        for index, values in sorted(told.items()):
            self.evaluations += 1
            found = evaluate(self.design, values)
            if found is not None and found.feasible:
                self.feasible += 1
                self._add_feasible(index, found.objectives)
        if len(self.design.objectives) == 1:
            self._count_gain()

    def find_end(self, chosen: int, count: int) -> SearchEnd | None:
        """Return the reason to end the search; ``chosen`` of at most ``count`` generations are chosen."""
        best, wanted = self.best, self.design.good_enough
        if best is not None and wanted is not None:
            sign = 1 if self.design.objectives[0].goal == "Minimise" else -1
            if self.front[best][0] <= sign * float(wanted):
                return "GoodEnough"
        limit = self.design.max_generations_without_gain
        if limit is not None and self._gain_value is not None and self._generations_without_gain >= limit:
            return "NoGain"
        return "BudgetSpent" if chosen >= count else None

    @property
    def best(self) -> int | None:
        """Index of the best point; None without a feasible one, or with several objectives."""
        return next(iter(self.front), None) if len(self.design.objectives) == 1 else None

    def _add_feasible(self, index: int, objectives: tuple[float, ...]) -> None:
        if any(_dominates(other, objectives) or other == objectives for other in self.front.values()):
            return
        self.front = {key: other for key, other in self.front.items() if not _dominates(objectives, other)}
        self.front[index] = objectives

    def _count_gain(self) -> None:
        if (best := self.best) is None:
            return
        value, before = self.front[best][0], self._gain_value
        if before is None or before - value > MIN_GAIN * abs(before):
            self._gain_value, self._generations_without_gain = value, 0
        else:
            self._generations_without_gain += 1


def _dominates(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(map(le, one, other))
