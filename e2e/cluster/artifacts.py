# SPDX-License-Identifier: Apache-2.0
"""Save the state of the cluster when a test fails: objects, events, logs and metrics."""

from __future__ import annotations

import json
import re
from pathlib import Path

import environment
from cluster import ARTIFACTS, NAMESPACE

TAIL = "--tail=2000"
ROLES = ("operator", "apiserver", "frontend")
COMMANDS = {
    "nodes.txt": ("get", "nodes", "-o", "wide"),
    "pods.txt": ("get", "pods", "-A", "-o", "wide"),
    "events.txt": ("get", "events", "-A", "--sort-by=.lastTimestamp"),
    "simyard.yaml": ("get", "simyard", "-A", "-o", "yaml"),
    "describe.txt": ("describe", "pods", f"--namespace={NAMESPACE}"),
    **{
        f"{role}.log": (
            *("logs", f"--namespace={NAMESPACE}", "-l", f"app.kubernetes.io/component={role}"),
            *("--prefix", "--all-containers", "--ignore-errors", "--max-log-requests=20", TAIL),
        )
        for role in ROLES
    },
    "broker.log": ("logs", f"--namespace={NAMESPACE}", "-l", "app.kubernetes.io/name=simyard-broker", "--prefix", TAIL),
}


def collect(test: str) -> Path:
    """Write everything to a folder named after the test; a file contains the error if its data cannot be read."""
    folder = ARTIFACTS / re.sub(r"[^\w.-]+", "_", test)
    folder.mkdir(parents=True, exist_ok=True)
    for name, arguments in (COMMANDS | _of_pods()).items():
        (folder / name).write_text(_said(*arguments))
    return folder


def _said(*arguments: str) -> str:
    try:
        return environment.run("kubectl", "--request-timeout=20s", *arguments, seconds=40)
    except AssertionError as error:
        return str(error)


def _of_pods() -> dict[str, tuple[str, ...]]:
    """Save the metrics of each of our pods, and the log of its previous container."""
    where = f"--namespace={NAMESPACE}"
    ours = f"app.kubernetes.io/component in ({', '.join(ROLES)})"
    try:
        pods = json.loads(_said("get", "pods", where, "-l", ours, "-o", "json"))["items"]
    except json.JSONDecodeError:  # the error is the reason why there are none
        return {}
    commands: dict[str, tuple[str, ...]] = {}
    for pod in pods:
        name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]
        for port in container.get("ports", []):
            if port["name"] == "metrics":
                path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}:{port['containerPort']}/proxy/metrics"
                commands[f"{name}.metrics"] = ("get", "--raw", path)
        if any(status["restartCount"] for status in pod["status"].get("containerStatuses", [])):
            commands[f"{name}.previous.log"] = ("logs", where, name, "--previous", TAIL)
    return commands
