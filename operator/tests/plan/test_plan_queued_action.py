# SPDX-License-Identifier: Apache-2.0
"""Reduced form of a ServiceAction in the operator's memory."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simyard.api.base import Json
from simyard.api.weights import MAX_DEPTH, MAX_PARAMETERS_WEIGHT, find_excess, weigh_value
from simyard.plan.queued_action import MAX_KEPT_WEIGHT, MAX_STORED_BYTES, read_action

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=2000),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=8), inner, max_size=8),
)


def stored(parameters: Json, result: Any = None, *, done: bool = False) -> Json:
    condition = {"type": "Complete", "status": "True" if done else "False", "reason": "Any"}
    return {
        "metadata": {"name": "a", "namespace": "ns", "uid": "u"},
        "spec": {"target": {"kind": "Worker", "name": "w"}, "action": "solve", "parameters": parameters},
        "status": {"result": result, "conditions": [{**condition, "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    }


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.text(max_size=8), VALUES, max_size=8), VALUES)
def test_no_result_and_no_large_parameters_are_kept_and_whole_ones_are_those_stored(
    parameters: Json, result: Any
) -> None:
    raw = stored(parameters, result)
    kept = read_action(raw)
    assert kept.status.result is None
    assert weigh_value(kept.spec.parameters) <= MAX_KEPT_WEIGHT
    assert kept.left_out == (kept.spec.parameters != parameters)
    whole = read_action(raw, whole=True)
    assert whole.spec.parameters == ({} if find_excess(parameters) else parameters)
    assert whole.excess == kept.excess == find_excess(parameters)


def test_nothing_is_kept_of_a_finished_action() -> None:
    kept = read_action(stored({"a": 1}, {"b": 2}, done=True), whole=True)
    assert (kept.spec.parameters, kept.status.result, kept.excess) == ({}, None, "")


def test_parameters_that_are_too_large_or_nest_too_deep_say_so() -> None:
    assert f"at most {MAX_PARAMETERS_WEIGHT} is accepted" in read_action(stored({"a": "x" * 1_200_000})).excess
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    read = read_action(stored({"a": deep}))
    assert f"nests deeper than {MAX_DEPTH} levels" in read.excess
    assert read.stored_bytes == MAX_STORED_BYTES


def test_the_size_is_that_of_the_whole_object_with_what_is_not_kept() -> None:
    raw = stored({"mesh": "x" * 100_000}, {"field": "y" * 50_000}, done=True)
    assert read_action(raw).stored_bytes == len(json.dumps(raw, separators=(",", ":")))


@given(st.dictionaries(st.text(max_size=8), VALUES, max_size=8))
def test_json_is_not_much_larger_than_its_weight(parameters: Json) -> None:
    size = len(json.dumps(parameters, ensure_ascii=False).encode())
    assert weigh_value(parameters) >= 10**8 or size <= 6 * weigh_value(parameters)
