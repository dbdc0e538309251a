# SPDX-License-Identifier: Apache-2.0
"""Commands as data: what a manifest may say, and how parameters are put in."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simyard_adapter.commands import CommandSet, expand, find_references, render_parameters
from simyard_adapter.declarations import Interface, InvalidValuesError, Value, ValueType
from simyard_adapter.errors import ActionError
from simyard_adapter.outputs import convert_output

INTERFACE = Interface.from_json(
    {
        "attributes": [{"name": "t", "type": "number"}],
        "actions": [
            {
                "name": "solve",
                "parameters": [{"name": "deck", "type": "string"}],
                "result": [{"name": "max", "type": "number"}],
            },
            {"name": "cancel"},
        ],
    }
)
SOLVE = {"action": "solve", "command": ["ccx", "$(deck)"]}


@pytest.mark.parametrize(
    ("commands", "paths"),
    [
        ({"actions": [SOLVE, {"action": "melt", "command": ["x"]}]}, ["actions[1].action", "actions"]),
        ({"actions": [SOLVE, {"action": "cancel", "cancels": "solve"}]}, ["actions[1].cancels"]),
        ({"actions": [SOLVE]}, ["actions"]),
        ({"actions": "solve"}, ["actions", "actions", "actions"]),
        (
            {"actions": [{"action": "solve", "command": "ccx $(deck)"}, {"action": "cancel", "command": []}]},
            ["actions[0].command", "actions[1].command"],
        ),
        (
            {
                "actions": [
                    {"action": "solve", "command": ["$(deck)", "$(deep)"]},
                    {"action": "cancel", "command": ["x"]},
                ]
            },
            ["actions[0].command[0]", "actions[0].command[1]"],
        ),
        (
            {
                "actions": [
                    {
                        **SOLVE,
                        "stdin": 5,
                        "files": [{"content": "$(x)"}],
                        "env": [{"name": "A", "value": 1}],
                        "progressPattern": "step",
                        "failurePattern": "(",
                        "results": [{"name": "min", "pattern": "(.)"}, {"name": "max"}],
                    },
                    {"action": "cancel", "command": ["x"]},
                ],
                "attributes": [
                    {"attribute": "u", "file": "a", "command": ["b"], "pattern": "(.)", "intervalSeconds": 0}
                ],
            },
            [
                "actions[0].stdin",
                "actions[0].files[0].path",
                "actions[0].files[0].content",
                "actions[0].env[0].value",
                "actions[0].progressPattern",
                "actions[0].results[0].name",
                "actions[0].results[1]",
                "actions[0].failurePattern",
                "attributes[0].attribute",
                "attributes[0].intervalSeconds",
                "attributes[0]",
            ],
        ),
    ],
)
def test_a_wrong_manifest_is_refused_with_every_path(commands: Any, paths: list[str]) -> None:
    with pytest.raises(InvalidValuesError) as caught:
        CommandSet.from_json(commands, INTERFACE)
    assert [error.path for error in caught.value.errors] == paths


@given(st.text())
def test_a_value_is_put_in_as_it_is_and_never_expanded_again(value: str) -> None:
    assert expand("$(a)", {"a": value, "b": "no"}) == value
    assert expand("<$(a)|$$(a)|$(b)>", {"a": value, "b": "yes"}) == f"<{value}|$(a)|yes>"


@given(st.text(alphabet="$()ab", max_size=12))
def test_expansion_follows_the_rule_of_kubernetes(text: str) -> None:
    # k8s.io/kubernetes third_party/forked/golang/expansion: $$ is $, $(name) is its value, all else stays.
    expected, rest = "", text
    while rest:
        match = re.match(r"\$\$|\$\(([^)]*)\)", rest)
        if match:
            expected += "$" if match[0] == "$$" else f"[{match[1]}]"
            rest = rest[match.end() :]
        else:
            expected, rest = expected + rest[0], rest[1:]
    assert expand(text, {name: f"[{name}]" for name in find_references(text)}) == expected


def test_parameters_become_text_as_json_writes_them() -> None:
    declared = [Value(name, ValueType.STRING) for name in ("s", "n", "b", "l", "absent")]
    texts = render_parameters({"s": "x y", "n": 0.5, "b": True, "l": [1]}, declared)
    assert texts == {"s": "x y", "n": "0.5", "b": "true", "l": "[1]", "absent": ""}


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("string", " x ", " x "),
        ("integer", "42", 42),
        ("number", "-1.5E-03", -0.0015),
        ("boolean", "True", True),
        ("array", "[1]", [1]),
        ("object", '{"a": 1}', {"a": 1}),
    ],
)
def test_output_is_converted_to_the_declared_type(kind: str, text: str, value: Any) -> None:
    assert convert_output(text, Value("v", ValueType(kind))) == value


@pytest.mark.parametrize(
    ("kind", "text"), [("integer", "4.5"), ("number", "NaN"), ("boolean", "maybe"), ("array", "{}"), ("object", "{")]
)
def test_output_that_is_no_such_value_fails_the_action(kind: str, text: str) -> None:
    with pytest.raises(ActionError):
        convert_output(text, Value("v", ValueType(kind)))
