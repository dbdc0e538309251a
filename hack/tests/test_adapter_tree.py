# SPDX-License-Identifier: Apache-2.0
"""The adapter as a directory runs without installed packages."""

import subprocess
import sys
from pathlib import Path

import adapter_tree


def test_the_tree_runs_alone_and_holds_nothing_compiled(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    adapter_tree.write_tree(tree)
    assert not [path for path in tree.rglob("*") if path.suffix in {".so", ".pyd", ".pyc"}]
    alone = [sys.executable, "-I", "-S", str(tree)]
    version = subprocess.run([*alone, "--version"], capture_output=True, text=True, check=True)
    assert version.stdout.strip()
    bootstrap = tmp_path / "absent.json"
    run = subprocess.run([*alone, "run", "--bootstrap", str(bootstrap)], capture_output=True, text=True, check=False)
    assert run.returncode == 3
    assert str(bootstrap) in run.stderr
