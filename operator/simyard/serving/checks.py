# SPDX-License-Identifier: Apache-2.0
"""Reports the health checks of a process in the format of kube-apiserver's ``/readyz``. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """The outcome of one check of a process. ``detail`` describes the present state, good or bad."""

    name: str
    good: bool
    detail: str


def format_report(checks: Iterable[HealthCheck]) -> tuple[bool, str]:
    """Return true if all checks are good, and a text with one line for each check."""
    found = list(checks)
    good = all(check.good for check in found)
    lines = [f"[{'+' if check.good else '-'}]{check.name}: {check.detail}" for check in found]
    return good, "\n".join([*lines, "ok\n" if good else "failed\n"])
