#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Complete the manifest of a vendor from the class of the connector: manifest.py [--check] EXAMPLE...

EXAMPLE is a directory with ``service.in.yaml``: a SimulationService without ``spec.interface`` and
``spec.connector.files``, whose ``spec.connector.python.class`` is MODULE:CLASS with MODULE.py beside it. The program
fills in both fields, the interface from the declarations of the class, and writes the result to ``service.yaml``. With
``--check`` it writes nothing and exits with 1 when a ``service.yaml`` is out of date.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml

from simyard_adapter.python_backend import load_class

SOURCE = "service.in.yaml"
TARGET = "service.yaml"


def render(directory: Path) -> str:
    """Return the complete manifest of an example as YAML.

    Raises:
        StartError: the class cannot be loaded; the message gives the reason.
    """
    service: dict[str, Any] = yaml.safe_load((directory / SOURCE).read_text())
    spec = service["spec"]
    connector = spec.pop("connector")
    reference = connector["python"]["class"]
    path = reference.partition(":")[0] + ".py"
    connector["files"] = [{"path": path, "content": (directory / path).read_text()}]
    spec.update(interface=load_class(reference, directory).interface.to_json(), connector=connector)
    text = yaml.dump(service, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
    return f"# Made from {SOURCE} and {path} by hack/manifest.py: change those, not this.\n{text}"


class _Dumper(yaml.SafeDumper):
    """A YAML writer that keeps the lines of a text."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # Kubernetes reads a plain N as false (YAML 1.1). PyYAML does not, so it would not quote the symbol of the newton.
    style = "|" if "\n" in text else "'" if text in ("y", "Y", "n", "N") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def main(arguments: list[str]) -> int:
    """Run the program and return its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("examples", nargs="+", type=Path, metavar="EXAMPLE")
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    options = parser.parse_args(arguments)
    stale = []
    for directory in options.examples:
        target = directory / TARGET
        text = render(directory)
        if target.exists() and target.read_text() == text:
            continue
        stale.append(target)
        if not options.check:
            target.write_text(text)
    if options.check and stale:
        print(f"out of date: {', '.join(map(str, stale))}; run `make generate`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
