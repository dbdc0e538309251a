# SPDX-License-Identifier: Apache-2.0
"""Fail if a Python file has more lines than CONTRIBUTING.md permits.

``make lint`` runs this check. It reads the files that git tracks, and new files that git does not ignore. It does not
count the licence header.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

MAX_LINES = 400
_LICENCE_HEADER = b"# SPDX-License-Identifier: Apache-2.0"
ROOT = Path(__file__).parents[1]


def find_long_files(root: Path, files: list[str], limit: int = MAX_LINES) -> dict[str, int]:
    """Return the number of lines of each file that has more than ``limit`` lines."""
    counts = {name: _count_lines(root / name) for name in files if (root / name).is_file()}
    return {name: count for name, count in counts.items() if count > limit}


def _count_lines(path: Path) -> int:
    lines = path.read_bytes().splitlines()
    return len(lines) - lines[:2].count(_LICENCE_HEADER)


def list_python_files(root: Path) -> list[str]:
    """Return the Python files of a working tree, as paths below ``root``."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.py"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    return sorted(set(filter(None, done.stdout.split("\0"))))


def main() -> int:
    """Print each file that is too long; return the exit status."""
    found = find_long_files(ROOT, list_python_files(ROOT))
    for name, count in found.items():
        print(f"{name}: {count} lines; at most {MAX_LINES} are permitted. Move one subject to a module of its own")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
