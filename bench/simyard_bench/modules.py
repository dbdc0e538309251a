"""Modules of the benchmark that are processes of their own."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

_BENCH = Path(__file__).resolve().parents[1]


def command(module: ModuleType) -> list[str | Path]:
    """What runs a module of the benchmark."""
    return [sys.executable, "-m", module.__name__]


def environment() -> Mapping[str, str]:
    """In which it is found, wherever it is run."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(_BENCH.parent / "hack"), str(_BENCH)])}
