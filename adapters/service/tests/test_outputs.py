# SPDX-License-Identifier: Apache-2.0
"""Rules for results: patterns, JSON Pointers, columns of tables, files and folders."""

import re

import pytest

from simyard_adapter.declarations import Json, Value, ValueType
from simyard_adapter.errors import ActionError
from simyard_adapter.outputs import ResultRule, find_result, find_rule_problem

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
    found = find_result(text, rule, Value("v", ValueType(kind)))
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("rule", "kind", "text", "message"),
    [
        (ResultRule("v", json="/a"), "integer", "no json", "v: the output cannot be read: Expecting value"),
        (ResultRule("v", json="/a", file="out.json"), "integer", "{", "v: out.json cannot be read"),
        (ResultRule("v", json="/a"), "integer", '{"a": "x"}', 'v: "x" is not of type integer'),
        (ResultRule("v", column="a"), "array", "a\nnan\n", "v: cannot be encoded as JSON"),
        (ResultRule("v", pattern=re.compile("(.*)")), "integer", "1.5", "v: 1.5 is not of type integer"),
    ],
)
def test_an_unreadable_output_fails_the_action(rule: ResultRule, kind: str, text: str, message: str) -> None:
    with pytest.raises(ActionError, match=re.escape(message)):
        find_result(text, rule, Value("v", ValueType(kind)))


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
