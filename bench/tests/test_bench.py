# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from simyard_bench import check, plot, results, tables, writes
from simyard_bench.limit import Writing
from simyard_bench.results import Idle, Machine, Run, StageTimes
from simyard_dev.errors import SetupError

ROOT = Path(__file__).resolve().parents[2]


def run(**values: Any) -> Run:
    """Return a run that meets every promise, except for the given values."""
    made = {"workers": {"post": 10_000, "patch": 10_000}}
    stage = StageTimes(mean_s=20, last_s=40, quantiles=[2.0 * step for step in range(results.QUANTILES + 1)])
    fields: dict[str, Any] = {
        "n": 10_000, "profile": "instant", "time_scale": 1, "guests": "shared", "t_boot_s": 40, "t_r_s": 40.5,
        "t_m_s": 41, "t_r_minus_t_boot_s": 0.5, "t_m_minus_t_r_s": 0.5, "bound_s": 40, "limit_s": 33,
        "limit_concurrency": 32, "peer_s": 55, "writes_per_worker": 2, "writes": made, "writes_told": made,
        "operator_cpu_s": 20, "operator_rss_mib": 300, "cpu_s": {"operator": 20, "etcd": 4}, "machine_cpu_s": 70,
        "stages": {"running": stage, "registered": stage}, "scale_in_s": 30, "scale_in_machines_s": 32,
        "scale_in_writes": made, "scale_in_operator_cpu_s": 15,
        "idle": Idle(seconds=60, writes=0, lease_writes=20, operator_cpu_percent=1), "load_average": 0.2,
        "machine": Machine(cpu="two cores", cores=2, memory_mib=8192, kernel="Linux 6"), "versions": {"etcd": "v3"},
        "date": datetime(2026, 1, 2, tzinfo=UTC), "revision": "abc",
    }  # fmt: skip
    return Run.model_validate(fields | values)


ALL = [
    run(),
    run(n=512, t_m_s=4),
    run(profile="opennebula-2015-default", n=512),
    *(run(profile="cloud4e-2014", n=n, time_scale=0.1) for n in (40, 512, 10_000)),
]


def test_a_new_run_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "start.json"
    results.store(file, [run(n=512), run(n=40)])
    results.store(file, [run(n=512, t_m_s=7), run(n=512, time_scale=0.1)])
    loaded = results.load(file)
    assert [(item.time_scale, item.n, item.t_m_s) for item in loaded] == [(0.1, 512, 41), (1, 40, 41), (1, 512, 7)]


def test_the_committed_results_have_the_form_of_results() -> None:
    results.load(results.FILE)


def test_promises_are_met_by_runs_that_meet_them() -> None:
    assert [verdict for verdict in check.verdicts(ALL) if not verdict.met] == []


def test_promises_without_a_run_are_neither_met_nor_broken() -> None:
    assert {verdict.met for verdict in check.verdicts([])} == {None}


@pytest.mark.parametrize(
    ("changed", "figure"),
    [
        (run(t_m_s=67), "instant, 10000: T_m"),
        (run(limit_s=60, peer_s=40), "instant, 10000: T_m"),
        (run(operator_rss_mib=401), "instant, 10000: memory of the operator"),
        (run(writes_per_worker=4.1), "instant, 10000: API writes per worker"),
        (run(profile="cloud4e-2014", n=40, t_r_minus_t_boot_s=1), "cloud4e-2014, 40: T_r - T_boot"),
        (run(profile="cloud4e-2014", n=512, t_m_minus_t_r_s=1), "cloud4e-2014, 512: T_m - T_r"),
        (run(profile="cloud4e-2014", t_m_minus_t_r_s=3), "cloud4e-2014, 10000: T_m - T_r"),
        (run(profile="opennebula-2015-default", n=512, t_m_s=42.1), "opennebula-2015-default, 512: T_m"),
        (run(n=512, t_m_s=1.6), "instant: T_m / N from 512 to 10000"),
        (run(idle=Idle(seconds=60, writes=1, lease_writes=0, operator_cpu_percent=1)),
         "10000 ready workers, idle: API writes"),
        (run(idle=Idle(seconds=60, writes=0, lease_writes=0, operator_cpu_percent=5)),
         "10000 ready workers, idle: CPU of the operator"),
        (run(scale_in_machines_s=42), "instant, 10000 to 0"),
        (run(n=40, writes_told={"workers": {"post": 40}}), "writes of Workers"),
    ],
)  # fmt: skip
def test_a_broken_promise_is_named(changed: Run, figure: str) -> None:
    broken = {verdict.figure for verdict in check.verdicts([*ALL, changed]) if verdict.met is False}
    assert broken == {figure}


def test_text_replaces_what_is_between_the_markers_of_a_document(tmp_path: Path) -> None:
    document = tmp_path / "performance.md"
    begin, end = tables.BEGIN.format("results", "make bench-plot"), tables.END.format("results")
    document.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    tables.write_section(document, "results", "new\n")
    assert document.read_text() == f"before\n{begin}\n\nnew\n\n{end}\nafter\n"
    with pytest.raises(SetupError, match="lacks the lines"):
        tables.write_section(document, "promises", "new")


def test_tables_have_a_row_for_each_run() -> None:
    row = "| 10,000 | 40.00 | 40.50 | 41.00 | 0.50 | 0.50 | 20.00, 40.00 | 40.00 | 33.00 | 55.00 | 32.00 |"
    assert row in tables.results([run()])


def test_pictures_are_drawn_of_the_runs_without_latency(tmp_path: Path) -> None:
    files = plot.draw(ALL, tmp_path)
    assert {file.name for file in files} == {f"bench-{what}.{kind}" for what in ("growth", "stages")
                                             for kind in ("svg", "png")}  # fmt: skip
    assert all(file.stat().st_size > 1000 for file in files)


def test_writes_are_read_from_both_sides_metrics() -> None:
    server = """# TYPE apiserver_request_total counter
apiserver_request_total{code="200",group="simyard.dev",resource="workers",subresource="status",verb="PATCH"} 7
apiserver_request_total{code="201",group="simyard.dev",resource="workers",subresource="",verb="POST"} 5
apiserver_request_total{code="200",group="simyard.dev",resource="workers",subresource="",verb="APPLY"} 1
apiserver_request_total{code="200",group="simyard.dev",resource="workers",subresource="",verb="LIST"} 9
apiserver_request_total{code="200",group="",resource="pods",subresource="",verb="POST"} 9
apiserver_request_total{code="200",group="coordination.k8s.io",resource="leases",subresource="",verb="PUT"} 3
"""
    operator = """# TYPE simyard_kube_requests_total counter
simyard_kube_requests_total{code="200",resource="workers",verb="patch"} 8.0
simyard_kube_requests_total{code="200",resource="workers",verb="list"} 2.0
"""
    counted = writes.parse_server_writes(server)
    assert counted == Counter({("workers", "patch"): 8, ("workers", "post"): 5, ("leases", "put"): 3})
    assert writes.by_resource(counted) == {"workers": {"patch": 8, "post": 5}}
    assert writes.by_resource(counted, leases=True) == {"leases": {"put": 3}}
    assert writes.parse_operator_writes(operator) == Counter({("workers", "patch"): 8})


def test_the_bare_client_writes_all_that_a_started_worker_has() -> None:
    ready = {"type": "Ready", "status": "True"}
    worker = {
        "apiVersion": "v1", "kind": "Worker", "spec": {"site": "here"},
        "metadata": {"name": "w", "uid": "u", "labels": {"pool": "p"}},
        "status": {"machineId": "1", "adapterVersion": "2", "conditions": [ready],
                   "stages": {"start": "a", "registered": "b"}},
    }  # fmt: skip
    writing = Writing.like(worker)
    assert writing.create["metadata"] == {"labels": {"pool": "p"}}
    first, second = writing.starting["status"], writing.ready["status"]
    assert first | second | {"stages": first["stages"] | second["stages"]} == worker["status"]
    assert first["conditions"] == [{"type": "Ready", "status": "False"}]


@pytest.mark.soak
def test_a_start_is_measured_on_a_real_platform(tmp_path: Path, simyard_directory: Path) -> None:
    file = tmp_path / "start.json"
    command = [
        sys.executable, "-m", "simyard_bench", "start", "--n", "2", "--yardsticks", "limit", "--idle-seconds", "1",
        "--results", str(file), "--keep", str(simyard_directory),
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=500, check=False, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "hack:bench"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (found,) = results.load(file)
    assert 0 < found.t_boot_s <= found.t_r_s
    assert found.t_m_s > 0
    assert found.limit_s is not None
    assert found.writes["workers"]["post"] == 2
    assert found.writes["workers"] == found.writes_told["workers"]
    assert set(found.stages) == set(results.STAGES)
    assert found.operator_cpu_s > 0
    assert found.operator_rss_mib > 0
    assert found.idle is not None
