# SPDX-License-Identifier: Apache-2.0
"""Run modules of the benchmarks as separate processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

_BENCH = Path(__file__).resolve().parents[1]


def command(module: ModuleType) -> list[str | Path]:
    """Return the command that runs a module."""
    return [sys.executable, "-m", module.__name__]


def environment() -> Mapping[str, str]:
    """Return environment variables with which Python finds the module from any directory."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(_BENCH.parent / "hack"), str(_BENCH)])}
