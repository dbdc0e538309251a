# SPDX-License-Identifier: Apache-2.0
"""Plays the hosts of a simulated oned: runs what the CONTEXT of a machine that is RUNNING says, as a process.

Played: unpacking SIMYARD_BOOTSTRAP and starting the adapter, as START_SCRIPT does; power off and end. Not played:
images, disks, networks, contextualisation packages.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import os
import subprocess
import sys
import threading
from pathlib import Path

from simyard_simulators.oned import WIDE, Lcm, Oned, Settings, State, Vm

_POLL_SECONDS = 0.05
_ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


class OneHosts:
    """A simulated cloud and its hosts in a thread, as long as it is entered; what they run ends with it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._guests: dict[int, subprocess.Popen[bytes]] = {}
        self._started = threading.Event()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="oned")
        self._loop: asyncio.AbstractEventLoop | None = None
        self.url = ""

    def __enter__(self) -> OneHosts:
        self._thread.start()
        assert self._started.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        for guest in self._guests.values():
            guest.kill()
            guest.wait()

    def vms(self) -> dict[str, Vm]:
        """The machines that are not done, by name."""
        return {vm.name: vm for vm in list(self._oned.cloud.vms.values()) if vm.state is not State.DONE}

    def fail(self, vm: Vm) -> None:
        """A machine fails, as after a crash of its host."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._oned.cloud.index, vm, State.ACTIVE, Lcm.BOOT_FAILURE)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with Oned(Settings(time_scale=0.05, cost_scale=0, scheduler=WIDE)) as self._oned:
            self.url = self._oned.url
            self._started.set()
            while not self._ends.is_set():
                for vm in list(self._oned.cloud.vms.values()):
                    self._sync(vm)
                await asyncio.sleep(_POLL_SECONDS)

    def _sync(self, vm: Vm) -> None:
        guest = self._guests.get(vm.oid)
        runs = vm.state is State.ACTIVE and vm.lcm is Lcm.RUNNING
        if runs and (guest is None or guest.poll() is not None):
            self._guests[vm.oid] = self._start(vm)
        elif not runs and guest is not None and guest.poll() is None:
            guest.terminate()

    def _start(self, vm: Vm) -> subprocess.Popen[bytes]:
        [context] = vm.template.vectors("CONTEXT")
        directory = self._directory / str(vm.oid)
        directory.mkdir(exist_ok=True)
        document = directory / "bootstrap.json"
        document.write_bytes(gzip.decompress(base64.b64decode(context["SIMYARD_BOOTSTRAP"])))
        document.chmod(0o600)
        with (directory / "log").open("ab") as log:
            return subprocess.Popen(
                ["simyard-adapter", "run", "--bootstrap", str(document), "--directory", str(directory / "state")],
                env=_ENVIRONMENT,
                cwd=directory,
                stdout=log,
                stderr=log,
            )
