"""Whether this process can serve."""

from __future__ import annotations

from typing import NamedTuple

from simyard.apiserver.broker import BrokerLink
from simyard.apiserver.directory import Directory
from simyard.kube.cache import MOST_AGE_SECONDS


class Finding(NamedTuple):
    """The outcome of one check; ``detail`` says how it is."""

    name: str
    good: bool
    detail: str


class Health:
    """Ready while objects and front proxy are known and nobody asked to stop; the server fills it in.

    A broker that is down does not make it unready: callers are told so, instead of that the whole API is gone.
    """

    def __init__(self) -> None:
        self.directory: Directory | None = None
        self.broker: BrokerLink | None = None
        self.front_proxy_known = False
        self.stopping = False

    def findings(self) -> list[Finding]:
        """The checks that make it ready, and how the broker is."""
        synced = self.directory is not None and self.directory.synced
        age = self.directory.age_seconds() if self.directory is not None else 0.0
        return [
            Finding(
                "objects", synced and age < MOST_AGE_SECONDS, f"heard of {age:.0f} s ago" if synced else "not listed"
            ),
            Finding("front-proxy", self.front_proxy_known, "known" if self.front_proxy_known else "not read yet"),
            Finding("shutdown", not self.stopping, "stopping" if self.stopping else "not asked for"),
            Finding("broker", True, self._broker_detail()),
        ]

    def _broker_detail(self) -> str:
        if self.broker is None or not self.broker.connected:
            return "not connected (not required)"
        return f"takes no messages: {self.broker.blocked}" if self.broker.blocked else "connected"

    def report(self) -> tuple[bool, str]:
        """Whether it is ready, and one line for each check as kube-apiserver writes it."""
        findings = self.findings()
        ready = all(finding.good for finding in findings)
        lines = [f"[{'+' if good else '-'}]{name}: {detail}" for name, good, detail in findings]
        return ready, "\n".join([*lines, "ok\n" if ready else "failed\n"])
