# SPDX-License-Identifier: Apache-2.0
"""Copies of the adapter's transfers of files, for the Python client.

Workers and users move files with the same code, which needs the standard library only. The client cannot depend on the
distribution of the adapter, whose client of AMQP it does not need. The distribution of the client therefore contains
copies of these modules, which ``make generate`` writes.
"""

from __future__ import annotations

from pathlib import Path

SOURCE = "adapters/service/simyard_adapter"
TARGET = "adapters/client/simyard_client/transfer"
MODULES = ("backoff", "digests", "file_urls", "file_values", "transfers", "uploads")
_LICENCE = "# SPDX-License-Identifier: Apache-2.0\n"
_NOTE = f"# Copied from {SOURCE} by hack/client_copies.py (make generate). Do not edit.\n"


def make_copies(root: Path) -> dict[str, str]:
    """Return the text of each copy by its path in the repository."""
    return {f"{TARGET}/{name}.py": _copy((root / SOURCE / f"{name}.py").read_text()) for name in MODULES}


def _copy(text: str) -> str:
    body = text.removeprefix(_LICENCE).replace("simyard_adapter.", "simyard_client.transfer.")
    return _LICENCE + _NOTE + body
