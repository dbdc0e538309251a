# SPDX-License-Identifier: Apache-2.0
"""``kubectl simyard usage`` prints sums of usage as a table, JSON or CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from simyard.cli.app import cli


def row(pool: str, service: str, site: str, seconds: int, millis: int, currency: str = "EUR") -> dict[str, object]:
    return {
        "pool": pool, "service": service, "site": site, "currency": currency,
        "workerMilliseconds": seconds * 1000, "coreMilliseconds": seconds * 4000, "licenceMilliseconds": 0,
        "costMillis": millis, "costRemainder": 0, "accountedUntil": "2026-05-01T12:00:00Z",
        "workers": 0, "cores": 0, "licences": 0, "hourCostMillis": 0,
    }  # fmt: skip


def usage_of(namespace: str, *rows: dict[str, object]) -> dict[str, object]:
    return {"metadata": {"name": "simyard", "namespace": namespace}, "status": {"rows": rows}}


ITEMS = [
    usage_of(
        "lab",
        row("beams", "fem", "local", 3600, 1234),
        row("beams", "fem", "cloud", 1800, 2000, "USD"),
        row("", "multibody", "local", 10, 0),
    ),
    usage_of("shop", row("beams", "fem", "local", 7200, 1)),
]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run the command with a script as kubectl, which lists all items, or without -A only those of `lab`."""
    for name, items in (("all", ITEMS), ("one", ITEMS[:1]), ("none", [])):
        (tmp_path / name).write_text(json.dumps({"items": items}))
    script = tmp_path / "kubectl"
    script.write_text(
        f'#!/bin/sh\ncase "$*" in\n*all-namespaces*) cat {tmp_path}/all ;;\n*empty*) cat {tmp_path}/none ;;\n'
        f'*forbidden*) echo "Error from server (Forbidden): no" >&2; exit 3 ;;\n*) cat {tmp_path}/one ;;\nesac\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return lambda *words: CliRunner().invoke(cli, list(words))


def lines(result: Result) -> list[list[str]]:
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.stdout.splitlines()]


def test_a_table_has_a_row_for_each_pool_service_and_site_and_their_sum(run: Callable[..., Result]) -> None:
    assert lines(run("usage")) == [
        ["POOL", "SERVICE", "SITE", "RUNNING", "WORKER-SECONDS", "CORE-HOURS", "LICENCE-SECONDS", "COST"],
        ["<none>", "multibody", "local", "0", "10", "0.01", "0", "0"],
        ["beams", "fem", "cloud", "0", "1800", "2.00", "0", "2.00", "USD"],
        ["beams", "fem", "local", "0", "3600", "4.00", "0", "1.23", "EUR"],
        ["TOTAL", "0", "5410", "6.01", "0", "1.23", "EUR,", "2.00", "USD"],
    ]


@pytest.mark.parametrize(
    ("by", "groups"),
    [
        ("namespace", [["lab", "0", "5410"], ["shop", "0", "7200"], ["TOTAL", "0", "12610"]]),
        ("pool", [["<none>", "0", "10"], ["beams", "0", "12600"], ["TOTAL", "0", "12610"]]),
        ("service", [["fem", "0", "12600"], ["multibody", "0", "10"], ["TOTAL", "0", "12610"]]),
        ("site", [["cloud", "0", "1800"], ["local", "0", "10810"], ["TOTAL", "0", "12610"]]),
    ],
)
def test_usage_is_added_up_by_what_is_asked_for(run: Callable[..., Result], by: str, groups: list[list[str]]) -> None:
    header, *rows = lines(run("usage", "-A", "--by", by))
    assert header[0] == by.upper()
    assert [row[:3] for row in rows] == groups


def test_everywhere_shows_namespaces(run: Callable[..., Result]) -> None:
    assert [row[0] for row in lines(run("usage", "-A"))] == ["NAMESPACE", "lab", "lab", "lab", "shop", "TOTAL"]


@pytest.mark.parametrize(("target", "seconds"), [("beams", 5400), ("pool/beams", 5400), ("service/multibody", 10)])
def test_one_pool_or_service_can_be_named(run: Callable[..., Result], target: str, seconds: int) -> None:
    entries = json.loads(run("usage", target, "-o", "json").stdout)
    assert sum(entry["workerSeconds"] for entry in entries) == seconds


def test_json_gives_numbers_and_the_cost_by_currency(run: Callable[..., Result]) -> None:
    (entry,) = json.loads(run("usage", "beams", "--by", "pool", "-o", "json").stdout)
    assert entry == {
        "pool": "beams",
        "runningWorkers": 0,
        "workerSeconds": 5400.0,
        "coreHours": 6.0,
        "licenceSeconds": 0.0,
        "cost": {"EUR": "1.234", "USD": "2.000"},
    }


def test_columns_of_csv_can_be_added_up(run: Callable[..., Result]) -> None:
    rows = list(csv.DictReader(io.StringIO(run("usage", "--by", "pool", "-o", "csv").stdout)))
    assert [(row["pool"], row["currency"], row["cost"]) for row in rows] == [
        ("", "", "0.000"),
        ("beams", "EUR", "1.234"),
        ("beams", "USD", "2.000"),
    ]
    assert sum(float(row["worker_seconds"]) for row in rows) == 5410


def test_no_usage_is_said_as_kubectl_says_it(run: Callable[..., Result]) -> None:
    result = run("-n", "empty", "usage")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "No usage found.\n")


def test_a_refusal_has_the_exit_code_and_the_words_of_kubectl(run: Callable[..., Result]) -> None:
    result = run("-n", "forbidden", "usage")
    assert (result.exit_code, result.stderr) == (3, "Error from server (Forbidden): no\n")


def test_a_worker_has_no_usage_of_its_own(run: Callable[..., Result]) -> None:
    result = run("usage", "worker/beams-0")
    assert result.exit_code == 2
    assert "not for single workers" in result.stderr
