# SPDX-License-Identifier: Apache-2.0
"""The status 409 has one place in the code, and one in the documentation."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from simyard.occi.conflicts import ConflictCause, OcciConflictError

ROOT = Path(__file__).resolve().parents[3]


def test_a_conflict_has_status_409_and_a_cause() -> None:
    error = OcciConflictError(ConflictCause.ID_IN_USE, "id a: another entity has it; choose another id")
    assert (error.status, error.cause) == (409, "id in use")


def test_no_other_code_makes_a_409() -> None:
    makers = {
        path.name
        for path in (ROOT / "operator/simyard").rglob("*.py")
        if any(isinstance(node, ast.Constant) and node.value == 409 for node in ast.walk(ast.parse(path.read_text())))
        if "OcciError" in path.read_text()
    }
    assert makers == {"conflicts.py"}


def test_the_documentation_lists_all_causes() -> None:
    section = (ROOT / "docs/occi.md").read_text().partition("### Conflicts")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([a-z ]+) \|", section, re.MULTILINE)
    assert rows == ["cause", *ConflictCause]


def test_every_cause_occurs() -> None:
    source = "".join(path.read_text() for path in (ROOT / "operator/simyard").rglob("*.py"))
    assert [cause for cause in ConflictCause if f"ConflictCause.{cause.name}" not in source] == []
