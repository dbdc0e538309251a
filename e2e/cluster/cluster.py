# SPDX-License-Identifier: Apache-2.0
"""Use the cluster of the tests, with the chart installed."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

import environment

Json = dict[str, Any]
T = TypeVar("T")
CHART = environment.ROOT / "charts" / "simyard"
VALUES = environment.STATE / "values.yaml"
ARTIFACTS = environment.STATE / "artifacts"
NAMESPACE = "simyard-system"
RELEASE = "simyard"
SITE = "cluster"
PAUSE_SECONDS = 0.3


def restricted_namespace(name: str) -> Json:
    """Return a namespace that admits only pods of the restricted profile."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def base_image() -> str:
    """Return the base of Simyard's image."""
    return environment.variables().get("PYTHON_IMAGE", "python:3.13-slim")


@dataclass(frozen=True)
class Cluster:
    """A kind cluster; ``image`` is Simyard's image on its nodes, ``ccx_image`` that of the CalculiX service."""

    image: str
    ccx_image: str
    release: str = RELEASE
    release_namespace: str = NAMESPACE
    site: str = SITE
    chart: Path = CHART
    values: Path = VALUES
    artifacts: Path = ARTIFACTS

    def kubectl(self, *arguments: str, stdin: str = "", kubeconfig: Path | None = None, seconds: float = 120) -> str:
        """Run kubectl as administrator or with another kubeconfig, and return its output.

        Raises:
            AssertionError: kubectl failed.
        """
        __tracebackhide__ = True
        more = {"KUBECONFIG": str(kubeconfig)} if kubeconfig else {}
        return environment.run("kubectl", *arguments, stdin=stdin, seconds=seconds, **more)

    def get(self, *arguments: str, kubeconfig: Path | None = None) -> Any:
        """Return the JSON of ``kubectl get``."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json", kubeconfig=kubeconfig))

    def apply(self, *objects: Json, namespace: str = "") -> None:
        """Apply objects by server-side apply."""
        listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        where = (f"--namespace={namespace}",) if namespace else ()
        self.kubectl("apply", "--server-side", "--force-conflicts", *where, "-f", "-", stdin=listed)

    def apply_file(self, *files: Path, namespace: str) -> None:
        """Apply a file of manifests."""
        for file in files:
            self.kubectl("apply", f"--namespace={namespace}", "-f", str(file))

    def wait(self, what: str, condition: str, namespace: str = "", seconds: int = 120) -> None:
        """Run ``kubectl wait`` for a condition."""
        where = (f"--namespace={namespace}",) if namespace else ()
        self.kubectl("wait", what, f"--for={condition}", *where, f"--timeout={seconds}s", seconds=seconds + 30)

    def rollout(self, what: str, namespace: str, seconds: int = 240) -> None:
        """Run ``kubectl rollout status``."""
        command = ("rollout", "status", what, f"--namespace={namespace}", f"--timeout={seconds}s")
        self.kubectl(*command, seconds=seconds + 30)

    def wait_for(self, what: str, condition: Callable[[], T], seconds: float = 120) -> T:
        """Wait until the condition returns a true value, and return that value."""
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < deadline, f"{what}: not true after {seconds} s; last value {found!r}"
            time.sleep(PAUSE_SECONDS)
        return found

    @contextlib.contextmanager
    def namespace(self, prefix: str) -> Iterator[str]:
        """Provide a :func:`restricted_namespace` with a new name, and delete it at the end."""
        name = f"{prefix}-{uuid.uuid4().hex[:6]}"
        self.apply(restricted_namespace(name))
        try:
            yield name
        finally:
            self.kubectl("delete", "namespace", name, "--timeout=170s", seconds=180)

    @contextlib.contextmanager
    def forward(self, namespace: str, target: str, port: int, *, local: int = 0) -> Iterator[int]:
        """Provide a port of this machine that leads to a port of a pod or Service (``svc/name``)."""
        command = ["kubectl", "port-forward", f"--namespace={namespace}", target, f"{local or ''}:{port}"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with subprocess.Popen(command, text=True, env=environment.variables(), **pipes) as process:  # type: ignore[call-overload]
            try:
                yield _forwarded(process.stdout)
            finally:
                process.kill()

    def authority(self) -> str:
        """Return the certificate of the CA as PEM."""
        secret = self.get("secret", "simyard-ca", f"--namespace={NAMESPACE}")
        return base64.b64decode(secret["data"]["tls.crt"]).decode()

    def nodes(self) -> list[str]:
        """Return the names of the nodes, the nodes for pods first."""
        control = "node-role.kubernetes.io/control-plane"
        nodes = self.get("nodes")["items"]
        named = sorted((control in node["metadata"]["labels"], str(node["metadata"]["name"])) for node in nodes)
        return [name for _, name in named]

    def node(self, name: str, *command: str) -> str:
        """Run a command in the container of a node."""
        return self.docker("exec", name, *command)

    def node_address(self, name: str) -> str:
        """Return the address of a node as this machine reaches it."""
        addresses = self.get("node", name)["status"]["addresses"]
        return next(str(item["address"]) for item in addresses if item["type"] == "InternalIP")

    def docker(self, *arguments: str) -> str:
        """Run docker."""
        return environment.run("docker", *arguments)

    def helm(self, *arguments: str) -> str:
        """Run helm in the release's namespace."""
        return environment.run("helm", f"--namespace={NAMESPACE}", *arguments, seconds=420)


def _forwarded(lines: IO[str]) -> int:
    said = ""
    for line in lines:
        if found := re.match(r"Forwarding from 127\.0\.0\.1:(\d+)", line):
            return int(found[1])
        said += line
    raise AssertionError(f"kubectl port-forward ended: {said}")
