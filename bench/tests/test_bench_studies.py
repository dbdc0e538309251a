# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from simyard_bench.results import Machine
from simyard_bench.studies import pictures, promises, rows, tables
from simyard_bench.studies.rows import Row, System, Table
from simyard_bench.studies.watching import parse_api_costs

ROOT = Path(__file__).resolve().parents[2]
METRICS = """\
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",resource="studies",verb="PATCH"} 3
apiserver_request_total{code="201",resource="pods",verb="POST"} 2
apiserver_request_total{code="200",resource="leases",verb="PUT"} 100
apiserver_request_total{code="200",resource="pods",verb="LIST"} 50
# TYPE apiserver_storage_size_bytes gauge
apiserver_storage_size_bytes{storage_cluster_id="etcd-0"} 2.0e+06
"""


def row(system: System, workers: int, tasks: int = promises.TASKS, **values: Any) -> Row:
    """Return a row that meets every promise, except for the given values."""
    ours = system is System.STUDY
    fields: dict[str, Any] = {
        "system": system, "tasks": tasks, "workers": workers, "seconds": tasks / (4000 if ours else 1000),
        "cpu_s": {"operator": tasks / 5000}, "rss_mib": 500, "load_average": 0.5, "writes": tasks // 10_000,
        "etcd_bytes": 1000, "object_bytes": 3000 if ours else None,
        "table": Table(seconds=2, cpu_s=1, bytes=1000) if ours else None,
        "machine": Machine(cpu="two cores", cores=2, memory_mib=8192, kernel="Linux 6"),
        "versions": {"etcd": "v3"}, "date": datetime(2026, 1, 2, tzinfo=UTC), "revision": "abc",
    }  # fmt: skip
    return Row.model_validate(fields | values)


ALL = [
    *(row(system, workers) for system in (System.STUDY, System.DASK) for workers in promises.WORKERS),
    *(row(System.JOB, workers, 5_000) for workers in promises.WORKERS),
    row(System.STUDY, 1000, promises.MANY_TASKS),
]


def test_the_committed_results_have_the_form_of_results() -> None:
    rows.load(rows.FILE)


def test_rows_replace_those_of_the_same_run(tmp_path: Path) -> None:
    file = tmp_path / "studies.json"
    rows.store(file, ALL)
    rows.store(file, [row(System.DASK, 100, seconds=3)])
    found = rows.load(file)
    assert len(found) == len(ALL)
    assert [each.key for each in found if each.seconds == 3] == [(100, promises.TASKS, "dask")]


def test_promises_are_met_by_rows_that_meet_them() -> None:
    found = promises.verdicts(ALL)
    assert [verdict for verdict in found if verdict.met is not True] == []
    assert len(found) == 7


@pytest.mark.parametrize(
    ("worse", "figure"),
    [
        (row(System.DASK, 100, seconds=10), "100,000 tasks, 100 workers: tasks per second"),
        (row(System.JOB, 1000, 5_000, seconds=1), "100,000 tasks, 1,000 workers: tasks per second"),
        (row(System.STUDY, 1000, promises.MANY_TASKS, object_bytes=5000), "1,000,000 tasks: size of the Study"),
        (row(System.STUDY, 1000, promises.MANY_TASKS, writes=1000), "1,000,000 tasks: API writes for 1,000 tasks"),
        (
            row(System.STUDY, 1000, promises.MANY_TASKS, cpu_s={"operator": 230.0}),
            "CPU of a task from 100,000 to 1,000,000 tasks",
        ),
    ],
)
def test_a_worse_row_breaks_the_promise_that_it_is_about(worse: Row, figure: str) -> None:
    found = promises.verdicts([worse, *(each for each in ALL if each.key != worse.key)])
    assert [verdict.figure for verdict in found if not verdict.met] == [figure]


def test_a_promise_without_its_rows_is_not_measured() -> None:
    assert {verdict.met for verdict in promises.verdicts([])} == {None}


def test_writes_are_counted_without_leases_and_reads() -> None:
    assert parse_api_costs(METRICS) == (5, 2_000_000)


def test_tables_have_every_row() -> None:
    text = tables.results(ALL)
    assert text.count("\n| Study |") == 3
    assert "| Indexed Job | 1,000 | 5,000 | 5.0 s | 1,000 | 200 us |" in text
    assert tables.results([]) == "Not measured.\n"


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    assert {path.suffix for path in pictures.draw(ALL, tmp_path)} == {".svg", ".png"}
    assert pictures.draw([], tmp_path) == []


def test_the_command_explains_itself() -> None:
    command = [sys.executable, "-m", "simyard_bench", "studies", "--help"]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": "hack:bench"}, capture_output=True, text=True, check=True
    )
    assert "--job-tasks" in done.stdout
