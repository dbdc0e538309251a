# SPDX-License-Identifier: Apache-2.0
"""Problems with published solutions, and a search that evaluates them in this process."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from simyard.api.base import Json
from simyard.api.optimisation import OptimisedDesign
from simyard.guest.rows import TaskRow
from simyard.optimiser.search import Search

Function = Callable[[Sequence[float]], Sequence[float]]
"""Function of a point in natural units to its objectives and the results of its constraints."""


@dataclass(frozen=True)
class Problem:
    """A problem: the range of each parameter, and the bound (at most) of each constraint."""

    function: Function
    ranges: tuple[tuple[float, float], ...]
    bounds: tuple[float, ...] = ()
    objectives: int = 1

    def make_design(self, algorithm: str, **settings: Any) -> OptimisedDesign:
        axes = [
            {"name": f"x{place}", "start": str(low), "stop": str(high)} for place, (low, high) in enumerate(self.ranges)
        ]
        body: Json = {
            "axes": axes,
            "objectives": [{"result": f"f{place}"} for place in range(self.objectives)],
            "constraints": [{"result": f"g{place}", "atMost": str(bound)} for place, bound in enumerate(self.bounds)],
            "algorithm": algorithm,
            **settings,
        }
        return OptimisedDesign.model_validate(body)

    def evaluate(self, coordinates: Sequence[float]) -> tuple[float, ...]:
        point = [low + (high - low) * item for item, (low, high) in zip(coordinates, self.ranges, strict=True)]
        return tuple(map(float, self.function(point)))

    def run(self, search: Search, rows: dict[int, TaskRow | None] | None = None) -> dict[int, tuple[float, ...]]:
        """Search until the end, and return all results by the index of their task."""
        found: dict[int, tuple[float, ...]] = {}
        while (generation := search.choose(rows or {})).points:
            first = search.generations.get_tasks(search.chosen - 1).start
            rows = {}
            for index, point in enumerate(generation.points, start=first):
                found[index] = self.evaluate(point)
                rows[index] = TaskRow({}, found[index])
        return found

    def minimise(self, algorithm: str, **settings: Any) -> float:
        """Return the value of the best feasible point."""
        search = Search(self.make_design(algorithm, **settings))
        self.run(search)
        assert search.status.best is not None
        return float(search.status.best.value)


def weld(point: Sequence[float]) -> Sequence[float]:
    """Welded beam: its cost, and shear stress, bending stress, width, deflection and buckling load.

    Source: K. M. Ragsdell and D. T. Phillips, J. Eng. Ind. 98 (1976), 1021-1025.
    """
    h, length, t, b = point
    load, arm, young, shear = 6000.0, 14.0, 30e6, 12e6
    primary = load / (math.sqrt(2) * h * length)
    radius = math.sqrt(length**2 / 4 + ((h + t) / 2) ** 2)
    inertia = 2 * math.sqrt(2) * h * length * (length**2 / 12 + ((h + t) / 2) ** 2)
    secondary = load * (arm + length / 2) * radius / inertia
    tau = math.sqrt(primary**2 + primary * secondary * length / radius + secondary**2)
    buckling = (
        4.013 * young * math.sqrt(t**2 * b**6 / 36) / arm**2 * (1 - t / (2 * arm) * math.sqrt(young / (4 * shear)))
    )
    cost = 1.10471 * h**2 * length + 0.04811 * t * b * (arm + length)
    deflection = 4 * load * arm**3 / (young * t**3 * b)
    return cost, tau, 6 * load * arm / (b * t**2), h - b, deflection, load - buckling


WELDED_BEAM = Problem(weld, ((0.125, 2), (0.1, 10), (0.1, 10), (0.1, 2)), (13_600, 30_000, 0, 0.25, 0))
WELDED_BEAM_COST = 1.724852

_NODES = np.array([(720, 360), (720, 0), (360, 360), (360, 0), (0, 360), (0, 0)], float)
_BARS = ((4, 2), (2, 0), (5, 3), (3, 1), (2, 3), (0, 1), (4, 3), (5, 2), (2, 1), (3, 0))
_LOADS = np.array([0, 0, 0, -100, 0, 0, 0, -100], float)


def build_truss(areas: Sequence[float]) -> Sequence[float]:
    """Ten-bar truss: weight in lb, largest stress in ksi, largest displacement in inches.

    Source: V. B. Venkayya, Comput. Struct. 1 (1971), 265-309.
    """
    young = 1e4
    stiffness = np.zeros((12, 12))
    rows, weight = [], 0.0
    for (start, end), area in zip(_BARS, areas, strict=True):
        delta = _NODES[end] - _NODES[start]
        length = float(np.hypot(*delta))
        row = np.zeros(12)
        row[2 * start : 2 * start + 2], row[2 * end : 2 * end + 2] = -delta / length, delta / length
        stiffness += young * area / length * np.outer(row, row)
        rows.append(row * young / length)
        weight += 0.1 * area * length
    moves = np.zeros(12)
    moves[:8] = np.linalg.solve(stiffness[:8, :8], _LOADS)
    return weight, float(np.abs(np.array(rows) @ moves).max()), float(np.abs(moves).max())


TEN_BAR_TRUSS = Problem(build_truss, ((0.1, 35),) * 10, (25, 2))
TEN_BAR_WEIGHT = 5060.85


def zdt1(point: Sequence[float]) -> Sequence[float]:
    """Function ZDT1. Source: E. Zitzler, K. Deb and L. Thiele, Evol. Comput. 8 (2000), 173-195."""
    rest = 1 + 9 * sum(point[1:]) / (len(point) - 1)
    return point[0], rest * (1 - math.sqrt(point[0] / rest))


ZDT1 = Problem(zdt1, ((0, 1),) * 30, objectives=2)


def sphere(point: Sequence[float]) -> Sequence[float]:
    """Sum of squares."""
    return [sum(item * item for item in point)]


SPHERE = Problem(sphere, ((-1, 2),) * 3)


def schwefel(point: Sequence[float]) -> Sequence[float]:
    """Function with many local optima far from the best one, 0. Source: H.-P. Schwefel, Wiley (1981)."""
    return [418.9829 * len(point) - sum(item * math.sin(math.sqrt(abs(item))) for item in point)]


SCHWEFEL = Problem(schwefel, ((-500, 500),) * 6)
