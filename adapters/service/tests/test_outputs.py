# SPDX-License-Identifier: Apache-2.0
"""Rules for results: patterns, JSON Pointers, columns of tables, files and folders."""

import json
import re
from pathlib import Path

import pytest

from simyard_adapter.declarations import Json, Value, ValueType
from simyard_adapter.errors import ActionError
from simyard_adapter.limits import MIB
from simyard_adapter.outputs import (
    MAX_JSON_CHARACTERS,
    MAX_SEARCHED_CHARACTERS,
    Output,
    ResultRule,
    find_result,
    find_rule_problem,
)

TABLE = "time, stress,note\n0,1.5,begin\n1.01e+02,2,\n"
DOCUMENT = '{"max": {"stress": [1, 2.5]}, "a/b": 3, "m~n": 4}'
FILES = Value("v", ValueType.ARRAY, items=ValueType.FILE)


@pytest.mark.parametrize(
    ("rule", "kind", "text", "value"),
    [
        (ResultRule("v", pattern=re.compile("n=(.*)")), "integer", "n=1.01e+02", 101),
        (ResultRule("v", pattern=re.compile("n=(.*)")), "integer", "n=9007199254740993", 9007199254740993),
        (ResultRule("v", pattern=re.compile("n=(.*)")), "integer", "m=1", None),
        (ResultRule("v", json=""), "object", '{"a": 1}', {"a": 1}),
        (ResultRule("v", json="/max/stress/1"), "number", DOCUMENT, 2.5),
        (ResultRule("v", json="/a~1b"), "integer", DOCUMENT, 3),
        (ResultRule("v", json="/m~0n"), "integer", DOCUMENT, 4),
        (ResultRule("v", json="/max/stress/2"), "number", DOCUMENT, None),
        (ResultRule("v", json="/max/stress/-"), "number", DOCUMENT, None),
        (ResultRule("v", column="time"), "array", TABLE, [0, 101.0]),
        (ResultRule("v", column="note"), "array", TABLE, ["begin", ""]),
        (ResultRule("v", column="load"), "array", TABLE, None),
    ],
)
def test_a_rule_finds_its_value(rule: ResultRule, kind: str, text: str, value: Json) -> None:
    found = find_result(Output("the output", text), rule, Value("v", ValueType(kind)))
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("rule", "kind", "text", "message"),
    [
        (ResultRule("v", json="/a"), "integer", "no json", "v: the output cannot be read: Expecting value"),
        (ResultRule("v", json="/a"), "integer", '{"a": "x"}', 'v: "x" is not of type integer'),
        (ResultRule("v", column="a"), "array", "a\nnan\n", "v: cannot be encoded as JSON"),
        (ResultRule("v", pattern=re.compile("(.*)")), "integer", "1.5", "v: 1.5 is not of type integer"),
        (ResultRule("v", pattern=re.compile("(.*)")), "array", "[" * 100_000, "v: the program's output '[[["),
        (ResultRule("v", json=""), "array", "[" * 100_000, "v: the output cannot be read"),
        (ResultRule("v", column="a"), "array", f"a\n{'x' * 200_000}\n", "v: the output cannot be read: field larger"),
        (
            ResultRule("v", column="a"),
            "array",
            "a\n" + "x" * (MIB + 1),
            "v: the output cannot be read: a line has more",
        ),
        (ResultRule("v", column="a"), "array", "a\n" + "1\n" * MIB, "the limit of a result"),
    ],
)
def test_an_unreadable_output_fails_the_action(rule: ResultRule, kind: str, text: str, message: str) -> None:
    with pytest.raises(ActionError, match=re.escape(message)):
        find_result(Output("the output", text), rule, Value("v", ValueType(kind)))


NUMBERS = Value("v", ValueType.ARRAY)


def test_a_column_of_a_file_of_any_size_is_read_with_its_header(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("\ufefftime,note\n" + f"1,{'x' * 1000}\n" * 10_000)
    assert path.stat().st_size > 2 * MAX_SEARCHED_CHARACTERS
    assert find_result(Output("table.csv", path=path), ResultRule("v", column="time"), NUMBERS) == [1] * 10_000


def test_a_json_file_above_the_former_limit_is_read_and_a_larger_one_fails_with_the_limit(tmp_path: Path) -> None:
    path, rule = tmp_path / "out.json", ResultRule("v", json="/n")
    path.write_text(json.dumps({"n": [1, 2], "more": "x" * 2 * MAX_SEARCHED_CHARACTERS}))
    assert find_result(Output("out.json", path=path), rule, NUMBERS) == [1, 2]
    path.write_text(json.dumps({"n": [1, 2], "more": "x" * MAX_JSON_CHARACTERS}))
    with pytest.raises(ActionError, match=f"^v: out.json cannot be read: it has more than {MAX_JSON_CHARACTERS} char"):
        find_result(Output("out.json", path=path), rule, NUMBERS)


def test_a_pattern_is_searched_in_the_end_of_a_file_and_never_silently_absent(tmp_path: Path) -> None:
    path, found, absent = tmp_path / "out.dat", re.compile("n=(.)"), re.compile("m=(.)")
    path.write_text("m=1\n" + "x" * MAX_SEARCHED_CHARACTERS + "\nn=2\n")
    declared = Value("v", ValueType.INTEGER)
    assert find_result(Output("out.dat", path=path), ResultRule("v", pattern=found), declared) == 2
    with pytest.raises(ActionError, match=f"its last {MAX_SEARCHED_CHARACTERS} characters have no match"):
        find_result(Output("out.dat", path=path), ResultRule("v", pattern=absent), declared)


@pytest.mark.parametrize("rule", [ResultRule("v", json=""), ResultRule("v", column="a")])
def test_a_stream_without_its_beginning_is_neither_json_nor_a_table(rule: ResultRule) -> None:
    with pytest.raises(ActionError, match=r"v: the output cannot be read: its beginning is lost.*write a file"):
        find_result(Output("the output", "[1]", cut=True), rule, NUMBERS)


def test_a_match_without_its_group_is_no_value() -> None:
    rule = ResultRule("v", pattern=re.compile("n(=.)?"))
    assert find_result(Output("the output", "n"), rule, Value("v", ValueType.STRING)) is None


@pytest.mark.parametrize(
    ("rule", "declared", "problem"),
    [
        (ResultRule("v", file="a"), Value("v", ValueType.FILE), ""),
        (ResultRule("v", folder="a"), FILES, ""),
        (ResultRule("v", file="a"), FILES, ""),
        (ResultRule("v", json=""), Value("v", ValueType.OBJECT), ""),
        (ResultRule("v"), Value("v", ValueType.FILE), "needs file"),
        (ResultRule("v", folder="a"), Value("v", ValueType.FILE), "needs file"),
        (ResultRule("v"), FILES, "folder or file"),
        (ResultRule("v", file="a", json=""), Value("v", ValueType.FILE), "not for files"),
        (ResultRule("v", folder="a"), Value("v", ValueType.ARRAY), "only for arrays of files"),
        (ResultRule("v"), Value("v", ValueType.STRING), "exactly one of"),
        (ResultRule("v", json="", column="a"), Value("v", ValueType.ARRAY), "exactly one of"),
        (ResultRule("v", column="a"), Value("v", ValueType.NUMBER), "only for the type array"),
        (ResultRule("v", json="a"), Value("v", ValueType.NUMBER), "JSON Pointer"),
    ],
)
def test_a_rule_must_fit_the_declared_type(rule: ResultRule, declared: Value, problem: str) -> None:
    found = find_rule_problem(rule, declared)
    assert problem in found if problem else not found
