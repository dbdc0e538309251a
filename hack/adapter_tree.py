# SPDX-License-Identifier: Apache-2.0
"""Write the adapter and its dependencies as one directory of pure Python: ``python3 DIRECTORY run ...`` runs it.

The directory contains no compiled modules (each library also works in pure Python), so every interpreter that is new
enough for the libraries can run it. The image of Simyard contains the directory at /opt/simyard-adapter; an init
container copies it into pods whose image has no adapter.

    python hack/adapter_tree.py DIRECTORY    # from the packages that this interpreter sees
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import shutil
from importlib.metadata import Distribution, distribution
from pathlib import Path

ROOT = "simyard-adapter"
_MAIN = '''"""The adapter as a directory."""

import sys

from simyard_adapter.__main__ import main

sys.exit(main())
'''
_IGNORED = shutil.ignore_patterns("*.so", "*.pyd", "*.pyx", "*.pyc", "__pycache__", "tests")


def find_distributions(name: str) -> dict[str, Distribution]:
    """Return a distribution and its dependencies by name, without extras."""
    found: dict[str, Distribution] = {}
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current in found:
            continue
        found[current] = distribution(current)
        for requirement in found[current].requires or ():
            needed, _, marker = requirement.partition(";")
            match = re.match(r"[A-Za-z0-9._-]+", needed)
            if match and not marker:
                waiting.append(match.group().lower())
    return found


def write_tree(directory: Path) -> None:
    """Write the tree and replace an earlier one."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for name, found in find_distributions(ROOT).items():
        package = name.replace("-", "_")
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise SystemExit(f"{package} is not an installed package with a directory: install {name} first")
        shutil.copytree(spec.submodule_search_locations[0], directory / package, ignore=_IGNORED)
        metadata = directory / f"{package}-{found.version}.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text(found.read_text("METADATA") or "")
    (directory / "__main__.py").write_text(_MAIN)


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", type=Path)
    write_tree(parser.parse_args().directory)


if __name__ == "__main__":
    main()
