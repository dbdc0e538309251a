# SPDX-License-Identifier: Apache-2.0
"""Searches find published solutions, and a search that is replayed makes the same choices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from known_problems import SCHWEFEL, SPHERE, TEN_BAR_TRUSS, TEN_BAR_WEIGHT, WELDED_BEAM, WELDED_BEAM_COST, ZDT1, Problem

from simyard.files.generations import Generation
from simyard.guest.rows import TaskRow
from simyard.optimiser.search import Search

SMALL = {"population": 8, "generations": 6, "seed": 3}
SETTINGS: list[tuple[str, Problem, dict[str, Any]]] = [
    ("GA", SPHERE, {}),
    ("DE", WELDED_BEAM, {}),
    ("PSO", WELDED_BEAM, {}),
    ("CMAES", WELDED_BEAM, {}),
    ("NSGAII", ZDT1, {}),
    ("NSGAIII", ZDT1, {"population": 12}),
    ("DE", WELDED_BEAM, {"islands": {"count": 3, "interval": 2, "migrants": 2}}),
    ("CMAES", WELDED_BEAM, {"islands": {"count": 2, "interval": 2, "topology": "Complete"}}),
    ("NSGAII", ZDT1, {"islands": {"count": 2, "interval": 2}}),
]
NAMES = [f"{algorithm}{' islands' if 'islands' in more else ''}" for algorithm, _, more in SETTINGS]


def run_stored(problem: Problem, search: Search, stored: list[Generation], fail: bool = False) -> None:
    """Continue a search to its end as the process does, with the generations in a store."""
    while not stored or stored[-1].points:
        rows: dict[int, TaskRow | None] = {}
        if stored:
            tasks = search.generations.get_tasks(search.chosen - 1)
            for index, point in zip(tasks, stored[-1].points, strict=True):
                failed = fail and index % 5 == 0
                rows[index] = None if failed else TaskRow({"x": "1"}, problem.evaluate(point))
        stored.append(Generation.read(search.choose(rows).to_bytes()))


@pytest.mark.parametrize(("algorithm", "problem", "more"), SETTINGS, ids=NAMES)
def test_a_search_that_is_replayed_at_any_generation_makes_the_same_choices(
    algorithm: str, problem: Problem, more: dict[str, Any]
) -> None:
    design = problem.make_design(algorithm, **{**SMALL, **more})
    undisturbed: list[Generation] = []
    run_stored(problem, Search(design), undisturbed, fail=True)
    assert undisturbed[-1].status.ended == "BudgetSpent"
    assert len(undisturbed) == SMALL["generations"] + 1
    for killed in range(len(undisturbed)):
        search, stored = Search(design), undisturbed[:killed]
        assert all(search.replay(generation) for generation in stored)
        run_stored(problem, search, stored, fail=True)
        assert stored == undisturbed


@pytest.mark.parametrize(("algorithm", "problem", "more"), SETTINGS, ids=NAMES)
def test_all_points_are_in_the_unit_cube_and_depend_on_the_seed(
    algorithm: str, problem: Problem, more: dict[str, Any]
) -> None:
    def choose(seed: int) -> list[Generation]:
        stored: list[Generation] = []
        run_stored(problem, Search(problem.make_design(algorithm, **{**SMALL, **more, "seed": seed})), stored)
        return stored

    first = choose(1)
    points = np.array([point for generation in first for point in generation.points])
    assert points.min() >= 0 and points.max() <= 1
    assert first[0].points != choose(2)[0].points


def test_a_search_continues_with_other_points_in_the_store() -> None:
    for algorithm in ("DE", "CMAES"):
        design = SPHERE.make_design(algorithm, **SMALL)
        stored: list[Generation] = []
        run_stored(SPHERE, Search(design), stored)
        search = Search(design.model_copy(update={"seed": 4}))
        assert not search.replay(stored[0])
        changed = stored[:1]
        run_stored(SPHERE, search, changed)
        assert changed[-1].status.evaluations == stored[-1].status.evaluations


@pytest.mark.parametrize("algorithm", ["GA", "DE", "PSO", "CMAES"])
def test_a_search_survives_generations_without_any_result(algorithm: str) -> None:
    search = Search(SPHERE.make_design(algorithm, **SMALL))
    search.choose({})
    for _ in range(3):
        search.choose(dict.fromkeys(search.generations.get_tasks(search.chosen - 1)))
    assert search.status.best is None
    assert (search.status.evaluations, search.status.feasible) == (24, 0)


def test_late_results_count_for_the_best_point_but_not_for_the_algorithm() -> None:
    design = SPHERE.make_design("DE", **SMALL, quorum_percent=50)
    search = Search(design)
    search.choose({})
    search.choose({index: TaskRow({"x0": "2"}, (5.0,)) for index in range(4)})
    assert search.missing == set(range(4, 16))
    generation = search.choose({index: TaskRow({"x0": "7"}, (1.0,)) for index in (5, *range(8, 12))})
    assert generation.status.best is not None
    assert (generation.status.best.index, generation.status.best.value) == (5, "1")
    assert [(item.name, item.value) for item in generation.status.best.parameters] == [("x0", "7")]


@pytest.mark.parametrize("seed", [1, 2])
def test_differential_evolution_finds_the_welded_beam(seed: int) -> None:
    found = WELDED_BEAM.minimise("DE", population=40, evaluations=12_000, seed=seed)
    assert found == pytest.approx(WELDED_BEAM_COST, rel=1e-4)


def test_cma_es_finds_the_ten_bar_truss() -> None:
    found = TEN_BAR_TRUSS.minimise("CMAES", population=20, evaluations=20_000, seed=1)
    assert found == pytest.approx(TEN_BAR_WEIGHT, rel=1e-3)


@pytest.mark.parametrize("seed", [1, 3])
def test_islands_leave_local_optima_that_hold_one_population_of_their_size(seed: int) -> None:
    settings = {"population": 20, "evaluations": 8000, "seed": seed}
    assert SCHWEFEL.minimise("GA", **settings, islands={"count": 4}) < 1
    assert SCHWEFEL.minimise("GA", **settings) > 100


def test_nsga2_finds_the_front_of_zdt1() -> None:
    design = ZDT1.make_design("NSGAII", population=100, generations=200, seed=1)
    search = Search(design)
    found = list(ZDT1.run(search).values())[-1000:]
    front = np.linspace(0, 1, 200)
    wanted = np.column_stack([front, 1 - np.sqrt(front)])
    distances = np.linalg.norm(wanted[:, None, :] - np.array(found)[None, :, :], axis=2)
    assert distances.min(axis=1).mean() < 0.01  # the inverted generational distance
    assert search.status.front_size is not None and search.status.front_size > 50
