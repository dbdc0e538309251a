# SPDX-License-Identifier: Apache-2.0
"""Find the cluster of the end-to-end tests, and run the commands that reach it.

``E2E_TESTBED`` names a folder with the commands ``up``, ``down``, ``env`` and ``load``, which make a kind cluster on a
machine without an image registry. Without the variable, kind and the Docker engine of the machine make the cluster.
"""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STATE = ROOT / ".run" / "e2e"
NAME = os.environ.get("E2E_CLUSTER") or "simyard-e2e"
TESTBED = Path(os.environ["E2E_TESTBED"]) if os.environ.get("E2E_TESTBED") else None
NODES = 3
MANY_SECONDS = 1800


class Hidden(str):
    """A token or password that pytest does not show in the report of a failed test."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Hidden(...)"


def up() -> None:
    """Make the cluster if it does not exist."""
    if TESTBED:
        parts = ("--with", "rabbitmq-operator", "--with", "prometheus")
        _loudly(str(TESTBED / "up"), "--name", NAME, "--nodes", str(NODES), *parts)
    elif NAME not in run("kind", "get", "clusters").split():
        _loudly("kind", "create", "cluster", "--name", NAME, "--config", str(Path(__file__).parent / "kind.yaml"))


def down() -> None:
    """Delete the cluster."""
    if TESTBED:
        _loudly(str(TESTBED / "down"), "--name", NAME)
    else:
        _loudly("kind", "delete", "cluster", "--name", NAME)


@cache
def variables() -> dict[str, str]:
    """Return the environment in which docker, kind, kubectl and helm mean this cluster."""
    if not TESTBED:
        kubeconfig = STATE / "kubeconfig"
        STATE.mkdir(parents=True, exist_ok=True)
        kubeconfig.write_text(_quietly("kind", "get", "kubeconfig", "--name", NAME, environment=dict(os.environ)))
        return {**os.environ, "KUBECONFIG": str(kubeconfig)}
    lines = f'eval "$("{TESTBED}/env" --name {NAME})" && env -0'
    listed = _quietly("bash", "-c", lines, environment=dict(os.environ))
    return dict(line.split("=", 1) for line in listed.split("\0") if "=" in line)


def run(*command: str, stdin: str = "", seconds: float = 120, **more: str) -> str:
    """Run a command in that environment with ``more`` variables, and return its output.

    Raises:
        AssertionError: the command failed or timed out. The message contains its output and the whole command, so
            arguments must not contain secrets.
    """
    __tracebackhide__ = True  # pytest would show the variables and ``stdin``
    return _quietly(*command, stdin=stdin, seconds=seconds, environment={**variables(), **more})


def load(*images: str) -> None:
    """Load images of the engine on all nodes."""
    if TESTBED:
        run(str(TESTBED / "load"), "--name", NAME, *images, seconds=MANY_SECONDS)
    else:
        run("kind", "load", "docker-image", "--name", NAME, *images, seconds=MANY_SECONDS)


def _quietly(*command: str, environment: dict[str, str], stdin: str = "", seconds: float = 120) -> str:
    __tracebackhide__ = True
    shown = " ".join(command)
    try:
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=seconds, check=False, env=environment
        )
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"{shown}: no end after {seconds} s") from error
    assert done.returncode == 0, f"{shown}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def _loudly(*command: str) -> None:
    subprocess.run(command, check=True, timeout=MANY_SECONDS)
