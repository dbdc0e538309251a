# SPDX-License-Identifier: Apache-2.0
"""Collect the figures of the end-to-end tests in report.json, and write report.md from it.

Each figure has a section and a name; a new figure replaces the old one. Several runs may write at once.
"""

from __future__ import annotations

import fcntl
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1]
JSON, MARKDOWN = FOLDER / "report.json", FOLDER / "report.md"
LOCK = FOLDER.parent / ".run" / "e2e" / "report.lock"
HEAD = """\
# Figures of the end-to-end tests on kind

`make e2e` writes this file from `report.json`: change neither by hand. Each figure was measured once, at the last run
of its test, on a machine of {cores} cores that runs all nodes, the broker and the tests. For benchmarks see
[performance](../docs/performance.md).
"""
Value = float | int | str


def add(section: str, name: str, value: Value, unit: str = "") -> None:
    """Store a figure; floats are rounded to three significant digits."""
    kept = float(f"{value:.3g}") if isinstance(value, float) else value
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        report = _read()
        figure = {"value": kept, "unit": unit, "at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M")}
        report.setdefault(section, {})[name] = figure
        _replace(JSON, json.dumps(report, indent=1, sort_keys=True) + "\n")
        _replace(MARKDOWN, _markdown(report))


def _markdown(report: dict[str, Any]) -> str:
    parts = [HEAD.format(cores=os.cpu_count())]
    for section, figures in sorted(report.items()):
        rows = [_row(name, item["value"], item["unit"]) for name, item in sorted(figures.items())]
        parts.append(f"## {section}\n\n| measurement | figure |\n|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _row(name: str, value: Value, unit: str) -> str:
    shown = value if isinstance(value, str) else f"{value:,}"
    return f"| {name} | {shown} {unit}".rstrip() + " |"


def _read() -> dict[str, Any]:
    return dict(json.loads(JSON.read_text())) if JSON.exists() else {}


def _replace(file: Path, text: str) -> None:
    draft = file.with_suffix(f".{os.getpid()}.tmp")
    draft.write_text(text)
    draft.replace(file)
