# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from simyard_bench import check, tables
from simyard_bench.occi import pictures, promises, rows
from simyard_bench.occi import tables as occi_tables
from simyard_bench.occi.cases import MODEL, compute, mixed
from simyard_bench.occi.http_client import encode_request
from simyard_bench.occi.load import Request, quantile
from simyard_bench.occi.rows import Row
from simyard_bench.results import Machine

ROOT = Path(__file__).resolve().parents[2]


def row(case: str, **values: Any) -> Row:
    """Return a row that meets every promise, except for the given values."""
    fields: dict[str, Any] = {
        "case": case, "workers": 10_000, "finished": 0, "frontends": 1, "connections": 16, "p50_ms": 0.2,
        "p99_ms": 0.4, "per_second": 9000, "cpu_us_per_request": 60, "client_cpu_us_per_request": 25, "rss_mib": 200,
        "body_bytes": 2000, "limit_p50_ms": 0.18, "limit_p99_ms": 0.3, "limit_per_second": 12_000,
        "limit_cpu_us_per_request": 45, "load_average": 0.5,
        "machine": Machine(cpu="two cores", cores=2, memory_mib=8192, kernel="Linux 6"), "versions": {"etcd": "v3"},
        "date": datetime(2026, 1, 2, tzinfo=UTC), "revision": "abc",
    }  # fmt: skip
    return Row.model_validate(fields | values)


ALL = [
    *(row(case, workers=2, p50_ms=0.19) for case in promises.BASICS),
    *(row(case, finished=finished) for case in promises.BASICS for finished in (0, 25_000)),
    *(row(case, connections=1) for case in promises.LISTS),
    row("mixed", per_second=6000),
    row("mixed", per_second=11_000, frontends=2),
    row("get-compute-amqp", cpu_us_per_request=300, limit_cpu_us_per_request=210),
    row("register", visible_ms=120, messages=40),
]


def test_the_committed_results_have_the_form_of_results() -> None:
    rows.load(rows.FILE)


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "occi.json"
    rows.store(file, ALL)
    assert rows.load(file) == ALL


def test_promises_are_met_by_rows_that_meet_them() -> None:
    found = promises.verdicts(ALL)
    assert [verdict for verdict in found if verdict.met is not True] == []
    assert len(found) == 12


@pytest.mark.parametrize(
    ("worse", "figure"),
    [
        (row("action", p50_ms=0.25), "action: p50 with 10000 workers"),
        (
            row("get-model", finished=25_000, p50_ms=0.25),
            "get-model: p50 with 10000 workers, after 25000 finished ones",
        ),
        (row("list-text", p50_ms=0.4), "list-text: p50 with 10000 workers"),
        (row("get-compute", workers=41, cpu_us_per_request=70), "get-compute: CPU per request"),
        (row("register", visible_ms=501, messages=40), "40 workers register at once"),
        (row("register", visible_ms=120, messages=80), "40 workers register at once"),
        (row("list-uri", rss_mib=251, workers=10_001), "memory of a frontend with 10000 workers"),
    ],
)
def test_a_worse_row_breaks_the_promise_that_it_is_about(worse: Row, figure: str) -> None:
    found = promises.verdicts([worse, *ALL])
    assert [verdict.figure for verdict in found if not verdict.met] == [figure]


def test_a_promise_without_its_rows_is_not_measured() -> None:
    assert {verdict.met for verdict in promises.verdicts([])} == {None}


def test_tables_have_every_row_and_what_follows() -> None:
    text = occi_tables.results(ALL)
    assert text.count("| action |") == 3
    assert "**1.83 x**" in text
    assert "**70%**" in text
    assert occi_tables.results([]) == "Not measured.\n"
    assert "not met" not in tables.promises(promises.verdicts(ALL))


def test_pictures_are_drawn(tmp_path: Path) -> None:
    files = pictures.draw(ALL, tmp_path)
    assert {file.name for file in files} == {"bench-occi.svg", "bench-occi.png"}
    assert all(file.stat().st_size > 1000 for file in files)
    assert pictures.draw([], tmp_path) == []


def test_mixed_reads_have_seven_computes_two_models_and_a_page_in_ten() -> None:
    paths = [f"/compute/{number}" for number in range(700)]
    requests = mixed(paths)
    assert len(requests) == 1000
    assert requests.count(MODEL) == 200
    assert [request for request in requests if request.target in paths] == list(map(compute, paths))
    pages = {request.target for request in requests if "page" in request.target}
    assert pages == {f"/compute/?page={number}&number=100" for number in range(1, 8)}


def test_a_request_is_sent_with_its_length_and_its_own_headers() -> None:
    request = Request("/compute/?action=run", "POST", {"Content-Type": "text/plain"}, "Category: é")
    assert encode_request(request, "here:1", "Authorization: Bearer t\r\n").decode() == (
        "POST /compute/?action=run HTTP/1.1\r\nHost: here:1\r\nAuthorization: Bearer t\r\n"
        "Content-Type: text/plain\r\nContent-Length: 12\r\n\r\nCategory: é"
    )


def test_a_quantile_is_one_of_the_times() -> None:
    times = [float(number) for number in range(1, 101)]
    assert [quantile(times, share) for share in (0.5, 0.99, 1.0)] == [50, 99, 100]
    assert quantile([3.0], 0.5) == 3


def test_the_verdicts_of_both_benchmarks_are_of_one_form() -> None:
    assert {type(verdict) for verdict in (*check.verdicts([]), *promises.verdicts([]))} == {check.Verdict}


@pytest.mark.soak
def test_frontends_are_measured_on_a_real_platform(tmp_path: Path, simyard_directory: Path) -> None:
    file = tmp_path / "occi.json"
    command = [
        sys.executable, "-m", "simyard_bench", "occi", "--n", "42", "--finished", "2", "--rounds", "1",
        "--seconds", "0.1", "--idle-cores", "1000", "--results", str(file), "--keep", str(simyard_directory),
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=500, check=False, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "hack:bench"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = rows.load(file)
    counts = [(item.case, item.finished, item.frontends) for item in found]
    basics = [*promises.BASICS]
    assert counts == [
        ("register", 0, 1), *((case, 0, 1) for case in (*basics, *promises.LISTS, "get-compute-amqp", "mixed-apart")),
        ("mixed", 0, 1), ("mixed", 0, 2), *((case, 2, 1) for case in basics),
    ]  # fmt: skip
    assert {item.workers for item in found} == {42}
    assert all(item.per_second > 0 and item.cpu_us_per_request > 0 and item.rss_mib > 0 for item in found)
    assert found[0].messages == 40
