# SPDX-License-Identifier: Apache-2.0
"""Copies of the adapter's transfers of files, for the Python client.

Workers and users move files with the same code, which needs the standard library only. The client cannot depend on the
distribution of the adapter, whose client of AMQP it does not need. The distribution of the client therefore contains
copies of these modules, which ``make generate`` writes.
"""

from __future__ import annotations

import re
from pathlib import Path

SOURCE = "adapters/service/simyard_adapter"
TARGET = "adapters/client/simyard_client/transfer"
MODULES = ("file_values", "uploads")
"""The modules that the client uses; the modules that these import are copied, too."""
_IMPORT = re.compile(r"^from simyard_adapter\.(\w+) import", re.MULTILINE)
_LICENCE = "# SPDX-License-Identifier: Apache-2.0\n"
_NOTE = f"# Copied from {SOURCE} by hack/client_copies.py (make generate). Do not edit.\n"


def make_copies(root: Path) -> dict[str, str]:
    """Return the text of each copy by its path in the repository."""
    copies: dict[str, str] = {}
    waiting = list(MODULES)
    while waiting:
        name = waiting.pop()
        text = (root / SOURCE / f"{name}.py").read_text()
        path = f"{TARGET}/{name}.py"
        if path not in copies:
            copies[path] = _copy(text)
            waiting += _IMPORT.findall(text)
    return copies


def _copy(text: str) -> str:
    body = text.removeprefix(_LICENCE).replace("simyard_adapter.", "simyard_client.transfer.")
    return _LICENCE + _NOTE + body
