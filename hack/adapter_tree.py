"""Write the adapter with all that it needs as one directory of pure Python: ``python3 DIRECTORY run ...`` runs it.

It holds no compiled modules (each library has a Python version of its own), so that it runs with the interpreter of any
image that is as new as the libraries want it. The image of Simyard carries it at /opt/simyard-adapter, from where an
init container brings it into images that have no adapter.

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


def closure(name: str) -> dict[str, Distribution]:
    """A distribution and all that it needs here, by name; extras left out."""
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


def write(directory: Path) -> None:
    """Write the tree; what was there before goes."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for name, found in closure(ROOT).items():
        package = name.replace("-", "_")
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise SystemExit(f"{package} is not a package here")
        shutil.copytree(spec.submodule_search_locations[0], directory / package, ignore=_IGNORED)
        metadata = directory / f"{package}-{found.version}.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text(found.read_text("METADATA") or "")
    (directory / "__main__.py").write_text(_MAIN)


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", type=Path)
    write(parser.parse_args().directory)


if __name__ == "__main__":
    main()
