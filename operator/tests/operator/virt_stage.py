# SPDX-License-Identifier: Apache-2.0
"""KubeVirt for operators of tests.

Its definitions and the API server are real, and its controllers are simulated. A guest is an adapter process, which
is started from the machine's Secret and firmware as a guest would start it.
"""

from __future__ import annotations

import asyncio
import base64
import email
import gzip
import re
import subprocess
import sys
import threading
from contextlib import AsyncExitStack
from pathlib import Path

from kube_api import Api
from simyard.api.base import Json
from simyard_dev.controlplane import ControlPlane
from simyard_simulators.kube_front import KubeFront
from simyard_simulators.virt import SimulatedKubeVirt
from simyard_simulators.virt.subresources import routes
from simyard_sites.guest.start_script import VARIABLE
from simyard_sites.kubernetes.client import KubeClient

_POLL_SECONDS = 0.1
_ADAPTER = [sys.executable, "-m", "simyard_adapter", "run"]


def document_of(secret: Json) -> bytes:
    """The bootstrap document in a Secret with user data."""
    message = email.message_from_bytes(base64.b64decode(secret["data"]["userdata"]))
    [script] = [part for part in message.walk() if part.get_content_type() == "text/cloud-boothook"]
    found = re.search(rf"^{VARIABLE}='([A-Za-z0-9+/=\s]+)'", str(script.get_payload()), re.MULTILINE)
    assert found, "the script brings the document"
    return gzip.decompress(base64.b64decode(found[1]))


class VirtStage:
    """The machines of one namespace; runs as long as it is entered."""

    def __init__(self, control_plane: ControlPlane, namespace: str, directory: Path) -> None:
        self._control_plane = control_plane
        self._namespace = namespace
        self._directory = directory
        self._loop = asyncio.new_event_loop()
        self._open = AsyncExitStack()
        self._guests: dict[str, subprocess.Popen[bytes]] = {}
        self._api = Api(control_plane.kubeconfig)
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=run) for run in (self._loop.run_forever, self._play_guests)]
        self.front: KubeFront
        self._simulated: SimulatedKubeVirt

    def __enter__(self) -> VirtStage:
        self._threads[0].start()
        asyncio.run_coroutine_threadsafe(self._begin(), self._loop).result(60)
        self._threads[1].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._threads[1].join()
        for guest in self._guests.values():
            guest.kill()
            guest.wait()
        asyncio.run_coroutine_threadsafe(self._open.aclose(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._threads[0].join()
        self._loop.close()

    def machines(self) -> list[Json]:
        path = f"/apis/kubevirt.io/v1/namespaces/{self._namespace}/virtualmachineinstances"
        return list(self._api.request("GET", path).body["items"])

    def evacuate(self, name: str) -> None:
        drained = self._simulated.evacuate(self._namespace, name)
        asyncio.run_coroutine_threadsafe(drained, self._loop).result(60)

    async def _begin(self) -> None:
        client = await self._open.enter_async_context(await KubeClient.connect(self._control_plane.kubeconfig))
        self._simulated = SimulatedKubeVirt(client, namespace=self._namespace)
        await self._open.enter_async_context(self._simulated.running())
        server, authority = self._control_plane.server, str(self._control_plane.authority)
        front = KubeFront(server, authority, "virtualmachineinstances", routes(self._simulated))
        self.front = await self._open.enter_async_context(front.serving())

    def _play_guests(self) -> None:
        api = Api(self._control_plane.kubeconfig)
        path = f"/apis/kubevirt.io/v1/namespaces/{self._namespace}/virtualmachineinstances"
        while not self._ends.wait(_POLL_SECONDS):
            machines = {item["metadata"]["uid"]: item for item in api.request("GET", path).body["items"]}
            for uid, machine in machines.items():
                if uid not in self._guests and (machine.get("status") or {}).get("phase") == "Running":
                    self._guests[uid] = self._boot(api, machine)
            for uid in self._guests.keys() - machines.keys():
                guest = self._guests.pop(uid)
                guest.terminate()
                guest.wait()

    def _boot(self, api: Api, machine: Json) -> subprocess.Popen[bytes]:
        [seed] = [item for item in machine["spec"]["volumes"] if "cloudInitNoCloud" in item]
        name = seed["cloudInitNoCloud"]["secretRef"]["name"]
        secret = api.request("GET", f"/api/v1/namespaces/{self._namespace}/secrets/{name}").body
        directory = self._directory / machine["metadata"]["name"]
        directory.mkdir()
        (directory / "bootstrap.json").write_bytes(document_of(secret))
        firmware = machine["spec"]["domain"]["firmware"]
        identity = [f"--worker={firmware['serial']}", f"--worker-uid={firmware['uuid']}"]
        where = [f"--bootstrap={directory / 'bootstrap.json'}", f"--directory={directory}"]
        with (directory / "log").open("wb") as log:
            return subprocess.Popen([*_ADAPTER, *where, *identity], cwd=directory, stdout=log, stderr=log)
