# SPDX-License-Identifier: Apache-2.0
"""Write the packages and their layers as Markdown, for docs/architecture.md.

The layers come from the import contracts in pyproject.toml, which ``make lint`` enforces. The descriptions come from
the first paragraph of each package's docstring. Every package must have a layer, and every layer a package, so the page
omits no package.
"""

from __future__ import annotations

import ast
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ROOTS = {
    "simyard": "operator/simyard",
    "simyard_sites": "adapters/sites/simyard_sites",
    "simyard_adapter": "adapters/service/simyard_adapter",
    "simyard_client": "adapters/client/simyard_client",
    "simyard_simulators": "adapters/simulators/simyard_simulators",
}


class LayersError(Exception):
    """A disagreement between the import contracts and the packages."""


@dataclass(frozen=True, slots=True)
class Rule:
    """An import contract of the type ``forbidden``.

    Attributes:
        name: the sentence that names the contract.
        sources: the packages that obey the contract.
        forbidden: the packages that the sources do not import.
        direct: the contract permits indirect imports.
    """

    name: str
    sources: tuple[str, ...]
    forbidden: tuple[str, ...]
    direct: bool


@dataclass(frozen=True, slots=True)
class Contracts:
    """The import contracts of a workspace: its layers from top to bottom, and the further rules."""

    layers: tuple[tuple[str, ...], ...]
    rules: tuple[Rule, ...]


def read_contracts(pyproject: Path) -> Contracts:
    """Return the import contracts of a ``pyproject.toml``.

    Raises:
        LayersError: the file has not exactly one contract of the type ``layers``.
    """
    contracts: list[dict[str, Any]] = tomllib.loads(pyproject.read_text())["tool"]["importlinter"]["contracts"]
    layered = [item for item in contracts if item["type"] == "layers"]
    if len(layered) != 1:
        raise LayersError(f"{pyproject}: tool.importlinter.contracts needs exactly one contract of the type layers")
    layers = tuple(tuple(name.strip() for name in layer.split("|")) for layer in layered[0]["layers"])
    rules = tuple(
        Rule(
            item["name"],
            tuple(item["source_modules"]),
            tuple(item["forbidden_modules"]),
            bool(item.get("allow_indirect_imports")),
        )
        for item in contracts
        if item["type"] == "forbidden"
    )
    return Contracts(layers, rules)


def format_layers(root: Path, contracts: Contracts) -> str:
    """Return the table of the packages, the chain of imports, and the further rules.

    Raises:
        LayersError: the packages in ``operator/simyard`` differ from the packages of the layers, or one has no
            docstring.
    """
    _check(root / _ROOTS["simyard"], contracts)
    rows = ["| layer | folder | contents |", "|---|---|---|"]
    for number, layer in enumerate(contracts.layers, 1):
        for name in layer:
            folder = f"{_ROOTS['simyard']}/{name}"
            rows.append(f"| {number} | `{folder}` | {_summary(root / folder)} |")
    others = [folder for name, folder in _ROOTS.items() if name != "simyard"]
    rows += [f"| | `{folder}` | {_summary(root / folder)} |" for folder in others]
    chain = " → ".join(", ".join(f"`{name}`" for name in layer) for layer in contracts.layers)
    parts = [
        "\n".join(rows),
        f"A package imports only packages of the layers below it, and none of its own layer:\n\n{chain}",
        "Further rules:",
        "\n".join(_rule_line(rule) for rule in contracts.rules),
    ]
    return "\n\n".join(parts) + "\n"


def _check(folder: Path, contracts: Contracts) -> None:
    present = {path.parent.name for path in folder.glob("*/__init__.py")}
    named = {name for layer in contracts.layers for name in layer}
    if present != named:
        raise LayersError(
            f"pyproject.toml: the layers of tool.importlinter.contracts and the packages in {folder} differ: "
            f"{', '.join(sorted(present ^ named))}. Add each package to a layer, or remove its name"
        )


def _rule_line(rule: Rule) -> str:
    sources, forbidden = (", ".join(f"`{name}`" for name in names) for names in (rule.sources, rule.forbidden))
    return f"- {rule.name}: {sources} must not import {forbidden}{' directly' if rule.direct else ''}."


def _summary(package: Path) -> str:
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text()))
    if not docstring:
        raise LayersError(f"{package}/__init__.py needs a docstring: docs/architecture.md shows its first paragraph")
    first = " ".join(docstring.partition("\n\n")[0].split())
    return first.replace("``", "`").replace("|", "\\|").removesuffix(".")
