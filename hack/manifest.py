#!/usr/bin/env python3
"""manifest.py [--check] EXAMPLE...: completes a vendor's manifest from the connector's class.

EXAMPLE is a directory with ``service.in.yaml``: a SimulationService without ``spec.interface`` and
``spec.connector.files``, whose ``spec.connector.python.class`` is MODULE:CLASS with MODULE.py beside it. Both fields
are filled in, the interface from what the class declares, and the whole is written to ``service.yaml``. With
``--check`` nothing is written; the exit code is 1 when a ``service.yaml`` is not what it would be.
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
    """The complete manifest of an example, as YAML.

    Raises:
        StartError: the class cannot be loaded; the message says why.
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
    """Writes strings of several lines as they are."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # Kubernetes reads a plain N as false, as YAML 1.1 has it; PyYAML does not, and so would not quote newton's symbol.
    style = "|" if "\n" in text else "'" if text in ("y", "Y", "n", "N") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def main(arguments: list[str]) -> int:
    """Run the command; returns its exit code."""
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
        print(f"out of date: {', '.join(map(str, stale))}; run hack/manifest.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
