"""What the cluster says, kept when a test fails: objects, events and logs."""

from __future__ import annotations

import re
from pathlib import Path

import environment
from cluster import ARTIFACTS, NAMESPACE

TAIL = "--tail=2000"
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
        for role in ("operator", "apiserver", "frontend")
    },
    "broker.log": ("logs", f"--namespace={NAMESPACE}", "-l", "app.kubernetes.io/name=simyard-broker", "--prefix", TAIL),
}


def collect(test: str) -> Path:
    """Write all of it to a folder of the test's name; what cannot be had says so in its file."""
    folder = ARTIFACTS / re.sub(r"[^\w.-]+", "_", test)
    folder.mkdir(parents=True, exist_ok=True)
    for name, arguments in COMMANDS.items():
        try:
            said = environment.run("kubectl", "--request-timeout=20s", *arguments, seconds=40)
        except AssertionError as error:
            said = str(error)
        (folder / name).write_text(said)
    return folder
