"""Whether this process can serve."""

from __future__ import annotations

from collections.abc import Callable

from simyard.apiserver.health import Finding

Check = Callable[[], Finding]


class Health:
    """Ready while all that was added to ``checks`` is well and nobody asked to stop."""

    def __init__(self) -> None:
        self.checks: list[Check] = []
        self.started = False
        self.stopping = False

    def findings(self) -> list[Finding]:
        """What makes it ready, and how the rest is."""
        return [
            Finding("start", self.started, "serving" if self.started else "not yet"),
            Finding("shutdown", not self.stopping, "stopping" if self.stopping else "not asked for"),
            *(check() for check in self.checks),
        ]

    def report(self) -> tuple[bool, str]:
        """Whether it is ready, and one line for each check as kube-apiserver writes it."""
        findings = self.findings()
        good = all(finding.good for finding in findings)
        lines = [f"[{'+' if finding.good else '-'}]{finding.name}: {finding.detail}" for finding in findings]
        return good, "\n".join([*lines, "ok\n" if good else "failed\n"])
