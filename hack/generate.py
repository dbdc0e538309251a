"""Write what is generated: crds/*.yaml, the chart's roles and its values' descriptions, and what the documents have.

PYTHONPATH=hack:bench .venv/bin/python hack/generate.py           # write the files
PYTHONPATH=hack:bench .venv/bin/python hack/generate.py --check   # write nothing; show a diff, exit with 1 when stale
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
from simyard.api.base import Json
from simyard.build import install
from simyard.build.crds import DEFINITIONS, custom_resource_definition
from simyard.build.rbac import Accounts
from simyard.build.reference import api_reference
from simyard_bench import results, sizing, tables
from simyard_bench.occi import rows

REPOSITORY = Path(__file__).resolve().parent.parent
CHART = "charts/simyard"
CRD_FOLDERS = ("crds", f"{CHART}/files/crds")
"""For kubectl, and for the chart: Helm warns of symbolic links and reads nothing outside of the chart."""
HEADER = "# Generated from operator/simyard by hack/generate.py (make generate). Do not edit.\n"


class _Dumper(yaml.SafeDumper):
    """Writes every value out: no anchors."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def to_yaml(manifest: Json) -> str:
    """A generated manifest as text."""
    return HEADER + _text(manifest)


def _text(manifest: Json) -> str:
    return yaml.dump(manifest, Dumper=_Dumper, sort_keys=False, width=118, allow_unicode=True)


def generated() -> dict[str, str]:
    """The text of each generated file, by its path in the repository."""
    files = {
        f"{folder}/{definition.resource.plural}.yaml": to_yaml(custom_resource_definition(definition))
        for folder in CRD_FOLDERS
        for definition in DEFINITIONS
    }
    prefix = '{{ include "simyard.fullname" . }}'
    accounts = Accounts(f"{prefix}-operator", f"{prefix}-apiserver", f"{prefix}-frontend")
    access = install.access("{{ .Release.Namespace }}", accounts)
    files["charts/simyard/files/access.yaml"] = HEADER + "---\n".join(map(_text, access))
    values = chart_values.read(REPOSITORY / CHART / "values.yaml")
    schema = (REPOSITORY / CHART / "values.schema.json").read_text()
    files[f"{CHART}/values.schema.json"] = chart_values.described(schema, values)
    table = chart_values.table(values)
    files[f"{CHART}/README.md"] = tables.inserted(REPOSITORY / CHART / "README.md", "values", table, "make generate")
    files["docs/api.md"] = api_reference()
    files["docs/cli.md"] = cli_reference.cli_reference()
    files["docs/images/architecture.svg"] = architecture_picture.picture()
    needs = sizing.sizing(results.load(results.FILE), rows.load(rows.FILE))
    files["docs/sizing.md"] = tables.inserted(REPOSITORY / "docs" / "sizing.md", "sizing", needs, "make generate")
    return files


def stale(root: Path, files: Mapping[str, str]) -> dict[str, str]:
    """A diff for each file that is not as it would be generated, by its path."""
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
    """Write the files, and remove definitions of kinds that are no more."""
    for path in _definitions(root):
        if str(path.relative_to(root)) not in files:
            path.unlink()
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def main(arguments: list[str] | None = None, root: Path = REPOSITORY) -> int:
    """Run the program; gives its exit code."""
    parser = argparse.ArgumentParser(description="Generate crds/, the chart's roles, and parts of docs/.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when files are stale")
    if not parser.parse_args(arguments).check:
        write(root, generated())
        return 0
    diffs = stale(root, generated())
    for diff in diffs.values():
        sys.stdout.write(diff)
    if diffs:
        sys.stderr.write(f"stale: {', '.join(diffs)}; run `make generate`\n")
    return 1 if diffs else 0


if __name__ == "__main__":
    sys.exit(main())
