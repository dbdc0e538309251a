# SPDX-License-Identifier: Apache-2.0
"""Plays the kubelet for the pods of one namespace: runs their containers' commands as processes of this machine.

Played: binding, init containers, Secret and scratch volumes (as directories), environment, restarts, graceful ends,
status. Not played: users, limits, networks, and images but for the adapter's tree. Paths of volumes in command and
environment become those of the directories.
"""

from __future__ import annotations

import base64
import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from kube_api import Api
from simyard.api.base import Json
from simyard_sites.pod.manifest import ADAPTER_DIRECTORY

_POLL_SECONDS = 0.1
_NODE = "played"
_ENVIRONMENT = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


@dataclass
class _Container:
    """The one container of a pod."""

    process: subprocess.Popen[bytes]
    started: str
    restarts: int = 0
    told: Json = field(default_factory=dict)


class Kubelet:
    """Runs as long as it is entered, in a thread; what it runs ends with it."""

    def __init__(self, kubeconfig: Path, namespace: str, directory: Path, adapter: Path | None = None) -> None:
        self._adapter = adapter
        self._api = Api(kubeconfig)
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._secrets = f"/api/v1/namespaces/{namespace}/secrets"
        self._directory = directory
        self._containers: dict[str, _Container] = {}
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelet")

    def __enter__(self) -> Kubelet:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        for container in self._containers.values():
            container.process.kill()
            container.process.wait()

    def _run(self) -> None:
        while not self._ends.wait(_POLL_SECONDS):
            for pod in self._api.request("GET", self._pods).body["items"]:
                self._sync(pod)

    def _sync(self, pod: Json) -> None:
        metadata, uid = pod["metadata"], pod["metadata"]["uid"]
        container = self._containers.get(uid)
        if metadata.get("deletionTimestamp"):
            self._end(metadata["name"], uid, container)
        elif pod.get("status", {}).get("phase") in ("Failed", "Succeeded"):
            if container is not None and container.process.poll() is None:
                container.process.terminate()
        elif container is None:
            if not pod["spec"].get("nodeName"):
                target = {"apiVersion": "v1", "kind": "Node", "name": _NODE}
                binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": metadata["name"]}}
                self._api.request("POST", f"{self._pods}/{metadata['name']}/binding", {**binding, "target": target})
            self._containers[uid] = _Container(self._start(pod), _now())
            self._tell(metadata["name"], self._containers[uid])
        elif container.process.poll() is not None:
            container.process = self._start(pod)
            container.restarts += 1
            self._tell(metadata["name"], container)

    def _end(self, name: str, uid: str, container: _Container | None) -> None:
        if container is not None and container.process.poll() is None:
            container.process.terminate()
            return
        self._containers.pop(uid, None)
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        self._api.request("DELETE", f"{self._pods}/{name}", options)

    def _start(self, pod: Json) -> subprocess.Popen[bytes]:
        directory = self._directory / pod["metadata"]["uid"]
        [container] = pod["spec"]["containers"]
        directory.mkdir(parents=True, exist_ok=True)
        self._write_secrets(pod, directory)
        with (directory / "log").open("ab") as log:
            for first in pod["spec"].get("initContainers", ()):
                image = {ADAPTER_DIRECTORY: self._adapter} if self._adapter else {}
                subprocess.run(_Words(first, directory, image).of("command"), check=True, stdout=log, stderr=log)
            words = _Words(container, directory)
            environment = {item["name"]: words.here(item["value"]) for item in container.get("env", ())}
            return subprocess.Popen(
                words.of("command"),
                env={**_ENVIRONMENT, **environment},
                cwd=words.here(container["workingDir"]),
                stdout=log,
                stderr=log,
            )

    def _write_secrets(self, pod: Json, directory: Path) -> None:
        for volume in pod["spec"]["volumes"]:
            if "secret" not in volume:
                continue
            secret = self._api.request("GET", f"{self._secrets}/{volume['secret']['secretName']}").body
            (directory / volume["name"]).mkdir(exist_ok=True)
            for key, value in secret["data"].items():
                file = directory / volume["name"] / key
                with contextlib.suppress(FileNotFoundError):
                    file.unlink()
                file.write_bytes(base64.b64decode(value))
                file.chmod(volume["secret"]["defaultMode"])

    def _tell(self, name: str, container: _Container) -> None:
        now = _now()
        kinds = ("PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
        state = {
            "name": "worker",
            "image": "played",
            "imageID": "",
            "ready": True,
            "restartCount": container.restarts,
            "state": {"running": {"startedAt": container.started}},
        }
        status = {
            "phase": "Running",
            "podIP": "10.0.0.7",
            "conditions": [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in kinds],
            "containerStatuses": [state],
        }
        media = "application/merge-patch+json"
        self._api.request("PATCH", f"{self._pods}/{name}/status", {"status": status}, media=media)


class _Words:
    """A container's words, with the paths of its volumes, and those of its image, as they are here."""

    def __init__(self, container: Json, directory: Path, image: Mapping[str, Path] | None = None) -> None:
        self._container = container
        self._paths = dict(image or {})
        for mount in container["volumeMounts"]:
            self._paths[mount["mountPath"]] = place = directory / mount["name"] / mount.get("subPath", "")
            place.mkdir(parents=True, exist_ok=True)

    def of(self, field: str) -> list[str]:
        return [self.here(word) for word in self._container[field]]

    def here(self, text: str) -> str:
        within = next((path for path in self._paths if text.startswith(path)), "")
        return f"{self._paths[within]}{text.removeprefix(within)}" if within else text


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
