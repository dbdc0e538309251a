# SPDX-License-Identifier: Apache-2.0
"""The writes of the statuses of many studies share one budget."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from simyard.api.study import Study
from simyard.fleet.studies.assigned import Assigned
from simyard.fleet.studies.prices import Prices
from simyard.fleet.studies.runs import Run
from simyard.fleet.studies.statuses import StudyStatuses, make_final_status
from simyard.guest.chunks import ChunkSummary
from simyard.plan.studies.designs import Table
from simyard.plan.studies.layout import Layout
from simyard.plan.studies.progress import Progress
from simyard.plan.studies.study import Ending
from simyard_adapter.declarations import Action

NOW = datetime(2030, 1, 1, tzinfo=UTC)
STUDIES = 60
PASS_SECONDS = 0.5


def make_study(name: str) -> Study:
    target = {"kind": "WorkerPool", "name": "beams"}
    design = {"table": {"columns": ["x"], "rows": [[1]]}}
    spec = {"target": target, "action": "solve", "design": design}
    return Study.model_validate({"metadata": {"name": name, "uid": name}, "spec": spec})


def make_run() -> Run:
    unused: Any = None
    action = Action.from_json({"name": "solve"})
    layout, progress, assigned = Layout(1000, 0, 1), Progress(), Assigned(Counter())
    prices: Prices = unused
    return Run(unused, unused, action, Table(("x",), ()), layout, progress, NOW, assigned, prices, 0)


async def test_the_status_of_each_of_many_studies_is_written_again_and_again() -> None:
    time, written = 1000.0, Counter[str]()

    async def patch(_: object, name: str, *__: object, **___: object) -> dict[str, Any]:
        written[name] += 1
        return {}

    registry: Any = SimpleNamespace(
        client=SimpleNamespace(patch=patch), studies=SimpleNamespace(resource=None, learn=lambda raw: None)
    )
    statuses = StudyStatuses(registry, lambda: time)
    runs = [(make_study(f"s{number}"), make_run()) for number in range(STUDIES)]
    for chunk in range(120):  # each study ends a percent of its tasks in each pass
        for study, run in runs:
            for task in range(10 * chunk, 10 * chunk + 10):
                run.progress.add(task, ChunkSummary(1, 0.1), 1, [], NOW)
            await statuses.write_progress(study, run, "")
        time += PASS_SECONDS
    assert len(written) == STUDIES
    assert min(written.values()) >= 10
    assert sum(written.values()) <= 20 * (120 * PASS_SECONDS + 1)


def test_the_last_status_says_that_rows_name_files_even_if_no_progress_was_written() -> None:
    run = make_run()
    run.action = Action.from_json({"name": "solve", "result": [{"name": "mesh", "type": "file"}]})
    assert make_final_status(make_study("short"), run, Ending("Succeeded", "", complete=True)).rows_name_files
