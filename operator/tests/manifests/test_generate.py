# SPDX-License-Identifier: Apache-2.0
"""hack/generate.py writes what the models say, and notices files that say something else."""

from __future__ import annotations

from pathlib import Path

import pytest

import generate


def test_the_files_in_the_repository_are_true() -> None:
    assert not generate.diff_files(generate.REPOSITORY, generate.generate_files())


def test_check_shows_what_differs_and_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main([], tmp_path) == 0
    assert generate.main(["--check"], tmp_path) == 0
    edited = tmp_path / "crds" / "workers.yaml"
    edited.write_text(edited.read_text().replace("wkr", "worker"))
    (tmp_path / "crds" / "old.yaml").write_text("of a kind that is no more\n")
    (tmp_path / "docs" / "api.md").unlink()

    assert generate.main(["--check"], tmp_path) == 1

    output = capsys.readouterr()
    assert "-        - worker\n+        - wkr\n" in output.out or "-    - worker\n+    - wkr\n" in output.out
    assert all(name in output.err for name in ("crds/workers.yaml", "crds/old.yaml", "docs/api.md"))
    assert "worker" in edited.read_text()


def test_writing_removes_definitions_of_kinds_that_are_no_more(tmp_path: Path) -> None:
    generate.main([], tmp_path)
    (tmp_path / "crds" / "old.yaml").write_text("of a kind that is no more\n")
    generate.main([], tmp_path)
    assert not (tmp_path / "crds" / "old.yaml").exists()
