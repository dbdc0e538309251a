# SPDX-License-Identifier: Apache-2.0
"""Damage the cluster on purpose: kill or stop processes of pods, switch nodes off."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_SIGNAL = """
sent=0
for file in /proc/[0-9]*/cgroup; do
  if grep -q "$1" "$file" 2>/dev/null; then
    pid=${file#/proc/}
    kill "-$2" "${pid%/cgroup}" 2>/dev/null && sent=$((sent + 1))
  fi
done
echo $sent
"""
"""Script that sends a signal to every process whose cgroup names a container; a kind node sees those of its pods."""
_NAMED = """
sent=0
for file in /proc/[0-9]*/comm; do
  if [ "$(cat "$file" 2>/dev/null)" = "$1" ]; then
    pid=${file#/proc/}
    kill "-$2" "${pid%/comm}" && sent=$((sent + 1))
  fi
done
echo $sent
"""
"""Script that sends a signal to every process of a name."""


def kill(cluster: Any, namespace: str, pod: str) -> None:
    """Kill every process of a pod's first container (SIGKILL), and wait until the kubelet has restarted it."""

    def restarts() -> int:
        return int(cluster.get("pod", pod, "-n", namespace)["status"]["containerStatuses"][0]["restartCount"])

    before = restarts()
    assert _signal(cluster, namespace, pod, "KILL") > 0, f"nothing ran in {pod}"
    cluster.wait_for(f"{pod} to start again", lambda: restarts() > before)


@contextmanager
def stopped(cluster: Any, namespace: str, pod: str) -> Iterator[None]:
    """Stop the processes of a pod's first container within the context: they answer no request and keep connections."""
    assert _signal(cluster, namespace, pod, "STOP") > 0, f"nothing runs in {pod}"
    try:
        yield
    finally:
        _signal(cluster, namespace, pod, "CONT")


def pause_kube_apiserver(cluster: Any, seconds: float) -> None:
    """Stop the API server of the cluster for some seconds."""
    node = control_plane(cluster)
    try:
        assert int(cluster.node(node, "sh", "-c", _NAMED, "sh", "kube-apiserver", "STOP")) == 1
        time.sleep(seconds)
    finally:
        cluster.node(node, "sh", "-c", _NAMED, "sh", "kube-apiserver", "CONT")


@contextmanager
def switched_off(cluster: Any, node: str) -> Iterator[None]:
    """Cut the power of a node within the context; afterwards the node is ready again."""
    cluster.docker("kill", node)
    try:
        yield
    finally:
        cluster.docker("start", node)
        cluster.kubectl("wait", f"node/{node}", "--for=condition=Ready", "--timeout=240s", seconds=300)


@contextmanager
def cordoned(cluster: Any, node: str) -> Iterator[None]:
    """Keep new pods away from a node."""
    cluster.kubectl("cordon", node)
    try:
        yield
    finally:
        cluster.kubectl("uncordon", node)


@contextmanager
def partitioned(cluster: Any, node: str) -> Iterator[None]:
    """Cut a node and its pods off from all other nodes; the pods on it still reach each other."""
    rules = [("INPUT", "-i"), ("OUTPUT", "-o"), ("FORWARD", "-i"), ("FORWARD", "-o")]
    try:
        for chain, side in rules:
            cluster.node(node, "iptables", "-w", "-I", chain, side, "eth0", "-j", "DROP")
        yield
    finally:
        for chain, side in rules:
            cluster.node(node, "iptables", "-w", "-D", chain, side, "eth0", "-j", "DROP")


def control_plane(cluster: Any) -> str:
    """Return the name of the only node of the control plane."""
    return names(cluster.get("nodes", "-l", "node-role.kubernetes.io/control-plane"))[0]


def names(found: Any) -> list[str]:
    """Return the names of the objects of a list."""
    return [item["metadata"]["name"] for item in found["items"]]


def _signal(cluster: Any, namespace: str, pod: str, signal: str) -> int:
    found = cluster.get("pod", pod, "-n", namespace)
    container = found["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
    return int(cluster.node(found["spec"]["nodeName"], "sh", "-c", _SIGNAL, "sh", container, signal))
