# SPDX-License-Identifier: Apache-2.0
"""Checking values against declarations."""

import json
import math
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from simyard_adapter.declarations import (
    Attribute,
    Interface,
    InvalidValueError,
    InvalidValuesError,
    Value,
    ValueType,
    check_values,
)

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=3), children, max_size=3),
    max_leaves=8,
)
names = st.from_regex(r"[a-z][a-z_]{0,8}", fullmatch=True)
bounds = st.none() | st.integers(-100, 100).map(float) | st.floats(-100, 100)
values = st.builds(
    Value,
    name=names,
    type=st.sampled_from(ValueType),
    description=st.text(max_size=5),
    unit=st.sampled_from(["", "mm"]),
    required=st.booleans(),
    enum=st.lists(st.integers(-5, 5) | st.text(max_size=2), max_size=3).map(tuple),
    pattern=st.sampled_from(["", "a*", "[0-9]+"]),
    minimum=bounds,
    maximum=bounds,
    max_length=st.none() | st.integers(0, 5),
)


@given(values, anything)
def test_what_is_accepted_fits_the_declaration_and_can_be_sent(declared: Value, value: Any) -> None:
    try:
        checked = declared.check(value, "v")
    except InvalidValueError as error:
        assert error.path == "v" or (declared.holds_files and error.path.startswith(("v.", "v[")))
        assert error.problem
        return
    kinds = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict}
    kinds["file"] = dict
    assert isinstance(checked, kinds[declared.type.value])
    assert isinstance(checked, bool) == (declared.type is ValueType.BOOLEAN)
    assert json.loads(json.dumps(checked, allow_nan=False, ensure_ascii=False).encode()) == checked
    if isinstance(checked, (int, float)) and not isinstance(checked, bool):
        assert math.isfinite(checked)
        assert declared.minimum is None or checked >= declared.minimum
        assert declared.maximum is None or checked <= declared.maximum
    if isinstance(checked, (str, list)) and declared.max_length is not None:
        assert len(checked) <= declared.max_length
    assert declared.check(checked, "v") == checked


@given(st.lists(values, unique_by=lambda item: item.name, max_size=4), st.dictionaries(names, anything, max_size=4))
def test_every_wrong_value_is_named_and_nothing_is_made_up(declared: list[Value], given_values: dict[str, Any]) -> None:
    by_name = {item.name: item for item in declared}
    try:
        checked = check_values(given_values, declared, "p")
    except InvalidValuesError as error:
        paths = [".".join(it.path.split(".")[:2]) for it in error.errors]  # without the field of a file
        assert len(set(paths)) == len(paths) > 0
        unknown = {f"p.{name}" for name in given_values.keys() - by_name.keys()}
        missing = {f"p.{it.name}" for it in declared if it.required and given_values.get(it.name) is None}
        assert unknown | missing <= set(paths) <= unknown | {f"p.{name}" for name in by_name}
        return
    assert checked.keys() <= by_name.keys()
    assert checked.keys() == {name for name, value in given_values.items() if value is not None}
    partial = check_values(given_values, declared, "p", partial=True)
    assert partial == checked


def test_defaults_are_filled_in_but_not_into_an_update() -> None:
    declared = [Value("a", ValueType.INTEGER, default=5), Value("b", ValueType.INTEGER, required=True)]
    assert check_values({"b": 1.0}, declared, "p") == {"a": 5, "b": 1}
    assert check_values({}, declared, "p", partial=True) == {}


@given(values, st.booleans())
def test_a_declaration_survives_its_manifest(declared: Value, mutable: bool) -> None:
    assume(all(bound is None or float(repr(bound)) == bound for bound in (declared.minimum, declared.maximum)))
    attribute = Attribute(**{**vars(declared), "mutable": mutable})
    manifest = json.loads(json.dumps(Interface(attributes=(attribute,)).to_json()))
    assert Interface.from_json(manifest).attributes == (attribute,)


@pytest.mark.parametrize("value", [10**400, -(2**63) - 1, 2**63, 1e300, math.nan, math.inf, True, "1"])
def test_integers_have_64_bits(value: Any) -> None:
    with pytest.raises(InvalidValueError):
        Value("v", ValueType.INTEGER).check(value, "v")
