# SPDX-License-Identifier: Apache-2.0
"""Run Python files of the folder ``pods`` in pods of the cluster, with Simyard's own image."""

from __future__ import annotations

import base64
import io
import json
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Json = dict[str, Any]
Kubectl = Callable[..., str]
FOLDER = Path(__file__).parent / "pods"
CONFIG_MAP = "e2e-scripts"
SIMULATORS = Path(__file__).parents[2] / "adapters" / "simulators" / "simyard_simulators"
SIMULATORS_ARCHIVE = "simyard_simulators.zip"
WITH_SIMULATORS = {"PYTHONPATH": f"/scripts/{SIMULATORS_ARCHIVE}"}
"""The variables of a pod that imports the simulators, which the image does not contain."""
RUN_SECONDS = 180
RESTRICTED: Json = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
ON_CONTROL_PLANE: Json = {
    "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
    "tolerations": [{"operator": "Exists"}],
}


def config_map() -> Json:
    """Return a ConfigMap with all files of the folder, and with the simulators as an archive."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIG_MAP},
        "data": {file.name: file.read_text() for file in FOLDER.glob("*.py")},
        "binaryData": {SIMULATORS_ARCHIVE: base64.b64encode(archive_simulators()).decode()},
    }


def archive_simulators() -> bytes:
    """Return the package of the simulators as a zip file, from which Python imports it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(SIMULATORS.rglob("*.py")):
            archive.write(file, file.relative_to(SIMULATORS.parent))
    return buffer.getvalue()


def pod(
    name: str,
    image: str,
    script: str,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    account: str = "",
    tls_secret: str = "",
    **spec: Any,
) -> Json:
    """Return a pod that runs one of the files; ``account`` names the ServiceAccount whose token it gets, if any."""
    mounts = [
        {"name": "scripts", "mountPath": "/scripts", "readOnly": True},
        {"name": "tmp", "mountPath": "/tmp"},
    ]
    volumes: list[Json] = [
        {"name": "scripts", "configMap": {"name": CONFIG_MAP}},
        {"name": "tmp", "emptyDir": {}},
    ]
    if tls_secret:
        mounts.append({"name": "tls", "mountPath": "/tls", "readOnly": True})
        volumes.append({"name": "tls", "secret": {"secretName": tls_secret, "defaultMode": 0o440}})
    container = {
        "name": "script",
        "image": image,
        "command": ["python", f"/scripts/{script}", *arguments],
        "env": [{"name": key, "value": value} for key, value in (env or {}).items()],
        "securityContext": RESTRICTED,
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "volumeMounts": mounts,
    }
    user = {"runAsNonRoot": True, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"e2e": name}},
        "spec": {
            "restartPolicy": "Never",
            "enableServiceLinks": False,
            "automountServiceAccountToken": bool(account),
            **({"serviceAccountName": account} if account else {}),
            "terminationGracePeriodSeconds": 1,
            "securityContext": {**user, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
            "volumes": volumes,
            **spec,
        },
    }


def service(name: str, port: int, target: int) -> Json:
    """Return the Service in front of the pod of that name."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"e2e": name}, "ports": [{"port": port, "targetPort": target}]},
    }


def apply(kubectl: Kubectl, namespace: str, objects: Sequence[Json]) -> None:
    """Apply objects in a namespace."""
    __tracebackhide__ = True
    items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    kubectl(
        "apply", "--server-side", "--force-conflicts", f"--namespace={namespace}", "-f", "-", stdin=json.dumps(items)
    )


def run(kubectl: Kubectl, namespace: str, manifest: Json) -> list[Json]:
    """Run a pod to its end, return the lines of JSON that it printed, and delete it.

    Raises:
        AssertionError: the pod failed; the message contains its output.
    """
    __tracebackhide__ = True  # pytest would show the manifest, with its variables
    name = manifest["metadata"]["name"]
    apply(kubectl, namespace, [config_map()])
    kubectl("create", f"--namespace={namespace}", "-f", "-", stdin=json.dumps(manifest))
    try:
        phase = _end(kubectl, namespace, name)
        said = kubectl("logs", f"--namespace={namespace}", name)
        assert phase == "Succeeded", f"pod {name}: {phase}\n{said}"
    finally:
        kubectl("delete", "pod", name, f"--namespace={namespace}", "--now", "--wait=false", "--ignore-not-found")
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


def _end(kubectl: Kubectl, namespace: str, name: str) -> str:
    deadline = time.monotonic() + RUN_SECONDS
    phase = ""
    while phase not in ("Succeeded", "Failed"):
        assert time.monotonic() < deadline, f"pod {name} is {phase or 'nowhere'} after {RUN_SECONDS} s"
        time.sleep(0.5)
        phase = kubectl("get", "pod", name, f"--namespace={namespace}", "-o", "jsonpath={.status.phase}")
    return phase
