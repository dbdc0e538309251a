# SPDX-License-Identifier: Apache-2.0
"""The policies that bound free-form values, on a real API server."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from kube_api import Api, wait_until
from simyard.api import names
from simyard.api.base import Json
from simyard.api.weights import MAX_ATTRIBUTES_WEIGHT, MAX_DEPTH, MAX_PARAMETERS_WEIGHT, weigh_value


def manifest(namespace: str, kind: str, spec: Json) -> Json:
    name = f"s-{uuid.uuid4().hex[:8]}"
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": names.API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def action(namespace: str, parameters: Json) -> Json:
    target = {"kind": "WorkerPool", "name": "absent"}
    return manifest(namespace, "ServiceAction", {"target": target, "action": "solve", "parameters": parameters})


def nested(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


@pytest.fixture
def policed(api: Api, namespace: str) -> str:
    """The namespace, once the policy is in force."""
    huge = {"text": "x" * (MAX_PARAMETERS_WEIGHT + 1)}
    wait_until(lambda: not api.create(action(namespace, huge), dry_run=True).accepted)
    return namespace


@pytest.mark.parametrize(
    "parameters",
    [
        {"text": "x" * 1_400_000},
        {"numbers": list(range(200_000))},
        {f"name_{number}": "x" * 1200 for number in range(1000)},
        {"objects": [{"key": "x" * 200}] * 6000},
    ],
    ids=["text", "numbers", "names", "objects"],
)
def test_parameters_that_are_too_large_are_refused_with_the_limit(api: Api, policed: str, parameters: Json) -> None:
    answer = api.create(action(policed, parameters), dry_run=True)
    assert answer.status == 422
    assert "spec.parameters: " in answer.message
    assert str(MAX_PARAMETERS_WEIGHT) in answer.message
    assert "upload large inputs with" in answer.message


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"text": "x" * 1024 * 1024},
        {"numbers": [0.5] * 14_500},
        {"rows": [[1, 2.5, "x", None, True]] * 2900},
        {"mesh": nested(MAX_DEPTH - 1)},
        {f"name_{number}": number for number in range(1000)},
    ],
    ids=["none", "text", "numbers", "rows", "deep", "names"],
)
def test_parameters_within_the_limit_are_accepted(api: Api, policed: str, parameters: Json) -> None:
    assert api.create(action(policed, parameters), dry_run=True).message == ""


def test_what_has_too_many_parts_to_be_weighed_is_refused(api: Api, policed: str) -> None:
    answer = api.create(action(policed, {"rows": [[0.125] * 1000] * 150}), dry_run=True)
    assert answer.status == 422
    assert f"serviceactions-size.{names.GROUP}" in answer.message


def test_the_policy_and_the_platform_weigh_the_same(api: Api, policed: str) -> None:
    rest = MAX_PARAMETERS_WEIGHT - weigh_value({"rows": [[1, "é", None, {"key": True}]] * 50, "text": ""})
    for missing, accepted in ((0, True), (1, False)):
        parameters = {"rows": [[1, "é", None, {"key": True}]] * 50, "text": "x" * (rest + missing)}
        assert api.create(action(policed, parameters), dry_run=True).accepted is accepted


@pytest.mark.parametrize("levels", [MAX_DEPTH, 500])
def test_no_value_nests_deeper_than_the_parsers_can_read(api: Api, policed: str, levels: int) -> None:
    body = nested(levels)
    for kind, spec in (
        ("ServiceAction", {"target": {"kind": "Worker", "name": "w"}, "action": "solve", "parameters": {"a": body}}),
        ("WorkerPool", {"serviceRef": {"name": "s"}, "attributes": {"a": body}}),
        ("Worker", {"serviceRef": {"name": "s"}, "site": "nowhere", "attributes": {"a": body}}),
    ):
        answer = api.create(manifest(policed, kind, spec), dry_run=True)
        assert not answer.accepted, kind
        assert f"nests deeper than {MAX_DEPTH} levels" in answer.message


def test_attributes_and_defaults_are_bounded_too(api: Api, policed: str) -> None:
    text = "x" * (MAX_ATTRIBUTES_WEIGHT + 1)
    declared = {"name": "a", "type": "string", "default": text}
    connector = {"python": {"class": "module:Class"}}
    for kind, spec in (
        ("WorkerPool", {"serviceRef": {"name": "s"}, "attributes": {"a": text}}),
        ("Worker", {"serviceRef": {"name": "s"}, "site": "nowhere", "attributes": {"a": text}}),
        ("SimulationService", {"interface": {"attributes": [declared]}, "connector": connector}),
        (
            "SimulationService",
            {"interface": {"actions": [{"name": "go", "parameters": [declared]}]}, "connector": connector},
        ),
    ):
        answer = api.create(manifest(policed, kind, spec), dry_run=True)
        assert not answer.accepted, kind
        assert f"at most {MAX_ATTRIBUTES_WEIGHT} is accepted" in answer.message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("labels", {f"label-{number}": "x" for number in range(65)}),
        ("finalizers", [f"example.com/{number}" for number in range(17)]),
        (
            "ownerReferences",
            [{"apiVersion": "v1", "kind": "Pod", "name": f"p-{number}", "uid": f"u-{number}"} for number in range(17)],
        ),
    ],
)
def test_metadata_has_a_bounded_number_of_entries(api: Api, policed: str, field: str, value: Any) -> None:
    for kind, spec in (
        ("ServiceAction", {"target": {"kind": "WorkerPool", "name": "absent"}, "action": "solve"}),
        ("WorkerPool", {"serviceRef": {"name": "s"}}),
    ):
        made = manifest(policed, kind, spec)
        made["metadata"][field] = value
        answer = api.create(made, dry_run=True)
        assert not answer.accepted, kind
        assert f"metadata.{field}: has more than" in answer.message
        made["metadata"][field] = dict(list(value.items())[:16]) if isinstance(value, dict) else value[:16]
        assert api.create(made, dry_run=True).accepted, kind


def test_the_api_server_keeps_no_record_of_each_leaf_of_the_parameters(api: Api, policed: str) -> None:
    stored = api.create(action(policed, {"rows": {f"row_{number}": 1 for number in range(500)}})).body
    assert "row_1" not in json.dumps(stored["metadata"].get("managedFields", []))
