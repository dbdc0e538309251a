# SPDX-License-Identifier: Apache-2.0
"""Helm, and a control plane on which the chart's tests render and install it."""

from __future__ import annotations

import functools
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from simyard.api.frontend_pod import FrontendPod
from simyard_dev import tools
from simyard_dev.controlplane import ControlPlane

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "simyard"
NAMESPACE = "simyard-system"
EXISTING = ("broker.mode=existing", "broker.existing.secretName=mine")
OPTIMISER = ("optimiser.enabled=true", "files.mode=existing", "files.existingSecret=store")
Manifest = dict[str, Any]


@dataclass(frozen=True)
class Helm:
    """Helm and kubectl on a control plane."""

    control_plane: ControlPlane

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        program = tools.ensure(["helm"])["helm"]
        command = [program, f"--kubeconfig={self.control_plane.kubeconfig}", f"--namespace={NAMESPACE}", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)

    def done(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def render(self, *values: str) -> list[Manifest]:
        return read_manifests(self._render_once(values))

    @functools.cache  # noqa: B019 - there is one Helm for all tests
    def _render_once(self, values: tuple[str, ...]) -> str:
        return self.done("template", "simyard", str(CHART), *(f"--set={value}" for value in values))

    def dry_run(self, manifests: list[Manifest]) -> None:
        """Let the API server check the manifests."""
        listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
        options = ("--dry-run=server", "--warnings-as-errors", "--validate=strict")
        self.control_plane.kubectl("apply", *options, "-f", "-", stdin=listed)

    def get(self, *what: str) -> Manifest:
        found: Manifest = json.loads(self.control_plane.kubectl("-n", NAMESPACE, "get", *what, "-o", "json"))
        return found


def read_manifests(text: str) -> list[Manifest]:
    """Return the manifests in a YAML stream."""
    return [item for item in yaml.load_all(text, yaml.CSafeLoader) if item]


def of_kind(manifests: list[Manifest], kind: str) -> dict[str, Manifest]:
    """Return the manifests of a kind, by name."""
    return {item["metadata"]["name"]: item for item in manifests if item["kind"] == kind}


def frontend_pod(operator: Manifest) -> FrontendPod:
    """Return the settings of the pods of frontends that the container of the operator receives."""
    [value] = [item.partition("=")[2] for item in operator["args"] if item.startswith("--frontend-pod=")]
    return FrontendPod.from_json(value.replace("$$", "$"))


def container_of(manifests: list[Manifest], role: str) -> Manifest:
    """Return the only container of a role's Deployment."""
    [container] = pod_of(manifests, role)["spec"]["containers"]
    return dict(container)


def pod_of(manifests: list[Manifest], role: str, prefix: str = "simyard") -> Manifest:
    """Return the pod template of a role's Deployment."""
    return dict(of_kind(manifests, "Deployment")[f"{prefix}-{role}"]["spec"]["template"])
