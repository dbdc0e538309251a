# SPDX-License-Identifier: Apache-2.0
"""The table of packages in docs/architecture.md follows the import contracts and the packages' docstrings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import layers

ROOT = Path(__file__).resolve().parents[2]
CONTRACTS = """
[[tool.importlinter.contracts]]
name = "Layers"
type = "layers"
layers = ["top", "left | right"]

[[tool.importlinter.contracts]]
name = "The right side is pure"
type = "forbidden"
source_modules = ["simyard.right"]
forbidden_modules = ["asyncio"]
allow_indirect_imports = true
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text(CONTRACTS)
    for name, docstring in {"top": "The ``top``.", "left": "Reads a|b.\n\nMore.", "right": "Writes\nlines."}.items():
        package(tmp_path / "operator/simyard" / name, docstring)
    for folder in (
        "adapters/sites/simyard_sites",
        "adapters/service/simyard_adapter",
        "adapters/client/simyard_client",
        "adapters/simulators/simyard_simulators",
    ):
        package(tmp_path / folder, "A distribution.")
    return tmp_path


def package(folder: Path, docstring: str) -> None:
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(f'"""{docstring}"""\n')


def text(root: Path) -> str:
    return layers.format_layers(root, layers.read_contracts(root / "pyproject.toml"))


def test_packages_stand_in_the_order_of_their_layers(root: Path) -> None:
    rows = [line for line in text(root).splitlines() if line.startswith("| ")]
    assert rows[1:4] == [
        "| 1 | `operator/simyard/top` | The `top` |",
        "| 2 | `operator/simyard/left` | Reads a\\|b |",
        "| 2 | `operator/simyard/right` | Writes lines |",
    ]


def test_the_chain_and_the_rules_are_those_of_the_contracts(root: Path) -> None:
    said = text(root)
    assert "\n`top` → `left`, `right`\n" in said
    assert "\n- The right side is pure: `simyard.right` must not import `asyncio` directly.\n" in said


def test_a_package_without_a_layer_is_an_error(root: Path) -> None:
    package(root / "operator/simyard/new", "New.")
    with pytest.raises(layers.LayersError, match=r"differ: new\. Add"):
        text(root)


def test_a_layer_without_a_package_is_an_error(root: Path) -> None:
    (root / "operator/simyard/left/__init__.py").unlink()
    with pytest.raises(layers.LayersError, match="differ: left"):
        text(root)


def test_a_package_without_a_docstring_is_an_error(root: Path) -> None:
    (root / "operator/simyard/left/__init__.py").write_text("")
    with pytest.raises(layers.LayersError, match=r"left/__init__\.py needs a docstring"):
        text(root)


def test_the_page_names_every_package_of_the_control_plane() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    for path in (ROOT / "operator/simyard").glob("*/__init__.py"):
        assert f"| `operator/simyard/{path.parent.name}` |" in page


def test_each_decision_on_the_page_has_its_module() -> None:
    section = (
        (ROOT / "docs/architecture.md").read_text().partition("## Where decisions are made")[2].partition("\n## ")[0]
    )
    modules = re.findall(r"\| `([a-z_/]+\.py)` \|", section)
    assert modules
    assert [path for path in modules if not (ROOT / "operator/simyard" / path).is_file()] == []
