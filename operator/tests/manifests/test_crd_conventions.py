# SPDX-License-Identifier: Apache-2.0
"""The generated definitions keep to the API conventions; everything in them is bounded and explained."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from simyard.api import names
from simyard.api.base import Json
from simyard.api.names import ConditionType
from simyard.manifests.crds import DEFINITIONS, Definition, build_crd

RECORDS = {names.USAGES}
"""Kinds in which the platform writes down what happened: nothing is asked for, so there is nothing to wait for."""
FACTS = {names.OCCI_MIXINS, names.OCCI_LINKS, names.STUDY_RECORDS}
"""Kinds that are true as soon as they are stored: nothing is observed of them."""
LOWER_CASE_ENUMS = {"guests", "profile", "type"}
"""`process|shared` and the emulated clouds' profiles have names of their own, the types of declared values JSON's."""


def schema_of(definition: Definition) -> Json:
    version = build_crd(definition)["spec"]["versions"][0]
    schema: Json = version["schema"]["openAPIV3Schema"]
    return schema


def walk(node: Json, path: str) -> Iterator[tuple[str, Json]]:
    yield path, node
    for name, field in node.get("properties", {}).items():
        yield from walk(field, f"{path}.{name}")
    if "items" in node:
        yield from walk(node["items"], f"{path}[]")


NODES = [
    (f"{definition.resource.kind}{path}", node)
    for definition in DEFINITIONS
    for part in ("spec", "status")
    if part in schema_of(definition)["properties"]
    for path, node in walk(schema_of(definition)["properties"][part], f".{part}")
]
FIELDS = [(path, node) for path, node in NODES if not path.endswith("[]")]


def offenders(nodes: list[tuple[str, Json]], *types: str) -> list[tuple[str, Json]]:
    return [(path, node) for path, node in nodes if not types or node.get("type") in types]


def test_no_floats_and_no_nulls() -> None:
    assert not offenders(NODES, "number")
    assert not [path for path, node in NODES if node.get("nullable") or "anyOf" in node or "title" in node]


def test_every_field_is_described_in_sentences() -> None:
    assert not [path for path, node in FIELDS if not re.fullmatch(r"\S.*[.)]", node.get("description", ""))]


def test_field_names_are_camel_case_and_say_their_unit_in_full() -> None:
    names = {path: path.split(".")[-1] for path, _ in FIELDS}
    assert not [path for path, name in names.items() if not re.fullmatch(r"[a-z][a-zA-Z0-9]*", name)]
    assert not [path for path, name in names.items() if re.search(r"(Sec|Secs|Ms|Millisecs|Pct|MB|MiB)$", name)]


def test_strings_lists_and_maps_are_bounded() -> None:
    for path, node in NODES:
        if node.get("type") == "string" and node.get("format") != "date-time" and "enum" not in node:
            exact = re.fullmatch(r"\^\[[^]]+\]\{\d+\}\$", node.get("pattern", ""))
            assert "maxLength" in node or exact, path
        if node.get("type") == "array":
            assert "maxItems" in node, path
        if node.get("type") == "object" and "properties" not in node:
            assert "additionalProperties" in node or node.get("x-kubernetes-preserve-unknown-fields") is True, path
            assert "maxProperties" in node, path


def test_integers_have_a_format_and_are_bounded_by_what_it_holds() -> None:
    for path, node in offenders(NODES, "integer"):
        assert "minimum" in node, path
        bounded = "maximum" in node and node["maximum"] < 2**31
        assert node["format"] == ("int32" if bounded else "int64"), path


def test_lists_say_how_they_are_merged() -> None:
    for path, node in offenders(NODES, "array"):
        kind = node.get("x-kubernetes-list-type")
        assert kind in ("map", "set", "atomic"), path
        if kind == "map":
            keys = set(node["x-kubernetes-list-map-keys"])
            assert keys <= set(node["items"]["required"]), path


def test_values_of_enums_are_camel_case() -> None:
    for path, node in NODES:
        if path.split(".")[-1] not in LOWER_CASE_ENUMS:
            assert all(re.fullmatch(r"[A-Z][A-Za-z]*", value) for value in node.get("enum", ())), path


def test_a_status_has_no_defaults() -> None:
    assert not [path for path, node in NODES if ".status" in path and "default" in node]


def test_rules_have_messages() -> None:
    for path, node in NODES:
        for rule in node.get("x-kubernetes-validations", ()):
            assert rule["message"], path


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition.resource.kind)
def test_each_kind_that_is_reconciled_has_conditions_and_a_status_of_its_own(definition: Definition) -> None:
    version = build_crd(definition)["spec"]["versions"][0]
    if definition.resource in FACTS:
        assert version["subresources"] == {}
        assert "status" not in schema_of(definition)["properties"]
        return
    assert version["subresources"]["status"] == {}
    if "spec" not in schema_of(definition)["properties"]:
        assert definition.resource in RECORDS
        return
    status = schema_of(definition)["properties"]["status"]["properties"]
    assert status["observedGeneration"]["format"] == "int64"
    conditions = status["conditions"]
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    assert set(conditions["items"]["required"]) == {"type", "status", "reason", "lastTransitionTime"}


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition.resource.kind)
def test_columns_and_field_selectors_lead_to_fields(definition: Definition) -> None:
    schema = schema_of(definition)
    for column in definition.columns:
        if column.path.startswith(".metadata."):
            continue
        condition = re.fullmatch(r'\.status\.conditions\[\?\(@\.type=="(\w+)"\)\]\.(status|reason)', column.path)
        if condition:
            assert condition[1] in set(ConditionType)
        else:
            assert field_at(schema, column.path)["type"] == column.type, column
    for path in definition.fields:
        assert field_at(schema, path)["type"] == "string"


def field_at(schema: Json, path: str) -> Json:
    for step in path.removeprefix(".").split("."):
        name, index, _ = step.partition("[")
        schema = schema["properties"][name]
        schema = schema["items"] if index else schema
    return schema


def test_short_names_differ() -> None:
    names = [definition.short_name for definition in DEFINITIONS]
    assert len(set(names)) == len(names)


def test_decimals_fit_into_floats() -> None:
    patterns = {node["pattern"] for _, node in NODES if "pattern" in node and "[eE]" in node["pattern"]}
    assert patterns
    for pattern in patterns:
        assert all(re.match(pattern, number) for number in ("1", "-0.5", "1e3", "1E-03", f"{'9' * 27}e+199"))
        assert not any(re.match(pattern, number) for number in ("1e200", "1e400", "1e-999999", "1e0300"))
