# SPDX-License-Identifier: Apache-2.0
"""The commands `kubectl simyard study`: values and ranges, progress, tables and pictures."""

import csv
import gzip
import io
import re
import zlib
from datetime import UTC, datetime, timedelta

import click
import pytest

from simyard.api.simulation_service import DeclaredValue
from simyard.api.study import Study
from simyard.cli.kubectl import Kubectl
from simyard.cli.output import Failure
from simyard.cli.study.create import read_parameters
from simyard.cli.study.picture import Labels, choose_columns, draw_study
from simyard.cli.study.ranges import RangeError, format_axis, parse_axis, parse_decimal, read_points, read_workers
from simyard.cli.study.search import SearchOptions, add_generations
from simyard.cli.study.search_picture import draw_search
from simyard.cli.study.table import Columns, read_part, write_csv
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


def test_a_parameter_that_the_action_does_not_have_is_refused_with_those_that_it_has() -> None:
    declared = [DeclaredValue(name="length", type="number"), DeclaredValue(name="load", type="number")]
    with pytest.raises(click.BadParameter, match="no parameter lenght; it has: length, load"):
        read_parameters(Kubectl(), ["lenght=1,2"], declared)


@pytest.mark.parametrize("text", ["500:3450:50", "1:1000:x4:log", "1:9:log", "10,20"])
def test_an_axis_is_shown_as_it_is_written(text: str) -> None:
    assert format_axis(parse_axis("x", text, "number") or {}) == text


def test_a_number_of_workers_is_a_maximum_or_a_range() -> None:
    assert [read_workers(text) for text in ("20", "1..200")] == [{"min": 0, "max": 20}, {"min": 1, "max": 200}]
    for text in ("", "..5", "1..", "a..b", "1...5"):
        with pytest.raises(RangeError, match="write 20 or"):
            read_workers(text)


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


def pack(rows: list[list[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return gzip.compress(text.getvalue().encode())


def test_the_rows_of_a_chunk_are_unpacked() -> None:
    rows = [HEADER, *rows_of(1000)]
    rows[1][-1] = 'two\nlines, and "quotes"'
    assert list(read_part(pack(rows))) == rows


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (gzip.compress((b"x" * 20_000 + b"\n") * 1000), "unpacks to more than 10000000 bytes"),
        (gzip.compress(b"a\n" * 3000), "row 1001 is one too many"),
        (gzip.compress(b"," * 3_000_000), "cells in place of"),
        (gzip.compress(b'"' + b"x\n" * 200_000), "field larger than"),
        (pack([HEADER, *rows_of(3)])[:-20], "Compressed file ended|Error -3"),
        (gzip.compress(b"a\n\xff\n"), "can't decode"),
    ],
    ids=["bytes", "rows", "cells", "field", "cut", "text"],
)
def test_a_table_that_a_worker_did_not_write_as_agreed_needs_little_memory_and_fails(
    content: bytes, problem: str
) -> None:
    with pytest.raises((OSError, EOFError, csv.Error, UnicodeDecodeError, zlib.error), match=problem):
        list(read_part(content, 10_000_000))


@pytest.mark.parametrize("chosen", [["y"], ["parameters.x", "y"], []])
def test_a_picture_draws_a_result_over_one_or_two_parameters(chosen: list[str]) -> None:
    columns = Columns.read(HEADER)
    rows = rows_of(100)
    choice = choose_columns(columns, rows, chosen, "z")
    picture = draw_study("title", rows, columns, choice, Labels({"z": "mm"}), "svg")
    assert b"z [mm]" in picture
    assert b"title" in picture


@pytest.mark.parametrize("chosen", [["y"], ["parameters.x", "y"]])
def test_a_picture_compares_a_result_with_another_one(chosen: list[str]) -> None:
    columns, rows = Columns.read(HEADER), rows_of(40)
    choice = choose_columns(columns, rows, chosen, "z", "result.x")
    assert b"result.x" in draw_study("title", rows, columns, choice, Labels({}), "svg")


def test_a_picture_needs_numbers_and_known_names() -> None:
    columns = Columns.read(HEADER)
    with pytest.raises(Failure, match="there is no column q; the columns are: parameters"):
        choose_columns(columns, rows_of(9), ["q"], "z")
    failed = [[str(i), str(i), "0", "", "", "", "0", "1", "ActionFailed", "no"] for i in range(3)]
    with pytest.raises(Failure, match="no task has a result that is a number"):
        choose_columns(columns, failed, [], "")


DESIGN = {
    "axes": [{"name": "x", "start": 0, "stop": 9}],
    "objectives": [{"result": "z"}],
    "constraints": [{"result": "g", "atMost": 1}],
    "algorithm": "DE",
    "population": 4,
    "evaluations": 16,
    "islands": {"count": 2},
}
SEARCH_HEADER = ["index", "parameters.x", "result.z", "result.g", "worker", "seconds", "attempts", "reason", "error"]


def optimisation_with(design: dict | None = None, **status: object) -> Study:
    found = study_with(**status)
    spec = {**found.spec.to_json(), "design": {"optimise": {**DESIGN, **(design or {})}}}
    return Study.model_validate({"metadata": {"name": "s"}, "spec": spec, "status": status})


def search_row(index: int, z: object, g: object = 0) -> list[str]:
    return [str(index), "1", str(z), str(g), "w", "0.1", "1", "", ""]


def test_options_of_a_search_become_its_design() -> None:
    options = SearchOptions(
        minimise=("volume",), bounds=("deflection<=2", "stress >= -1.5e1"), evaluations=2000, islands=3
    )
    axes = [{"name": "height", "start": 1, "stop": 5}]
    assert options.make_design(axes, 7) == {
        "optimise": {
            "axes": axes,
            "objectives": [{"result": "volume", "goal": "Minimise"}],
            "constraints": [{"result": "deflection", "atMost": 2}, {"result": "stress", "atLeast": -15}],
            "algorithm": "DE",
            "evaluations": 2000,
            "seed": 7,
            "islands": {"count": 3},
        }
    }
    several = SearchOptions(minimise=("a",), maximise=("b",), generations=5).make_design(axes, 0)["optimise"]
    assert several["algorithm"] == "NSGAII"
    assert several["objectives"][1] == {"result": "b", "goal": "Maximise"}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (SearchOptions(evaluations=100), "needs --minimise or --maximise"),
        (SearchOptions(minimise=("a",)), "needs a budget"),
        (SearchOptions(minimise=("a",), bounds=("b=2",), evaluations=9), "write RESULT<=NUMBER"),
        (SearchOptions(minimise=("a",), bounds=("b<=two",), evaluations=9), "write RESULT<=NUMBER"),
    ],
)
def test_a_search_that_lacks_an_option_is_refused(options: SearchOptions, problem: str) -> None:
    with pytest.raises(click.UsageError, match=re.escape(problem)):
        options.make_design([], 0)


def test_rows_of_an_optimisation_have_their_generation_and_their_island() -> None:
    rows = [SEARCH_HEADER, *(search_row(index, 1) for index in (0, 3, 4, 8, 15))]
    found = list(add_generations(rows, optimisation_with()))
    assert found[0][:4] == ["index", "generation", "island", "parameters.x"]
    assert [row[:3] for row in found[1:]] == [
        ["0", "0", "0"], ["3", "0", "0"], ["4", "0", "1"], ["8", "1", "0"], ["15", "1", "1"],
    ]  # fmt: skip
    assert list(add_generations(rows, study_with())) == rows


def test_the_progress_of_an_optimisation_shows_its_best_point() -> None:
    best = {"index": 7, "value": "1.5", "parameters": [{"name": "x", "value": "3"}]}
    line = format_progress(optimisation_with(tasks=16, succeeded=8, optimisation={"generations": 2, "best": best}), NOW)
    assert "generation 2  best 1.5 (task 7)" in line
    assert "no feasible point yet" in format_progress(optimisation_with(tasks=16, optimisation={}), NOW)
    assert "front 5" in format_progress(optimisation_with(tasks=16, optimisation={"frontSize": 5}), NOW)


@pytest.mark.parametrize(
    ("design", "said"),
    [
        ({}, ["best feasible point", "z [mm]"]),
        ({"objectives": [{"result": "z"}, {"result": "g"}], "constraints": []}, ["front", "z [mm]", "g"]),
    ],
)
def test_an_optimisation_is_drawn_by_its_convergence_or_its_front(design: dict, said: list[str]) -> None:
    rows = [search_row(0, 5), search_row(1, 3, 2), search_row(2, "", ""), search_row(3, 4)]
    study = optimisation_with(design).spec.design.optimise
    assert study is not None
    picture = draw_search("title", rows, Columns.read(SEARCH_HEADER), study, Labels({"z": "mm"}), "svg").decode()
    assert all(text in picture for text in said)


def test_without_a_feasible_point_there_is_nothing_to_draw() -> None:
    design = optimisation_with().spec.design.optimise
    assert design is not None
    with pytest.raises(Failure, match="no point is feasible yet"):
        draw_search("title", [search_row(0, 5, 2)], Columns.read(SEARCH_HEADER), design, Labels({}), "svg")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("9007199254740993", "9007199254740993"),
        ("0.1000000000000000055", "0.1000000000000000055"),
        ("-1.5e3", -1500),
        ("1e-7", "1e-7"),
        ("2.5", "2.5"),
    ],
)
def test_a_decimal_keeps_all_its_digits(text: str, number: int | str) -> None:
    assert parse_decimal(text) == number


@pytest.mark.parametrize("text", ["1e999", "-1e999999999", "1e-999999999", "1e99999999999999999999999"])
def test_a_decimal_that_fits_into_no_float_is_refused(text: str) -> None:
    with pytest.raises(RangeError, match="too large or too small"):
        parse_decimal(text)
