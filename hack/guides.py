"""The commands of the documents, and who runs them.

A block of ``sh`` is run by ``hack/tests/test_documents.py``, or by the files that a comment just before it names::

    <!-- run: e2e/cluster/test_guides.py -->

``hack/tests/test_document_commands.py`` demands that each of them does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_BLOCK = re.compile(r"^(?:<!-- run: ([^\n]*?) -->\n)?```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """Commands that follow each other in a document.

    Attributes:
        runners: the files that run them, relative to the repository; none where no comment names any.
        commands: as a shell takes them.
    """

    runners: tuple[str, ...]
    commands: str


def blocks(document: str) -> list[Block]:
    """The blocks of a document (its path in the repository), in their order."""
    found = _BLOCK.findall((ROOT / document).read_text())
    return [Block(tuple(runners.split()), commands) for runners, commands in found]


def commands(document: str, runner: str = "") -> str:
    """What one runner has to run of a document, for one shell, as a reader has it; without runner, what has no comment.

    Raises:
        ValueError: it has nothing to run there.
    """
    parts = [block.commands for block in blocks(document) if runner in (block.runners or ("",))]
    if not parts:
        raise ValueError(f"{document} has no commands for {runner or 'the tests of documents'}")
    return "\n".join(parts)


def documents() -> list[str]:
    """All documents of the repository with commands."""
    paths = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("examples/**/*.md"))]
    return [name for name in (str(path.relative_to(ROOT)) for path in paths) if blocks(name)]
