# SPDX-License-Identifier: Apache-2.0
"""Workers that studies ask of their pool, and the limit of their cost."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simyard.api.study import Study
from simyard.guest.chunks import ChunkSummary
from simyard.plan.studies.cost import count_affordable, plan_cost_end
from simyard.plan.studies.demand import compute_demand
from simyard.plan.studies.layout import Layout
from simyard.plan.studies.progress import Progress

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def make_study(status: dict[str, Any] | None = None, **spec: Any) -> Study:
    target = {"kind": "WorkerPool", "name": "beams"}
    body = {"target": target, "action": "solve", "design": {"grid": {"axes": [{"name": "x", "values": [1]}]}}, **spec}
    return Study.model_validate({"metadata": {"name": "s", "uid": "u"}, "spec": body, "status": status or {}})


def make_asking(**status: Any) -> Study:
    return make_study({"tasks": 100, "chunkTasks": 5, **status}, workers={"min": 2, "max": 15})


@pytest.mark.parametrize(
    ("status", "demand"),
    [
        ({}, 15),
        ({"succeeded": 60}, 8),
        ({"succeeded": 50, "failed": 11}, 8),
        ({"succeeded": 99}, 2),
        ({"tasks": None}, 0),
    ],
)
def test_a_study_asks_for_a_worker_for_each_chunk_that_is_left(status: dict[str, Any], demand: int) -> None:
    assert compute_demand([make_asking(**status)]) == demand


def test_a_study_asks_for_no_more_workers_than_it_may_use() -> None:
    status = {"tasks": 100, "chunkTasks": 5}
    assert compute_demand([make_study(status, workers={"max": 15}, parallelism=4)]) == 4
    assert compute_demand([make_study(status, workers={"min": 6, "max": 15}, parallelism=4)]) == 4


def make_search(least: int = 0, reason: str = "Running", **status: Any) -> Study:
    search = {"axes": [{"name": "x", "start": 0, "stop": 1}], "objectives": [{"result": "y"}], "algorithm": "DE"}
    design = {"optimise": {**search, "population": 20, "generations": 10}}
    condition = {"type": "Complete", "status": "False", "reason": reason, "message": "", "lastTransitionTime": NOW}
    status = {"tasks": 200, "chunkTasks": 2, "conditions": [condition], **status}
    return make_study(status, design=design, workers={"min": least, "max": 50})


@pytest.mark.parametrize(
    ("study", "demand"),
    [
        (make_search(), 0),
        (make_search(least=3), 3),
        (make_search(optimisation={"generations": 1}), 10),
        (make_search(optimisation={"generations": 1}, succeeded=20), 10),
        (make_search(optimisation={"generations": 1}, succeeded=20, reason="WaitingForOptimiser"), 0),
        (make_search(optimisation={"generations": 10}, succeeded=190), 5),
    ],
)
def test_a_search_asks_for_the_workers_of_a_generation_and_for_none_while_points_are_missing(
    study: Study, demand: int
) -> None:
    assert compute_demand([study]) == demand


@pytest.mark.parametrize("spec", [{"suspend": True}, {"cancel": True}])
def test_a_study_that_is_paused_or_ends_asks_for_none(spec: dict[str, Any]) -> None:
    assert compute_demand([make_study({"tasks": 100}, workers={"max": 15}, **spec)]) == 0
    ended = {"type": "Complete", "status": "True", "reason": "Succeeded", "message": "", "lastTransitionTime": NOW}
    assert compute_demand([make_asking(conditions=[ended])]) == 0


def test_the_most_demanding_study_decides() -> None:
    assert compute_demand([]) == 0
    assert compute_demand([make_study({"tasks": 100}), make_asking(), make_asking(succeeded=90)]) == 15


def make_progress(tasks: int, cost_millis: float) -> Progress:
    progress = Progress()
    progress.add(0, ChunkSummary(tasks, 1.0), 1, [], NOW)
    progress.cost_millis = cost_millis
    return progress


@given(st.integers(1, 100), st.floats(0.001, 1000), st.integers(1, 50), st.integers(0, 20), st.integers(1, 1000))
def test_the_chunks_that_fit_do_not_exceed_the_limit(
    tasks: int, cost_millis: float, length: int, assigned: int, limit: int
) -> None:
    study, progress = make_study(maxCost=limit), make_progress(tasks, cost_millis)
    affordable = count_affordable(study, progress, Layout(10_000, 0, length), assigned)
    chunk = cost_millis / tasks * length
    assert not affordable or cost_millis + (assigned + affordable) * chunk <= 1000 * limit * 1.000001


def test_a_study_ends_when_its_cost_is_reached_or_nothing_more_fits() -> None:
    study, layout = make_study(maxCost="0.10"), Layout(100, 0, 10)
    assert plan_cost_end(study, make_progress(10, 50), layout, 0) is None
    reached = plan_cost_end(study, make_progress(10, 100), layout, 3)
    assert reached is not None and (reached.reason, reached.complete) == ("MaxCostReached", False)
    assert "0.10 of spec.maxCost 0.10 is spent" in reached.message
    assert plan_cost_end(study, make_progress(10, 60), layout, 1) is None  # a chunk still runs
    nothing_fits = plan_cost_end(study, make_progress(10, 60), layout, 0)
    assert nothing_fits is not None and "would cost more than the rest" in nothing_fits.message
    assert plan_cost_end(make_study(), make_progress(10, 1e9), layout, 0) is None


def test_a_limit_beyond_all_floats_is_no_limit_and_one_below_0_ends_the_study() -> None:
    layout, progress = Layout(100, 0, 10), make_progress(10, 50)
    assert count_affordable(make_study(maxCost="1e400"), progress, layout, 1) == layout.chunks
    assert plan_cost_end(make_study(maxCost="1e400"), progress, layout, 1) is None
    assert plan_cost_end(make_study(maxCost="-5"), progress, layout, 1) is not None
