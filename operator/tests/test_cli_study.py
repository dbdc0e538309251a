# SPDX-License-Identifier: Apache-2.0
"""The commands `kubectl simyard study`: values and ranges, progress, tables and pictures."""

import csv
import io
from datetime import UTC, datetime, timedelta

import pytest

from simyard.api.study import Study
from simyard.cli.output import Failure
from simyard.cli.study.picture import Labels, choose_columns, draw_study
from simyard.cli.study.ranges import RangeError, format_axis, parse_axis, read_points
from simyard.cli.study.table import Columns, write_csv
from simyard.cli.study.watch import format_progress

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
HEADER = [
    "index",
    "parameters.x",
    "parameters.y",
    "result.x",
    "result.z",
    "worker",
    "seconds",
    "attempts",
    "reason",
    "error",
]


@pytest.mark.parametrize(
    ("text", "kind", "axis"),
    [
        ("500:3450:50", "number", {"start": 500, "stop": 3450, "step": 50}),
        ("0.5:1e3:.25", "number", {"start": "0.5", "stop": 1000, "step": "0.25"}),
        ("1:1000:x4:log", "number", {"start": 1, "stop": 1000, "count": 4, "scale": "Log"}),
        ("1:1000:log", "integer", {"start": 1, "stop": 1000, "scale": "Log"}),
        ("-3:3", "number", {"start": -3, "stop": 3}),
        ("10,20.5,40", "number", {"values": [10, 20.5, 40]}),
        ("steel, titanium", "string", {"values": ["steel", "titanium"]}),
        ("true,false", "boolean", {"values": [True, False]}),
    ],
)
def test_a_list_or_a_range_becomes_an_axis(text: str, kind: str, axis: dict) -> None:
    assert parse_axis("x", text, kind) == {"name": "x", **axis}


@pytest.mark.parametrize(("text", "kind"), [("500", "number"), ("a:b", "string"), ("[1,2]", "array"), ("1,2", "")])
def test_other_texts_are_one_fixed_value(text: str, kind: str) -> None:
    assert parse_axis("x", text, kind) is None


@pytest.mark.parametrize("text", ["1:2:3:4", "1:", "a:b", "1:2:x", "1,two", "1:2:-"])
def test_a_number_that_is_no_list_and_no_range_is_refused(text: str) -> None:
    with pytest.raises(RangeError, match="write VALUE"):
        parse_axis("x", text, "number")


@pytest.mark.parametrize("text", ["500:3450:50", "1:1000:x4:log", "1:9:log", "10,20"])
def test_an_axis_is_shown_as_it_is_written(text: str) -> None:
    assert format_axis(parse_axis("x", text, "number") or {}) == text


def test_the_cells_of_a_table_have_the_declared_types() -> None:
    found = read_points(
        ["length", "material"], [["1.5", "steel"], ["2", "7"]], {"length": "number", "material": "string"}
    )
    assert found == {"columns": ["length", "material"], "rows": [[1.5, "steel"], [2, "7"]]}
    with pytest.raises(RangeError, match="line 3 has 1 cells, but the header has 2"):
        read_points(["a", "b"], [["1", "2"], ["3"]], {})


def study_with(**status: object) -> Study:
    spec = {
        "target": {"kind": "WorkerPool", "name": "beams"},
        "action": "solve",
        "design": {"grid": {"axes": [{"name": "x", "values": [1]}]}},
    }
    return Study.model_validate({"metadata": {"name": "s"}, "spec": spec, "status": status})


def test_the_progress_has_a_bar_a_rate_the_time_left_and_failures() -> None:
    study = study_with(
        tasks=200,
        succeeded=96,
        failed=4,
        running=3,
        tasksPerSecond="2.5",
        estimatedCompletionTime=(NOW + timedelta(seconds=40)).isoformat(),
        failures=[{"reason": "ActionFailed", "count": 4, "firstIndex": 7}],
    )
    bar = "#" * 15 + "-" * 15
    assert format_progress(study, NOW) == (
        f"[{bar}]  50 %  100 of 200  3 running  2.5/s  40 s left  4 failed (ActionFailed 4)"
    )


def rows_of(count: int) -> list[list[str]]:
    return [[str(i), str(i % 10), str(i // 10), "1", str(i * 0.5), "w-0", "0.1", "1", "", ""] for i in range(count)]


def test_columns_keep_their_prefix_only_where_names_would_be_equal() -> None:
    text = io.StringIO()
    assert write_csv([HEADER, *rows_of(2)], text) == 2
    shown = next(csv.reader(io.StringIO(text.getvalue())))
    assert shown == ["index", "parameters.x", "y", "result.x", "z", "worker", "seconds", "attempts", "reason", "error"]


@pytest.mark.parametrize("chosen", [["y"], ["parameters.x", "y"], []])
def test_a_picture_draws_a_result_over_one_or_two_parameters(chosen: list[str]) -> None:
    columns = Columns.read(HEADER)
    rows = rows_of(100)
    choice = choose_columns(columns, rows, chosen, "z")
    picture = draw_study("title", rows, columns, choice, Labels({"z": "mm"}), "svg")
    assert b"z [mm]" in picture
    assert b"title" in picture


def test_a_picture_needs_numbers_and_known_names() -> None:
    columns = Columns.read(HEADER)
    with pytest.raises(Failure, match="there is no column q; the columns are: parameters"):
        choose_columns(columns, rows_of(9), ["q"], "z")
    failed = [[str(i), str(i), "0", "", "", "", "0", "1", "ActionFailed", "no"] for i in range(3)]
    with pytest.raises(Failure, match="no task has a result that is a number"):
        choose_columns(columns, failed, [], "")
