# SPDX-License-Identifier: Apache-2.0
"""docs/sizing.md states measured sizes as measured, and interpolates between them."""

import re

import pytest

from simyard_bench import results
from simyard_bench.occi import rows
from simyard_bench.sizing import sizing
from simyard_dev.errors import SetupError

RUNS, ROWS = results.load(results.FILE), rows.load(rows.FILE)


def cells(text: str, line: str) -> list[float]:
    """Return the figures of a line of the table."""
    [found] = re.findall(rf"^\| {re.escape(line)} \|(.*)\|$", text, re.MULTILINE)
    return [float(re.sub(r"[^\d.]", "", cell)) for cell in found.split("|")]


def test_what_was_measured_is_said_as_it_was_measured() -> None:
    [run] = [run for run in RUNS if run.profile == "instant" and run.n == 10_000]
    [row] = [row for row in ROWS if (row.case, row.workers, row.finished, row.frontends) == ("action", 10_000, 0, 1)]
    said = sizing(RUNS, ROWS, [10_000])
    assert cells(said, "the operator's memory, at most") == [round(run.operator_rss_mib)]
    assert cells(said, "actions per second, for each frontend") == [round(row.per_second)]


def test_a_size_in_between_is_on_the_straight_line() -> None:
    small, large = (run for run in RUNS if run.profile == "instant" and run.n in (512, 10_000))
    middle = (512 + 10_000) // 2
    said = sizing(RUNS, ROWS, [middle])
    expected = (small.cpu_s["rabbitmq"] + large.cpu_s["rabbitmq"]) / 2
    assert cells(said, "CPU seconds of a start: the broker") == [pytest.approx(expected, abs=0.06)]


def test_more_memory_is_asked_for_than_was_used() -> None:
    said = sizing(RUNS, ROWS)
    used, asked = (
        cells(said, line)
        for line in ("the operator's memory, at most", "`operator.resources.requests.memory` at least")
    )
    assert all(more % 64 == 0 and 1.5 * some <= more < 1.5 * some + 65 for some, more in zip(used, asked, strict=True))


def test_nothing_is_said_of_sizes_beyond_what_was_measured() -> None:
    with pytest.raises(SetupError, match="100,000 workers"):
        sizing(RUNS, ROWS, [100_000])
