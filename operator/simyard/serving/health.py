# SPDX-License-Identifier: Apache-2.0
"""Decides whether the aggregated apiserver is ready."""

from __future__ import annotations

from simyard.kube.cache import MAX_AGE_SECONDS
from simyard.serving.broker import BrokerClient
from simyard.serving.checks import HealthCheck, format_report
from simyard.serving.directory import Directory


class Health:
    """The state that decides whether the apiserver is ready; the server writes it.

    The apiserver is ready when it has its copies of objects and the CA of the front proxy, until it is asked to stop.
    It stays ready without the broker, so that callers get an error that names the broker. If it were not ready, callers
    would get the error that the API does not exist.
    """

    def __init__(self) -> None:
        self.directory: Directory | None = None
        self.broker: BrokerClient | None = None
        self.front_proxy_known = False
        self.stopping = False

    def run_checks(self) -> list[HealthCheck]:
        """Return the checks that decide whether the process is ready, and the state of the broker."""
        synced = self.directory is not None and self.directory.synced
        age = self.directory.measure_age_seconds() if self.directory is not None else 0.0
        return [
            HealthCheck(
                "objects", synced and age < MAX_AGE_SECONDS, f"heard of {age:.0f} s ago" if synced else "not listed"
            ),
            HealthCheck("front-proxy", self.front_proxy_known, "known" if self.front_proxy_known else "not read yet"),
            HealthCheck("shutdown", not self.stopping, "stopping" if self.stopping else "not asked for"),
            HealthCheck("broker", True, self._broker_detail()),
        ]

    def _broker_detail(self) -> str:
        if self.broker is None or not self.broker.connected:
            return "not connected (not required)"
        return f"accepts no messages: {self.broker.blocked}" if self.broker.blocked else "connected"

    def report(self) -> tuple[bool, str]:
        """Return true if the process is ready, and one line for each check."""
        return format_report(self.run_checks())
