# SPDX-License-Identifier: Apache-2.0
"""docs/conditions.md explains every reason that users can meet, and no other; no remedy changes an immutable field."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from simyard.api.base import Json
from simyard.api.names import Reason
from simyard.manifests.crds import DEFINITIONS
from simyard.manifests.schema import build_schema
from simyard_adapter import wire

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "conditions.md"
NOT_OF_ACTIONS = {
    wire.ErrorReason.UNKNOWN_ATTRIBUTE,
    wire.ErrorReason.DRAINING,
    wire.ErrorReason.BUSY,
    wire.ErrorReason.INVALID_REQUEST,
}
"""A ServiceAction never fails with these: they are answers to other requests, or it is given to another worker."""


def test_every_reason_is_explained() -> None:
    explained = set(re.findall(r"^\| `(\w+)` \|", DOCUMENT.read_text(), re.MULTILINE))
    reasons = {reason.value for reason in Reason} | {
        reason.value for reason in wire.ErrorReason if reason not in NOT_OF_ACTIONS
    }
    assert explained == reasons


def immutable(schema: Json, path: str) -> Iterator[str]:
    """The paths of fields whose rules compare them with what they were."""
    for rule in schema.get("x-kubernetes-validations", ()):
        text = rule["rule"]
        if text == "self == oldSelf":
            yield path
        elif "oldSelf" in text and "==" in text and "fieldPath" in rule:
            yield path + rule["fieldPath"]
    for name, field in schema.get("properties", {}).items():
        yield from immutable(field, f"{path}.{name}")


IMMUTABLE = {
    path
    for definition in DEFINITIONS
    if "spec" in (schema := build_schema(definition.model))["properties"]
    for path in immutable(schema["properties"]["spec"], "spec")
}
CHANGE = re.compile(r"\b(correct|change|set|raise|lower|name another|use another|edit)\b", re.IGNORECASE)
POSSIBLE = re.compile(r"immutable|again|another CloudSite|new ", re.IGNORECASE)


def impossible(remedy: str) -> list[str]:
    """The immutable fields that a text tells to change."""
    if not CHANGE.search(remedy) or POSSIBLE.search(remedy):
        return []
    return [path for path in IMMUTABLE if re.search(rf"{re.escape(path)}(?![\w/])", remedy)]


def test_the_fields_that_cannot_change_are_known() -> None:
    assert {
        "spec.serviceRef", "spec.site", "spec.target", "spec.action", "spec.parameters", "spec.timeoutSeconds",
        "spec.provider.pod.namespace", "spec.provider.openNebula.endpoint",
    } <= IMMUTABLE  # fmt: skip
    assert impossible("publish it, or correct `spec.serviceRef.name`") == ["spec.serviceRef"]


@pytest.mark.parametrize("page", ["conditions.md", "troubleshooting.md"])
def test_no_row_of_the_documentation_tells_to_change_an_immutable_field(page: str) -> None:
    rows = [line.split("|")[-2] for line in (ROOT / "docs" / page).read_text().splitlines() if line.startswith("| `")]
    assert rows
    assert not [(row, fields) for row in rows if (fields := impossible(row))]


def test_no_message_tells_to_change_an_immutable_field() -> None:
    texts = [
        node.value
        for folder in ("operator/simyard", "adapters/sites/simyard_sites")
        for file in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" not in node.value
    ]
    assert not [(text, fields) for text in texts if (fields := impossible(text))]
