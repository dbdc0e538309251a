# SPDX-License-Identifier: Apache-2.0
"""Write the generated files: crds/*.yaml, roles and descriptions of the chart, generated parts of the documentation.

PYTHONPATH=hack:bench .venv/bin/python hack/generate.py           # write the files
PYTHONPATH=hack:bench .venv/bin/python hack/generate.py --check   # show a diff, exit with 1 when a file is stale
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Mapping
from pathlib import Path

import yaml

import architecture_picture
import chart_values
import cli_reference
import client_copies
import layers
from simyard.api.base import Json
from simyard.manifests import install
from simyard.manifests.crds import DEFINITIONS, build_crd
from simyard.manifests.rbac import Accounts
from simyard.manifests.reference import build_api_reference
from simyard_bench import results, sizing, tables
from simyard_bench.files import rows as file_rows
from simyard_bench.files import sizing as file_sizing
from simyard_bench.occi import rows

REPOSITORY = Path(__file__).resolve().parent.parent
CHART = "charts/simyard"
CRD_FOLDERS = ("crds", f"{CHART}/files/crds")
"""Folders of the definitions: one for kubectl, one inside the chart (Helm warns of symbolic links)."""
HEADER = "# Generated from operator/simyard by hack/generate.py (make generate). Do not edit.\n"


class _Dumper(yaml.SafeDumper):
    """A YAML writer without anchors: it repeats a value that occurs twice."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def to_yaml(manifest: Json) -> str:
    """Return a generated manifest as YAML, below the header of generated files."""
    return HEADER + _text(manifest)


def _text(manifest: Json) -> str:
    return yaml.dump(manifest, Dumper=_Dumper, sort_keys=False, width=118, allow_unicode=True)


def generate_files() -> dict[str, str]:
    """Return the text of each generated file by its path in the repository."""
    files = {
        f"{folder}/{definition.resource.plural}.yaml": to_yaml(build_crd(definition))
        for folder in CRD_FOLDERS
        for definition in DEFINITIONS
    }
    prefix = '{{ include "simyard.fullname" . }}'
    accounts = Accounts(*(f"{prefix}-{part}" for part in ("operator", "apiserver", "frontend", "optimiser")))
    access = install.build_access("{{ .Release.Namespace }}", accounts)
    files["charts/simyard/files/access.yaml"] = HEADER + "---\n".join(map(_text, access))
    values = chart_values.read(REPOSITORY / CHART / "values.yaml")
    schema = (REPOSITORY / CHART / "values.schema.json").read_text()
    files[f"{CHART}/values.schema.json"] = chart_values.add_descriptions(schema, values)
    table = chart_values.render_table(values)
    files[f"{CHART}/README.md"] = tables.replace_section(
        REPOSITORY / CHART / "README.md", "values", table, "make generate"
    )
    files["docs/api.md"] = build_api_reference()
    files["docs/cli.md"] = cli_reference.render()
    packages = layers.format_layers(REPOSITORY, layers.read_contracts(REPOSITORY / "pyproject.toml"))
    page = REPOSITORY / "docs" / "architecture.md"
    files["docs/architecture.md"] = tables.replace_section(page, "layers", packages, "make generate")
    files["docs/images/architecture.svg"] = architecture_picture.draw()
    needs = sizing.sizing(results.load(results.FILE), rows.load(rows.FILE))
    needs += f"\n## The file store\n\n{file_sizing.sizing(file_rows.load(file_rows.FILE))}"
    page = REPOSITORY / "docs" / "sizing.md"
    files["docs/sizing.md"] = tables.replace_section(page, "sizing", needs, "make generate")
    files |= client_copies.make_copies(REPOSITORY)
    return files


def diff_files(root: Path, files: Mapping[str, str]) -> dict[str, str]:
    """Return a diff by path for each file that differs from its generated text."""
    wanted: dict[str, str] = {str(path.relative_to(root)): "" for path in _definitions(root)}
    wanted.update(files)
    diffs: dict[str, str] = {}
    for name, text in wanted.items():
        path = root / name
        present = path.read_text() if path.exists() else ""
        if present != text:
            lines = (present.splitlines(keepends=True), text.splitlines(keepends=True))
            diffs[name] = "".join(difflib.unified_diff(*lines, f"{name} (present)", f"{name} (generated)"))
    return diffs


def _definitions(root: Path) -> list[Path]:
    return [path for folder in CRD_FOLDERS for path in (root / folder).glob("*.yaml")]


def write(root: Path, files: Mapping[str, str]) -> None:
    """Write the files and remove the definitions of kinds that no longer exist."""
    for path in _definitions(root):
        if str(path.relative_to(root)) not in files:
            path.unlink()
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def main(arguments: list[str] | None = None, root: Path = REPOSITORY) -> int:
    """Run the program and return its exit code."""
    parser = argparse.ArgumentParser(description="Generate crds/, the chart's roles, and parts of docs/.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is stale")
    if not parser.parse_args(arguments).check:
        write(root, generate_files())
        return 0
    diffs = diff_files(root, generate_files())
    for diff in diffs.values():
        sys.stdout.write(diff)
    if diffs:
        sys.stderr.write(f"stale: {', '.join(diffs)}; run `make generate`\n")
    return 1 if diffs else 0


if __name__ == "__main__":
    sys.exit(main())
