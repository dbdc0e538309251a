# SPDX-License-Identifier: Apache-2.0
"""Every command in the documents has a test, and every reason of trouble has advice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import test_documents

import guides
from simyard.api.names import ConditionType

REASON_ROW = re.compile(r"^\| `(\w+)` \|.*\| ([^|]*) \|$", re.MULTILINE)


@pytest.mark.parametrize("document", guides.list_documents())
def test_somebody_runs_every_command(document: str) -> None:
    for block in guides.read_blocks(document):
        if not block.runners:
            assert document in test_documents.DOCUMENTS, f"nobody runs:\n{block.commands}"
        for runner in block.runners:
            path = guides.ROOT / runner
            assert path.exists(), f"there is no {runner} to run:\n{block.commands}"
            assert Path(document).name in path.read_text(), f"{runner} does not run {document}:\n{block.commands}"


def test_the_documents_that_are_run_have_commands() -> None:
    assert set(test_documents.DOCUMENTS) <= set(guides.list_documents())


def test_every_reason_of_trouble_has_advice_and_no_other() -> None:
    conditions = (guides.ROOT / "docs" / "conditions.md").read_text().partition("## Events")[0]
    troubles = {reason for reason, remedy in REASON_ROW.findall(conditions) if not remedy.startswith("nothing")}
    advised = [reason for reason, _ in REASON_ROW.findall((guides.ROOT / "docs" / "troubleshooting.md").read_text())]
    assert sorted(advised) == sorted(troubles)


def test_every_type_of_condition_has_its_place() -> None:
    headings = re.findall(r"^## \w+: (.*)$", (guides.ROOT / "docs" / "troubleshooting.md").read_text(), re.MULTILINE)
    assert {kind for heading in headings for kind in heading.split(", ")} == {kind.value for kind in ConditionType}
