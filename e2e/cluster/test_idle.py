# SPDX-License-Identifier: Apache-2.0
"""The use of resources by each role while no requests arrive, as the kubelets measure it."""

from __future__ import annotations

import json
import time
from datetime import datetime
from types import ModuleType
from typing import Any

from beams import Beams
from cluster import NAMESPACE, Cluster

WINDOW_SECONDS = 60
MAX_CORES = 0.3
MIB = 1 << 20


def usage(cluster: Cluster) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the usage of the containers of each pod, by namespace and name."""
    found = {}
    for node in cluster.nodes():
        summary = json.loads(cluster.kubectl("get", "--raw", f"/api/v1/nodes/{node}/proxy/stats/summary"))
        for pod in summary["pods"]:
            found[(pod["podRef"]["namespace"], pod["podRef"]["name"])] = pod
    return found


def seconds_used(pod: Any) -> float:
    return sum(float(container["cpu"]["usageCoreNanoSeconds"]) / 1e9 for container in pod["containers"])


def measured_at(pod: Any) -> str:
    return min(str(container["cpu"]["time"]) for container in pod["containers"])


def test_idle_platform_uses_little(beams: Beams, cluster: Cluster, report: ModuleType) -> None:
    roles = _roles(cluster, beams)
    first, begin = usage(cluster), time.monotonic()

    def window() -> dict[tuple[str, str], dict[str, Any]]:
        newer = usage(cluster) if time.monotonic() - begin >= WINDOW_SECONDS else {}
        return newer if all(measured_at(newer[key]) > measured_at(first[key]) for key in roles if newer) else {}

    second = cluster.wait_for("a minute of rest", window, 3 * WINDOW_SECONDS)
    by_role: dict[str, list[tuple[float, float]]] = {}
    for key, role in roles.items():
        wall = _seconds_between(measured_at(first[key]), measured_at(second[key]))
        cores = (seconds_used(second[key]) - seconds_used(first[key])) / wall
        memory = sum(container["memory"]["workingSetBytes"] for container in second[key]["containers"]) / MIB
        by_role.setdefault(role, []).append((cores, memory))
    for role, figures in by_role.items():
        report.add("Idle", f"{role}: CPU of one pod", sum(cores for cores, _ in figures) / len(figures) * 1000, "m")
        report.add("Idle", f"{role}: memory of one pod", sum(memory for _, memory in figures) / len(figures), "MiB")
        assert all(cores < MAX_CORES for cores, _ in figures), (role, figures)
    assert {"operator that leads", "operator that waits", "apiserver", "frontend", "worker", "broker"} <= by_role.keys()


def _roles(cluster: Cluster, beams: Beams) -> dict[tuple[str, str], str]:
    """Return the role of each running pod."""
    leader = cluster.get("lease/simyard-operator", f"-n={NAMESPACE}")["spec"]["holderIdentity"]
    found = {}
    for pod in cluster.get("pods", f"-n={NAMESPACE}", "--field-selector=status.phase=Running")["items"]:
        name, labels = pod["metadata"]["name"], pod["metadata"]["labels"]
        role = labels.get("app.kubernetes.io/component", "")
        if labels.get("app.kubernetes.io/name") == "simyard-broker":
            role = "broker"
        if role == "operator":
            role = "operator that leads" if leader.startswith(name) else "operator that waits"
        found[(NAMESPACE, name)] = role
    machines = (worker["status"]["machineId"].partition("/") for worker in beams.workers())
    return found | {(namespace, name): "worker" for namespace, _, name in machines}


def _seconds_between(first: str, second: str) -> float:
    return (datetime.fromisoformat(second) - datetime.fromisoformat(first)).total_seconds()
