# SPDX-License-Identifier: Apache-2.0
"""Populations of the algorithms of pymoo and cma, behind one interface of ask and tell.

All algorithms work on coordinates in [0, 1]. A constraint is handled by the rules of K. Deb, "An efficient constraint
handling method for genetic algorithms", Comput. Methods Appl. Mech. Eng. 186 (2000): a feasible point is better than an
infeasible one, of two infeasible points the one with the smaller violation is better, and a point without a result is
the worst.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.algorithms.moo.nsga3 import NSGA3
from pymoo.algorithms.soo.nonconvex.de import DE
from pymoo.algorithms.soo.nonconvex.ga import GA
from pymoo.algorithms.soo.nonconvex.pso import PSO
from pymoo.core.evaluator import Evaluator
from pymoo.core.individual import Individual
from pymoo.core.population import Population
from pymoo.core.problem import Problem
from pymoo.core.termination import NoTermination
from pymoo.operators.sampling.lhs import LHS
from pymoo.operators.selection.tournament import TournamentSelection
from pymoo.operators.survival.rank_and_crowding.metrics import calc_crowding_distance
from pymoo.problems.static import StaticProblem
from pymoo.util.nds.non_dominated_sorting import NonDominatedSorting
from pymoo.util.ref_dirs import get_reference_directions

from simyard.api.optimisation import OptimisedDesign
from simyard.plan.studies.evaluations import Evaluation

Coordinates = NDArray[np.float64]
WORST = 1e100
"""Violation of a point without a result."""
INITIAL_STEP = 0.3
"""First standard deviation of CMA-ES; the optimum should lie within three of them around the first mean."""
CONVERGED_STEP = 1e-6
"""Standard deviation at which CMA-ES has converged; it then begins again elsewhere."""
_RESTART_REASONS = frozenset({"tolx", "conditioncov", "noeffectaxis", "noeffectcoord"})


class Island(Protocol):
    """A population of one algorithm."""

    def ask(self) -> Coordinates:
        """Return the points of the next generation, a row for each."""

    def adopt(self, points: Coordinates) -> None:
        """Replace the points of the last call of :meth:`ask`."""

    def tell(self, evaluations: Sequence[Evaluation | None]) -> None:
        """Receive the results of the points of the last call of :meth:`ask`; None for a point without a result."""

    def select_emigrants(self, count: int) -> Any:
        """Return the best points."""

    def add_immigrants(self, immigrants: Any) -> None:
        """Receive the emigrants of another island of the same algorithm, in place of the worst points."""


class PymooIsland:
    """A population of an algorithm of pymoo."""

    def __init__(self, design: OptimisedDesign, seed: int) -> None:
        self._problem = Problem(
            n_var=len(design.axes),
            n_obj=len(design.objectives),
            n_ieq_constr=len(design.constraints) + 1,  # the last one: the task has a result
            xl=0.0,
            xu=1.0,
        )
        self._algorithm = _make_algorithm(design)
        self._algorithm.setup(self._problem, termination=NoTermination(), seed=seed)
        self._asked: Population = Population()

    def ask(self) -> Coordinates:
        """Return the points of the next generation."""
        self._asked = self._algorithm.ask()
        return np.asarray(self._asked.get("X"), float)

    def adopt(self, points: Coordinates) -> None:
        """Replace the points of the last call of ask."""
        self._asked.set("X", points)

    def tell(self, evaluations: Sequence[Evaluation | None]) -> None:
        """Receive the results of the points of the last call of ask."""
        objectives = [[0.0] * self._problem.n_obj if item is None else item.objectives for item in evaluations]
        constraints = [
            [0.0] * (self._problem.n_ieq_constr - 1) + [WORST] if item is None else [*item.violations, -1.0]
            for item in evaluations
        ]
        known = StaticProblem(self._problem, F=np.array(objectives), G=np.array(constraints))
        Evaluator().eval(known, self._asked)
        self._algorithm.tell(infills=self._asked)

    def select_emigrants(self, count: int) -> list[Individual]:
        """Return the best points."""
        return [self._algorithm.pop[place] for place in self._rank()[:count]]

    def add_immigrants(self, immigrants: list[Individual]) -> None:
        """Receive the emigrants of another island in place of the worst points."""
        for place, individual in zip(reversed(self._rank()), immigrants, strict=False):
            self._algorithm.pop[place] = individual.copy(deep=True)  # each island ranks its own individuals

    def _rank(self) -> list[int]:
        """Return the places of all points, the best first."""
        population = self._algorithm.pop
        violations, objectives = population.get("CV")[:, 0], population.get("F")
        if self._problem.n_obj == 1:
            keys = objectives[:, 0]
        else:  # the number of the front, and then the distance to the neighbours
            keys = np.empty(len(population))
            for number, front in enumerate(NonDominatedSorting().do(objectives)):
                keys[front] = number + 0.5 / (1 + np.minimum(calc_crowding_distance(objectives[front]), WORST))
        return [int(place) for place in np.lexsort((keys, violations))]


class CmaIsland:
    """A population of CMA-ES. It uses the order of points only, and begins again elsewhere after it has converged."""

    def __init__(self, design: OptimisedDesign, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._dimension = len(design.axes)
        self._population = design.population
        self._step = INITIAL_STEP
        self._asked: Coordinates = np.empty((0, self._dimension))
        self._best: list[tuple[tuple[float, float], Coordinates]] = []
        self._strategy = self._start()

    def _start(self) -> Any:
        import cma  # with matplotlib, which takes 90 MiB of memory that other algorithms do not need

        options = {
            "popsize": self._population,
            "bounds": [0, 1],
            "randn": lambda *shape: self._random.standard_normal(shape),
            "seed": np.nan,  # the global generator of numpy keeps its state: `randn` replaces it
            "tolx": CONVERGED_STEP,
            "verbose": -9,
        }
        return cma.CMAEvolutionStrategy(self._random.random(self._dimension), INITIAL_STEP, options)

    def ask(self) -> Coordinates:
        """Return the points of the next generation."""
        if _RESTART_REASONS & set(self._strategy.stop()):
            self._strategy = self._start()
        self._asked = np.asarray(self._strategy.ask(), float)
        return self._asked

    def adopt(self, points: Coordinates) -> None:
        """Replace the points of the last call of ask."""
        self._asked = points

    def tell(self, evaluations: Sequence[Evaluation | None]) -> None:
        """Receive the results of the points of the last call of ask."""
        keys = [(WORST, 0.0) if item is None else (item.violation, item.objectives[0]) for item in evaluations]
        order = sorted(range(len(keys)), key=keys.__getitem__)
        self._strategy.tell(list(self._asked), [float(order.index(place)) for place in range(len(order))])
        self._best = sorted(
            [*self._best, *((key, point) for key, point in zip(keys, self._asked, strict=True))], key=lambda it: it[0]
        )[: self._population]

    def select_emigrants(self, count: int) -> list[Coordinates]:
        """Return the best points so far."""
        return [point for _, point in self._best[:count]]

    def add_immigrants(self, immigrants: list[Coordinates]) -> None:
        """Receive the emigrants of another island: they are points of the next generation."""
        self._strategy.inject(immigrants)


def make_island(design: OptimisedDesign, seed: int) -> Island:
    """Return a new population of the algorithm of a design."""
    return CmaIsland(design, seed) if design.algorithm == "CMAES" else PymooIsland(design, seed)


def _make_algorithm(design: OptimisedDesign) -> Any:
    size, sampling = design.population, LHS()
    match design.algorithm:
        case "GA":
            return GA(pop_size=size, sampling=sampling, eliminate_duplicates=False)
        case "DE":
            # the classic form: R. Storn and K. Price, J. Glob. Optim. 11 (1997), 341-359
            return DE(pop_size=size, sampling=sampling, variant="DE/rand/1/bin", F=0.5, CR=0.9, prob_mut=0.0)
        case "PSO":
            return PSO(pop_size=size, sampling=sampling)
        case "NSGAII":
            return NSGA2(pop_size=size, sampling=sampling, eliminate_duplicates=False)
        case _:
            return NSGA3(
                _make_directions(len(design.objectives), size),
                pop_size=size,
                sampling=sampling,
                selection=TournamentSelection(func_comp=_choose_parents),
                eliminate_duplicates=False,
            )


def _choose_parents(
    population: Population, pairs: NDArray[np.int64], random_state: np.random.Generator, **_: Any
) -> NDArray[np.int64]:
    """Return the one of each pair with the smaller violation, or any one of equal ones.

    The default of pymoo 0.6.2 draws from a generator of its own, so a replay would make other choices.
    """
    violations = population.get("CV")[:, 0][pairs]
    drawn = random_state.integers(0, 2, len(pairs))
    chosen = np.where(violations[:, 0] == violations[:, 1], drawn, violations.argmin(axis=1))
    return pairs[np.arange(len(pairs)), chosen][:, None]


def _make_directions(objectives: int, population: int) -> Coordinates:
    """Return the largest set of evenly spread directions that is no larger than the population (Das and Dennis)."""
    partitions = 1
    while math.comb(partitions + objectives, objectives - 1) <= population:
        partitions += 1
    return np.asarray(get_reference_directions("das-dennis", objectives, n_partitions=partitions))
