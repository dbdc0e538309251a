# SPDX-License-Identifier: Apache-2.0
"""Generations of optimisations: their tasks and chunks, the evaluation of results, and the end of the search."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simyard.api.optimisation import OptimisedDesign
from simyard.api.study import MAX_CHUNK_TASKS, MAX_CHUNKS
from simyard.plan.studies.evaluations import Archive, Evaluation, evaluate
from simyard.plan.studies.generations import Generations
from simyard.plan.studies.layout import ChunkSet
from simyard_adapter.declarations import InvalidValueError

AXES = [{"name": "x", "start": 0, "stop": 1}]


def make_design(**fields: Any) -> OptimisedDesign:
    body = {"axes": AXES, "objectives": [{"result": "y"}], "algorithm": "DE", "evaluations": 1000, **fields}
    return OptimisedDesign.model_validate(body)


@given(st.integers(4, 1000), st.integers(1, 64), st.integers(1, 10_000), st.integers(1, 1000), st.data())
def test_no_chunk_has_tasks_of_two_generations(
    population: int, islands: int, count: int, workers: int, data: st.DataObject
) -> None:
    fields: dict[str, Any] = {"population": population, "generations": count, "islands": {"count": islands}}
    generations = Generations.read(make_design(**fields, evaluations=None))
    try:
        generations.check("spec")
    except InvalidValueError:
        return
    layout = generations.make_layout(None, generations.choose_length(workers))
    assert layout.chunks <= MAX_CHUNKS
    generation = data.draw(st.integers(0, count - 1))
    chunks = layout.list_chunks(generation)
    tasks = [index for chunk in chunks for index in layout.get_tasks(chunk)]
    assert tasks == list(generations.get_tasks(generation))
    assert all(1 <= len(layout.get_tasks(chunk)) <= MAX_CHUNK_TASKS for chunk in chunks)
    assert layout.list_chunks(count - 1).stop == layout.chunks


def test_only_whole_generations_run_and_at_least_one() -> None:
    assert Generations.read(make_design(population=40, evaluations=2019)).tasks == 2000
    assert Generations.read(make_design(population=40, evaluations=10)).tasks == 40
    assert Generations.read(make_design(population=40, evaluations=2000, generations=7)).tasks == 280


def test_a_task_has_a_generation_and_an_island() -> None:
    generations = Generations.read(make_design(population=10, islands={"count": 3}))
    assert generations.get_tasks(2) == range(60, 90)
    assert [generations.get_island(index) for index in (60, 69, 70, 89)] == [0, 0, 1, 2]


def test_the_next_generation_waits_for_the_quorum_but_the_end_waits_for_all() -> None:
    generations = Generations.read(make_design(population=10, generations=2, quorum_percent=75))
    layout, finished = generations.make_layout(4, None), ChunkSet()
    finished.add(0)
    assert not generations.is_ready(0, layout, finished)
    finished.add(1)
    assert generations.is_ready(0, layout, finished)  # 8 of 10
    for chunk in (3, 4):
        finished.add(chunk)
        assert not generations.is_ready(1, layout, finished)
    finished.add(5)
    assert generations.is_ready(1, layout, finished)


def test_objectives_are_minimised_and_violations_are_relative_to_their_bound() -> None:
    design = make_design(
        objectives=[{"result": "y", "goal": "Maximise"}],
        constraints=[{"result": "a", "atMost": 200}, {"result": "b", "atLeast": 0}, {"result": "c", "atMost": -4}],
    )
    found = evaluate(design, (3.0, 250.0, 2.0, -3.0))
    assert found == Evaluation((-3.0,), (0.25, -2.0, 0.25))
    assert found.violation == 0.5 and not found.feasible
    assert evaluate(design, None) is None


def add(archive: Archive, *values: tuple[float, ...] | None) -> None:
    first = archive.evaluations
    archive.add_generation(dict(enumerate(values, start=first)))


def test_the_best_point_is_feasible_and_the_first_of_equal_ones() -> None:
    archive = Archive(make_design(constraints=[{"result": "g", "atMost": 1}]))
    add(archive, (1.0, 2.0), (3.0, 1.0), None)
    assert (archive.best, archive.feasible, archive.evaluations) == (1, 1, 3)
    add(archive, (3.0, 0.0), (2.0, 0.0))
    assert archive.best == 4


def test_a_front_has_the_points_that_no_other_one_dominates() -> None:
    goals = [{"result": "y"}, {"result": "z", "goal": "Maximise"}]
    archive = Archive(make_design(objectives=goals, algorithm="NSGAII"))
    add(archive, (1.0, 1.0), (2.0, 3.0), (2.0, 2.0), (1.0, 1.0))
    assert set(archive.front) == {0, 1}
    add(archive, (0.5, 9.0))
    assert set(archive.front) == {4}


@pytest.mark.parametrize(
    ("fields", "generations", "end"),
    [
        ({}, [[5.0], [4.0]], None),
        ({"good_enough": 4}, [[5.0], [4.0]], "GoodEnough"),
        ({"good_enough": 6, "objectives": [{"result": "y", "goal": "Maximise"}]}, [[5.0], [7.0]], "GoodEnough"),
        ({"max_generations_without_gain": 2}, [[5.0], [5.0], [4.9999]], "NoGain"),
        ({"max_generations_without_gain": 2}, [[5.0], [5.0], [4.0]], None),
        ({"max_generations_without_gain": 2}, [[0.0], [0.0], [0.0]], "NoGain"),
        ({"max_generations_without_gain": 2}, [[0.0], [0.0], [-1e-9]], None),
        ({"generations": 2}, [[5.0], [4.0]], "BudgetSpent"),
    ],
)
def test_a_search_ends_for_its_reason(fields: dict[str, Any], generations: list[list[float]], end: str | None) -> None:
    archive = Archive(make_design(**fields))
    for values in generations:
        add(archive, *((value,) for value in values))
    assert archive.find_end(len(generations), fields.get("generations", 100)) == end
