# SPDX-License-Identifier: Apache-2.0
"""Find the commands in the documents, and the tests that run them.

``hack/tests/test_documents.py`` runs a block of ``sh``, unless a comment right before the block names other files::

    <!-- run: e2e/cluster/test_guides.py -->

``hack/tests/test_document_commands.py`` fails when a block has no test that runs it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_BLOCK = re.compile(r"^(?:<!-- run: ([^\n]*?) -->\n)?```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """Commands that follow each other in a document.

    Attributes:
        runners: the files that run the commands, relative to the repository; empty without a comment.
        commands: a script for a shell.
    """

    runners: tuple[str, ...]
    commands: str


def read_blocks(document: str) -> list[Block]:
    """Return the blocks of a document (its path in the repository) in their order."""
    found = _BLOCK.findall((ROOT / document).read_text())
    return [Block(tuple(runners.split()), commands) for runners, commands in found]


def collect_commands(document: str, runner: str = "") -> str:
    """Return the commands of a document that ``runner`` runs, as one script; "" selects blocks without a comment.

    Raises:
        ValueError: the document has no commands for this runner.
    """
    parts = [block.commands for block in read_blocks(document) if runner in (block.runners or ("",))]
    if not parts:
        raise ValueError(f"{document} has no commands for {runner or 'hack/tests/test_documents.py'}")
    return "\n".join(parts)


def collect_python(document: str) -> str:
    """Return the blocks of ``python`` of a document as one program."""
    return "\n".join(_PYTHON.findall((ROOT / document).read_text()))


def list_documents() -> list[str]:
    """Return the paths of all documents of the repository that have commands."""
    paths = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("examples/**/*.md"))]
    return [name for name in (str(path.relative_to(ROOT)) for path in paths) if read_blocks(name)]
