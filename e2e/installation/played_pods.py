# SPDX-License-Identifier: Apache-2.0
"""Run the container of a Deployment as a process of this machine, as a kubelet would.

The arguments, the variables and the files are those of the Deployment, and the process has the rights of its
ServiceAccount. Paths in arguments begin with a directory of ours, and a kubeconfig takes the place of the files by
which a pod finds its API server.
"""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

from simyard_dev.controlplane import ControlPlane
from simyard_dev.frontends import SIMYARD
from simyard_dev.processes import Process

GRACE_SECONDS = 30.0


class PlayedPod:
    """The only container of a Deployment, as a process."""

    def __init__(self, directory: Path, control_plane: ControlPlane, deployment: dict[str, Any]) -> None:
        self._control_plane = control_plane
        self._root = directory
        self._namespace = deployment["metadata"]["namespace"]
        self._pod = deployment["spec"]["template"]["spec"]
        [self._container] = self._pod["containers"]
        self.process = Process(directory, self._container["name"])

    def start(self) -> None:
        """Mount the volumes and start the process."""
        self.mount()
        kubeconfig = self._root / "kubeconfig"
        account = self._pod["serviceAccountName"]
        self._control_plane.write_service_account_kubeconfig(kubeconfig, self._namespace, account)
        variables = {item["name"]: item["value"] for item in self._container.get("env", [])}
        inherited = {name: os.environ[name] for name in ("PATH", "HOME")}
        arguments = [self._place(argument.replace("$$", "$")) for argument in self._container["args"]]
        self.process.start([SIMYARD, *arguments], inherited | {"KUBECONFIG": str(kubeconfig)} | variables)

    def stop(self) -> None:
        """Stop the process as a kubelet does."""
        self.process.stop(GRACE_SECONDS)

    def mount(self) -> None:
        """Write the present content of all volumes; later calls replace the content at once, as a kubelet does."""
        volumes = {item["name"]: item for item in self._pod["volumes"]}
        for item in self._container["volumeMounts"]:
            target = Path(self._place(item["mountPath"]))
            target.mkdir(parents=True, exist_ok=True)
            volume = volumes[item["name"]]
            if "emptyDir" not in volume:
                _replace_files(target, self._read(volume))

    def _place(self, text: str) -> str:
        for item in self._container["volumeMounts"]:
            text = text.replace(item["mountPath"], f"{self._root}{item['mountPath']}")
        return text

    def _read(self, volume: dict[str, Any]) -> dict[str, bytes]:
        """Return the files of a volume of the type `secret` or `projected`."""
        if "secret" in volume:
            return self._read_secret(volume["secret"]["secretName"], None)
        found: dict[str, bytes] = {}
        for source in volume["projected"]["sources"]:
            found |= self._read_secret(source["secret"]["name"], source["secret"].get("items"))
        return found

    def _read_secret(self, name: str, items: list[dict[str, str]] | None) -> dict[str, bytes]:
        found = self._control_plane.kubectl("get", "secret", name, "-n", self._namespace, "-o", "json")
        data = {key: base64.b64decode(value) for key, value in json.loads(found)["data"].items()}
        return data if items is None else {item["path"]: data[item["key"]] for item in items}


def _replace_files(target: Path, files: dict[str, bytes]) -> None:
    """Write files as a kubelet does: below a new folder, to which the link `..data` then moves."""
    data, moved = target / "..data", target / "..data_tmp"
    folder = target / f"..{len(list(target.iterdir()))}"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    moved.symlink_to(folder.name)
    moved.replace(data)
    for name in files:
        if not (target / name).is_symlink():
            (target / name).symlink_to(Path("..data", name))
