# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from simyard_bench import check, tables
from simyard_bench.results import Machine
from simyard_bench.sites import pictures, promises, rows
from simyard_bench.sites import tables as site_tables
from simyard_bench.sites.asking import machine_requests
from simyard_bench.sites.bare_kube import copy_manifest
from simyard_bench.sites.clouds import changes
from simyard_bench.sites.rows import Row

ROOT = Path(__file__).resolve().parents[2]


def row(site: str, case: str, n: int, **values: Any) -> Row:
    """Return a row that meets every promise, except for the given values."""
    fields: dict[str, Any] = {
        "site": site, "case": case, "n": n, "cloud": "a simulated cloud", "ours_s": 8, "yardstick_s": 8, "cpu_s": 0.3,
        "yardstick_cpu_s": 1, "ours_rounds_s": [8, 8, 9], "yardstick_rounds_s": [7, 8, 8], "writes_per_worker": 1,
        "load_average": 0.5, "machine": Machine(cpu="two cores", cores=2, memory_mib=8192, kernel="Linux 6"),
        "versions": {"etcd": "v3"}, "date": datetime(2026, 1, 2, tzinfo=UTC), "revision": "abc",
    }  # fmt: skip
    return Row.model_validate(fields | values)


def vmis(n: int, **values: Any) -> Row:
    """Return a start of VirtualMachineInstances with one write each, and three writes for all together."""
    made = {"virtualmachineinstances": {"post": n}, "secrets": {"post": 1}, "controllerrevisions": {"post": 2}}
    given = {"writes": made, "calls_at_once": 4, "batch": 64, "yardstick_concurrency": 32, **values}
    return row("kubevirt", "start", n, **given)


def look(case: str, n: int, finished: int, **values: Any) -> Row:
    """Return one poll of the VMs of OpenNebula."""
    given = {"calls": {"one.vmpool.infoset": 1}, "server_ms": 4.0, "yardstick_server_ms": 57.0, **values}
    return row("openNebula", case, n, finished=finished, **given)


ALL = [
    vmis(100),
    vmis(1000),
    row("kubevirt", "start-controllers", 200),
    row("pod", "start", 500),
    row("openNebula", "start-wide", 512, yardstick_s=20, time_scale=0.1),
    row("openNebula", "start-stock", 512, time_scale=0.05, cost_scale=0.05),
    look("poll", 10_000, 0),
    *(look(case, 50, finished) for case in ("poll", "sweep") for finished in (600, 25_600)),
]


def test_the_committed_results_have_the_form_of_results() -> None:
    rows.load(rows.FILE)


def test_rows_replace_those_of_the_same_case(tmp_path: Path) -> None:
    file = tmp_path / "sites.json"
    rows.store(file, ALL)
    rows.store(file, [vmis(1000, ours_s=3)])
    found = rows.load(file)
    assert len(found) == len(ALL)
    assert {each.ours_s for each in found if each.key == ALL[1].key} == {3}
    assert all(each in found for each in ALL if each.key != ALL[1].key)


def test_promises_are_met_by_rows_that_meet_them() -> None:
    found = promises.verdicts(ALL)
    assert [verdict for verdict in found if verdict.met is not True] == []
    assert len(found) == 9


@pytest.mark.parametrize(
    ("worse", "figure"),
    [
        (vmis(1000, ours_s=9.3), "kubevirt: 1000 VMIs until all run"),
        (row("kubevirt", "start-controllers", 200, ours_s=8.9), "kubevirt: 200 VMIs at KubeVirt's controllers"),
        (
            vmis(1000, writes={"virtualmachineinstances": {"post": 1000, "patch": 10}}),
            "kubevirt: API writes for each VMI",
        ),
        (row("pod", "start", 500, ours_s=9.3), "pod: 500 pods until all run"),
        (
            row("openNebula", "start-wide", 512, yardstick_s=9),
            "openNebula: rate of 512 VMs, scheduler without limits",
        ),
        (row("openNebula", "start-stock", 512, ours_s=8.2), "openNebula: 512 VMs, stock scheduler"),
        (look("poll", 10_000, 0, cpu_s=0.34), "openNebula: CPU of a poll of 10000 VMs"),
        (look("poll", 50, 25_600, cpu_s=0.34), "openNebula: poll beside 25600 finished VMs"),
        (look("sweep", 50, 25_600, server_ms=5.0), "openNebula: sweep beside 25600 finished VMs"),
        (look("sweep", 50, 25_600, calls={"one.vmpool.info": 2}), "openNebula: sweep beside 25600 finished VMs"),
    ],
)
def test_a_worse_row_breaks_the_promise_that_it_is_about(worse: Row, figure: str) -> None:
    found = promises.verdicts([worse, *ALL])
    assert [verdict.figure for verdict in found if not verdict.met] == [figure]


def test_writes_for_a_whole_pool_are_no_writes_of_each_machine() -> None:
    found = next(verdict for verdict in promises.verdicts(ALL) if "writes" in verdict.figure)
    assert found.measured == "1.000, and 3 for all together"


def test_a_promise_without_its_rows_is_not_measured() -> None:
    found = promises.verdicts([])
    assert {verdict.met for verdict in found} == {None}
    assert {type(verdict) for verdict in found} == {check.Verdict}


def test_tables_have_every_row_and_say_what_is_simulated_and_scaled() -> None:
    text = site_tables.results(ALL)
    assert text.count("\n| kubevirt |") == 3
    assert text.count("\n| poll |") == 3
    assert "openNebula, start-stock (times of scheduler and drivers multiplied by 0.05, costs of calls by 0.05)" in text
    assert "- kubevirt: a simulated cloud." in text
    assert site_tables.results([]) == "Not measured.\n"
    assert "not met" not in tables.promises(promises.verdicts(ALL))


def test_pictures_are_drawn(tmp_path: Path) -> None:
    files = pictures.draw(ALL, tmp_path)
    assert {file.name for file in files} == {"bench-sites.svg", "bench-sites.png"}
    assert all(file.stat().st_size > 1000 for file in files)
    assert pictures.draw([], tmp_path) == []


def test_machines_are_asked_for_with_names_and_documents_of_their_own() -> None:
    requests = machine_requests("pool", "there", 3)
    assert len({request.name for request in requests}) == 3
    assert {request.owner.pool for request in requests} == {"pool"}
    assert all(request.owner.worker_uid.encode() in request.bootstrap for request in requests)


def test_an_object_is_like_another_one_without_what_the_server_gave_it() -> None:
    stored = {
        "apiVersion": "v1", "kind": "Pod", "spec": {"containers": []}, "status": {"phase": "Running"},
        "metadata": {"name": "a", "uid": "1", "resourceVersion": "7", "labels": {"of": "us"}},
    }  # fmt: skip
    assert copy_manifest(stored) == {
        "apiVersion": "v1", "kind": "Pod", "spec": {"containers": []}, "metadata": {"labels": {"of": "us"}}
    }  # fmt: skip


def test_calls_that_change_something_are_told_from_those_that_read() -> None:
    calls = {
        "one.template.instantiate": 512, "one.vm.action": 2, "one.vmpool.info": 9, "one.vmpool.infoset": 3,
        "one.system.version": 1, "system.multicall": 12,
    }  # fmt: skip
    assert changes(calls) == {"template": {"instantiate": 512}, "vm": {"action": 2}}


@pytest.mark.soak
def test_sites_are_measured_at_simulated_clouds(tmp_path: Path, simyard_directory: Path) -> None:
    file = tmp_path / "sites.json"
    command = [
        sys.executable, "-m", "simyard_bench", "sites", "--sites", "kubevirt", "pod", "openNebula",
        "--vmis", "5", "--pods", "5", "--vms", "5", "--known", "600",
        "--finished", "10", "60", "--rounds", "1", "--results", str(file), "--keep", str(simyard_directory),
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=500, check=False, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "hack:bench"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = {each.key: each for each in rows.load(file)}
    assert set(found) == {
        ("kubevirt", "start", 5, 0), ("pod", "start", 5, 0), ("openNebula", "start-wide", 5, 0),
        ("openNebula", "start-stock", 5, 0), ("openNebula", "poll", 600, 0),
        *(("openNebula", case, 50, finished) for case in ("poll", "sweep") for finished in (10, 60)),
    }  # fmt: skip
    assert found["kubevirt", "start", 5, 0].writes["virtualmachineinstances"] == {"post": 5}
    assert found["pod", "start", 5, 0].writes["pods"] == {"post": 5}
    assert found["openNebula", "start-stock", 5, 0].writes == {"template": {"instantiate": 5}}
    assert found["openNebula", "poll", 600, 0].calls == {"one.vmpool.infoset": 2}
    assert all(each.ours_s > 0 and each.cpu_s > 0 and each.yardstick_s for each in found.values())
