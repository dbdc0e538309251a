# SPDX-License-Identifier: Apache-2.0
"""Decides whether the process of a frontend is ready, and builds the answers of ``/readyz``."""

from __future__ import annotations

from collections.abc import Callable

from simyard.serving.checks import HealthCheck, format_report

RunCheck = Callable[[], HealthCheck]


class Health:
    """The health of the process. It is ready if all ``checks`` succeed and it was not asked to stop."""

    def __init__(self) -> None:
        self.checks: list[RunCheck] = []
        self.started = False
        self.stopping = False

    def run_checks(self) -> list[HealthCheck]:
        """Return the results of all checks."""
        return [
            HealthCheck("start", self.started, "serving" if self.started else "not yet"),
            HealthCheck("shutdown", not self.stopping, "stopping" if self.stopping else "not asked for"),
            *(check() for check in self.checks),
        ]

    def report(self) -> tuple[bool, str]:
        """Return true if the process is ready, and one line for each check in the format of kube-apiserver."""
        return format_report(self.run_checks())
