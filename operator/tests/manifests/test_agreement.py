# SPDX-License-Identifier: Apache-2.0
"""The models and the schema agree: about defaults, and about what a valid object is.

What the API server alone checks: CEL rules, and duplicates in maps and sets. A null is left out of the comparison: the
server drops it or refuses it, so no model ever sees one.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from kube_api import Answer, Api, build_path
from simyard.api.base import Json
from simyard.manifests.crds import DEFINITIONS
from simyard.manifests.schema import build_schema

KINDS = {definition.resource.kind: definition for definition in DEFINITIONS}
SCHEMAS = {kind: build_schema(definition.model) for kind, definition in KINDS.items()}
FULL: list[Json] = [
    example
    for file in sorted((Path(__file__).parent / "examples").glob("*.yaml"))
    for example in yaml.safe_load_all(file.read_text())
]
MINIMAL: list[Json] = [
    {"apiVersion": "simyard.dev/v1alpha1", "kind": kind, "metadata": {"name": "minimal"}, "spec": spec}
    for kind, spec in (
        ("CloudSite", {"provider": {"emulated": {}}}),
        ("CloudSite", {"provider": {"emulated": {"latencies": {}}}, "limits": {}, "cost": {}, "allowedNamespaces": {}}),
        ("SimulationService", {"interface": {}, "connector": {"commands": {}}}),
        (
            "SimulationService",
            {
                "interface": {
                    "attributes": [{"name": "a", "type": "string"}],
                    "actions": [{"name": "b", "parameters": [{"name": "c", "type": "number", "default": 0.5}]}],
                },
                "connector": {"commands": {"actions": [{"action": "b", "command": ["true"]}]}},
                "frontend": {"autoscaling": {}},
            },
        ),
        (
            "SimulationService",
            {"interface": {}, "connector": {"commands": {}}, "licence": {"licenceRef": {"name": "acme"}}},
        ),
        ("Licence", {"seats": 3}),
        ("WorkerPool", {"serviceRef": {"name": "s"}}),
        ("WorkerPool", {"serviceRef": {"name": "s"}, "placement": {}, "start": {}, "scaleIn": {}}),
        ("Worker", {"serviceRef": {"name": "s"}, "site": "x"}),
        ("ServiceAction", {"target": {"kind": "Worker", "name": "w"}, "action": "solve"}),
        (
            "Study",
            {
                "target": {"kind": "WorkerPool", "name": "p"},
                "action": "solve",
                "design": {"grid": {"axes": [{"name": "a", "values": [1]}]}},
            },
        ),
    )
]
ABSENT: Any = object()
Path_ = tuple[str | int, ...]


@dataclass(frozen=True)
class Mutant:
    """A value to put in the place of another, or in no place if it is ABSENT."""

    path: Path_
    value: Any

    def of(self, example: Json) -> Json:
        result = copy.deepcopy(example)
        place: Any = result
        for step in self.path[:-1]:
            place = place[step]
        if self.value is ABSENT:
            del place[self.path[-1]]
        else:
            place[self.path[-1]] = self.value
        return result

    def __str__(self) -> str:
        value = "absent" if self.value is ABSENT else repr(self.value)[:60]
        return f"{'.'.join(str(step) for step in self.path)} = {value}"


def values_to_try(schema: Json) -> Iterator[Any]:
    """Values just inside and just outside of what a schema permits, and of other types."""
    if schema.get("x-kubernetes-int-or-string"):
        yield from (True, -1, 0, 1.5, [], "", "1", "-1", "1.5", "1e3", "500m", "1.5Gi", "x y", "1" * 33)
    elif schema.get("type") == "string" and "format" not in schema:
        yield from (7, True, [], {}, "", "a", "A", "a-b", "a.b", "Ab c", "a\n", "http://x")
        yield from schema.get("enum", ())
        if "maxLength" in schema:
            yield from ("a" * schema["maxLength"], "a" * (schema["maxLength"] + 1))
    elif schema.get("type") == "string":
        yield from (
            True,
            "yesterday",
            "2026-01-02",
            "2026-01-02T03:04:05",
            "2026-01-02T03:04:05+01:00",
            "2026-13-02T03:04:05Z",
        )
    elif schema.get("type") == "integer":
        yield from ("7", True, 1.5, [], schema["minimum"] - 1, schema["minimum"])
        if "maximum" in schema:
            yield from (schema["maximum"], schema["maximum"] + 1)
    elif schema.get("type") == "boolean":
        yield from (True, False, "true", 1)
    elif schema.get("type") == "array":
        yield from ([], "x", {}, 1)
    elif schema.get("type") == "object":
        yield from ({}, "x", [], 1)


def mutants(schema: Json, value: Any, path: Path_) -> Iterator[Mutant]:
    yield from (Mutant(path, other) for other in values_to_try(schema))
    if schema.get("type") == "array":
        yield Mutant(path, [value[0]] * (schema["maxItems"] + 1))
        for index, item in enumerate(value):
            yield from mutants(schema["items"], item, (*path, index))
    for name, field in schema.get("properties", {}).items():
        if name in value:
            yield Mutant((*path, name), ABSENT)
            yield from mutants(field, value[name], (*path, name))


def covered(schema: Json, values: list[Any], path: str) -> Iterator[str]:
    """The fields that none of the values has."""
    if not values:
        yield path
    items = [item for value in values if isinstance(value, list) for item in value]
    if "items" in schema:
        yield from covered(schema["items"], items, f"{path}[]")
    for name, field in schema.get("properties", {}).items():
        below = [value[name] for value in values if isinstance(value, dict) and name in value]
        yield from covered(field, below, f"{path}.{name}")


def rules_of(schema: Json) -> Iterator[str]:
    yield from (rule["message"] for rule in schema.get("x-kubernetes-validations", ()))
    for child in (*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])):
        yield from rules_of(child)


def refused_by_the_server_alone(answer: Answer, kind: str) -> bool:
    messages = tuple(rules_of(SCHEMAS[kind]))
    causes = answer.body["details"]["causes"]
    return bool(causes) and all(
        cause["reason"] == "FieldValueDuplicate" or cause["message"].endswith(messages) for cause in causes
    )


def model_accepts(manifest: Json) -> bool:
    try:
        KINDS[manifest["kind"]].model.model_validate(manifest)
    except ValidationError:
        return False
    return True


def disagreements(example: Json, candidates: Iterator[Mutant], ask: Any) -> Iterator[str]:
    for mutant in candidates:
        manifest = mutant.of(example)
        answer: Answer = ask(manifest)
        accepts = model_accepts(manifest)
        if answer.accepted != accepts and not (accepts and refused_by_the_server_alone(answer, example["kind"])):
            yield f"{mutant}: the model {'accepts' if accepts else 'refuses'} it, the server says {answer.message!r}"


@pytest.fixture
def placed(api: Api, namespace: str) -> Any:
    """Puts an example into the test's namespace, or under a name of its own if it belongs to none."""

    def place(example: Json) -> Json:
        manifest = copy.deepcopy(example)
        if KINDS[manifest["kind"]].resource.namespaced:
            manifest["metadata"]["namespace"] = namespace
        else:
            manifest["metadata"]["name"] = f"{example['metadata']['name']}-{uuid.uuid4().hex[:8]}"
        return manifest

    return place


def name_of(example: Json) -> str:
    return f"{example['kind']}-{example['metadata']['name']}"


@pytest.mark.parametrize("kind", KINDS)
def test_the_examples_have_every_field(kind: str) -> None:
    examples = [example for example in FULL if example["kind"] == kind]
    for part in {"spec", "status"} & SCHEMAS[kind]["properties"].keys():
        values = [example[part] for example in examples if part in example]
        assert not list(covered(SCHEMAS[kind]["properties"][part], values, part))


@pytest.mark.parametrize("example", [example for example in (*MINIMAL, *FULL) if "spec" in example], ids=name_of)
def test_the_server_fills_in_the_defaults_of_the_model(api: Api, placed: Any, example: Json) -> None:
    given = placed(example)
    answer = api.create(given, dry_run=True)
    assert answer.accepted, answer.message
    model = KINDS[example["kind"]].model
    before: Any = model.model_validate(given)
    after: Any = model.model_validate(answer.body)
    assert answer.body["spec"] == before.spec.to_json()
    assert after.spec == before.spec


@pytest.mark.parametrize("example", [example for example in FULL if "spec" in example], ids=name_of)
def test_model_and_server_agree_on_every_field_of_the_spec(api: Api, placed: Any, example: Json) -> None:
    manifest = placed(example)
    schema = SCHEMAS[example["kind"]]["properties"]["spec"]

    def ask(mutant: Json) -> Answer:
        return api.create(mutant, dry_run=True)

    found = list(disagreements(manifest, mutants(schema, manifest["spec"], ("spec",)), ask))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("example", [example for example in FULL if "status" in example], ids=name_of)
def test_model_and_server_agree_on_every_field_of_the_status(api: Api, placed: Any, example: Json) -> None:
    manifest = placed(example)
    schema = SCHEMAS[example["kind"]]["properties"]["status"]
    created = api.create(manifest)
    assert created.accepted, created.message
    stored = {**created.body, "status": manifest["status"]}

    def ask(mutant: Json) -> Answer:
        return api.replace_status(mutant, dry_run=True)

    try:
        assert ask(stored).accepted
        found = list(disagreements(stored, mutants(schema, stored["status"], ("status",)), ask))
    finally:
        api.request("DELETE", build_path(manifest))
    assert not found, "\n".join(found)
