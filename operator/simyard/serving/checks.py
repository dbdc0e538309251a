# SPDX-License-Identifier: Apache-2.0
"""Health checks of a process, and their report in the words of kube-apiserver's ``/readyz``. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """The outcome of one check of a process; ``detail`` describes the state that was found, good or bad."""

    name: str
    good: bool
    detail: str


def format_report(checks: Iterable[HealthCheck]) -> tuple[bool, str]:
    """Return whether all checks are good, and a text with one line for each check."""
    found = list(checks)
    good = all(check.good for check in found)
    lines = [f"[{'+' if check.good else '-'}]{check.name}: {check.detail}" for check in found]
    return good, "\n".join([*lines, "ok\n" if good else "failed\n"])
