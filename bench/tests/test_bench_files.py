# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from simyard_bench.files import pictures, promises, rows, sizing, tables
from simyard_bench.files.rows import MIB, Case, Row, Way
from simyard_bench.files.watching import STORE, StoreRequest, count_downloads, parse_requests
from simyard_bench.results import Machine

ROOT = Path(__file__).resolve().parents[2]
LOG = """\
11:25:09 | vgw | 404 |   1.1ms | 127.0.0.1 | HEAD | /simyard/uid/in/sha256:0a | - | X-Amz-Date=1
11:25:09 | vgw | 200 |   1.1ms | 127.0.0.1 | PUT | /simyard/uid/used/in/sha256:0a.1 | - | X-Amz-Date=1
11:25:09 | vgw | 200 |   1.1ms | 127.0.0.1 | PUT | /simyard/uid/in/sha256:0a | - | X-Amz-Date=1
11:25:09 | vgw | 200 |   1.1ms | 127.0.0.1 | POST | /simyard/uid/out/sha256-64m:0b | - | uploads=&X-Amz-Date=1
11:25:09 | vgw | 200 |   1.1ms | 127.0.0.1 | GET | /simyard/uid/out/sha256-64m:0b | - | uploadId=5&X-Amz-Date=1
11:25:09 | vgw | 200 |   1.1ms | 127.0.0.1 | PUT | /simyard/uid/out/sha256-64m:0b | - | partNumber=1&uploadId=5
11:25:09 | vgw | 200 |   1.1ms | 127.0.0.1 | POST | /simyard/uid/out/sha256-64m:0b | - | uploadId=5&X-Amz-Date=1
11:25:09 | vgw | 200 |   1.1ms | 127.0.0.1 | GET | /simyard/uid/out/sha256-64m:0.. | - | X-Amz-Date=1
11:25:09 | vgw | 200 |   1.1ms | 127.0.0.1 | GET | /simyard | - | list-type=2
11:25:09 | vgw | 200 |   1.1ms | 127.0.0.1 | POST | /simyard/bare/1 | - | uploads=
caught signal terminated
"""


def row(case: Case, way: Way, size: int, **values: Any) -> Row:
    """Return a row that meets every promise, except for the given values."""
    fields: dict[str, Any] = {
        "case": case, "way": way, "size": size, "files": 1, "seconds": 2.0, "rounds_s": [2.0, 2.5],
        "round_trips": 1 if way is Way.BARE else 3, "store_requests": 4, "client_cpu_s": 1.5,
        "cpu_s": {STORE: 0.5, "operator": 0.25}, "rss_mib": 40, "store_rss_mib": 50, "load_average": 0.5,
        "machine": Machine(cpu="two cores", cores=2, memory_mib=8192, kernel="Linux 6"),
        "versions": {"etcd": "v3"}, "date": datetime(2026, 1, 2, tzinfo=UTC), "revision": "abc",
    }  # fmt: skip
    return Row.model_validate(fields | values)


def shared(**values: Any) -> Row:
    return row(Case.SHARED, Way.WORKER, 64 * MIB, **({"files": 200, "workers": 4, "downloads": 4} | values))


ALL = [
    *(row(case, way, size) for case in list(Case)[:2] for way in Way for size in (1000, 64 * MIB, 2**31)),
    *(row(case, Way.WORKER, promises.LARGE) for case in list(Case)[:2]),
    shared(),
]


def test_the_committed_results_have_the_form_of_results() -> None:
    rows.load(rows.FILE)


def test_rows_replace_those_of_the_same_case(tmp_path: Path) -> None:
    file = tmp_path / "files.json"
    rows.store(file, ALL)
    rows.store(file, [row(Case.UPLOAD, Way.USER, 1000, seconds=3)])
    found = rows.load(file)
    assert len(found) == len(ALL)
    assert [each.key for each in found if each.seconds == 3] == [("upload", "cp", 1000)]


def test_promises_are_met_by_rows_that_meet_them() -> None:
    found = promises.verdicts(ALL)
    assert [verdict for verdict in found if verdict.met is not True] == []
    assert len(found) == 10


@pytest.mark.parametrize(
    ("worse", "figure"),
    [
        (row(Case.UPLOAD, Way.USER, 2**31, seconds=2.6), "upload by cp: rate above 64 MiB"),
        (row(Case.DOWNLOAD, Way.WORKER, 2**31, seconds=2.6), "download by worker: rate above 64 MiB"),
        (row(Case.UPLOAD, Way.WORKER, 1000, round_trips=3.1), "upload by worker: round trips up to 64 MiB"),
        (row(Case.DOWNLOAD, Way.USER, 64 * MIB, round_trips=4), "download by cp: round trips up to 64 MiB"),
        (
            row(Case.DOWNLOAD, Way.WORKER, promises.LARGE, rss_mib=40.1),
            "worker, 10 GB up and down: memory of the adapter",
        ),
        (shared(downloads=5), "actions that share an input: downloads of it"),
    ],
)
def test_a_worse_row_breaks_the_promise_that_it_is_about(worse: Row, figure: str) -> None:
    found = promises.verdicts([worse, *(each for each in ALL if each.key != worse.key)])
    assert [verdict.figure for verdict in found if not verdict.met] == [figure]


def test_a_large_file_and_a_small_one_are_each_held_to_their_own_promise() -> None:
    slow = row(Case.UPLOAD, Way.USER, 64 * MIB, seconds=20)
    many = row(Case.DOWNLOAD, Way.USER, 2**31, round_trips=40)
    found = promises.verdicts([slow, many, *(each for each in ALL if each.key not in (slow.key, many.key))])
    assert {verdict.met for verdict in found} == {True}


def test_a_promise_without_its_rows_is_not_measured() -> None:
    assert {verdict.met for verdict in promises.verdicts([])} == {None}


def test_requests_of_clients_are_told_from_those_of_the_platform() -> None:
    found = parse_requests(LOG)
    assert len(found) == 9
    assert [(request.method, request.key) for request in found if request.is_transfer] == [
        ("PUT", "uid/in/sha256:0a"),
        ("PUT", "uid/out/sha256-64m:0b"),
        ("POST", "uid/out/sha256-64m:0b"),
        ("GET", "uid/out/sha256-64m:0"),
        ("POST", "bare/1"),
    ]


def test_downloads_are_counted_by_address() -> None:
    requests = [*parse_requests(LOG), StoreRequest("GET", "uid/out/sha256-64m:0c", "")]
    assert count_downloads(requests, "sha256-64m:0b") == 1


def test_tables_have_every_row() -> None:
    text = tables.results(ALL)
    assert text.count("\n| 2 GiB |") == 6
    assert text.count("| 10 GB |") == 2
    assert "200 actions that share a file of 64 MiB, at 4 workers" in text
    assert tables.results([]) == "Not measured.\n"


def test_sizing_states_the_needs_of_the_store_for_a_gib() -> None:
    text = sizing.sizing(ALL)
    assert "| CPU of the store for the upload of 1 GiB | 0.2 s |" in text
    assert "| memory of an adapter with files of up to 10 GB | 40 MiB |" in text
    assert sizing.sizing([]) == "Not measured.\n"


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    assert {path.suffix for path in pictures.draw(ALL, tmp_path)} == {".svg", ".png"}
    assert pictures.draw([], tmp_path) == []


def test_the_command_explains_itself() -> None:
    command = [sys.executable, "-m", "simyard_bench", "files", "--help"]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": "hack:bench"}, capture_output=True, text=True, check=True
    )
    assert "--large" in done.stdout
