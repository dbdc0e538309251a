# SPDX-License-Identifier: Apache-2.0
"""Defines the guests of emulated machines, the directories of the machines, and guests that are processes."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from simyard_sites.base import MachineRequest
from simyard_sites.emulated.child import BoundedLog, Child, end_leftovers
from simyard_sites.emulated.service import UnusableError, keep_running

ADAPTER = (sys.executable, "-m", "simyard_adapter", "run")
BOOTSTRAP_FILE = "bootstrap.json"
REQUEST_FILE = "machine.json"
EXIT_UNUSABLE = 3  # The adapter's EXIT_START: its bootstrap document or its connector is wrong.
GRACE_SECONDS = 20.0  # The adapter takes up to 15 s to end its programs.


class GuestListener(Protocol):
    """The receiver of messages about guests that have ended.

    The event loop calls it, never a method of :class:`Guests`.
    """

    def guest_ended(self, machine_id: str) -> None:
        """Handle the end of a guest that was asked to end; all its processes have ended."""
        ...

    def guest_failed(self, machine_id: str, message: str) -> None:
        """Handle the end of a guest that would fail again at every start; all its processes have ended."""
        ...


class Guests(Protocol):
    """The guests of one kind, by machine id. It starts a guest again that ends by itself, as a service manager does."""

    def run(self, machine_id: str) -> None:
        """Start the guest, or continue a frozen one."""
        ...

    def freeze(self, machine_id: str) -> None:
        """Suspend a guest."""
        ...

    def end(self, machine_id: str) -> bool:
        """Start to end a guest; return False if there is none. Call the listener when it has ended."""
        ...

    async def aclose(self) -> None:
        """End all guests, without calls to the listener."""
        ...


@dataclass(frozen=True, slots=True)
class Disks:
    """The directories of the machines, with the bootstrap documents. Only the user of this process can read them.

    For a machine without a pool, :data:`REQUEST_FILE` contains the other fields of its request, which have no effect.
    All methods that change files block: call them from a thread.
    """

    root: Path

    def get_path(self, machine_id: str) -> Path:
        """Return the directory of a machine."""
        return self.root / machine_id

    def make(self, requests: Mapping[str, MachineRequest]) -> None:
        """Create the directories of new machines, all or none.

        Raises:
            OSError: The directories cannot be created.
        """
        try:
            for machine_id, request in requests.items():
                self.get_path(machine_id).mkdir(mode=0o700, exist_ok=True)
                self._write(machine_id, BOOTSTRAP_FILE, request.bootstrap)
                if not request.owner.pool:
                    self._write(machine_id, REQUEST_FILE, json.dumps(_asked(request), indent=1).encode())
        except OSError:
            self.remove(requests)
            raise

    def _write(self, machine_id: str, name: str, content: bytes) -> None:
        document = os.open(self.get_path(machine_id) / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(document, "wb") as file:
            file.write(content)

    def remove(self, machine_ids: Iterable[str]) -> None:
        """Delete the directories of machines whose guests have ended."""
        for machine_id in machine_ids:
            shutil.rmtree(self.get_path(machine_id), ignore_errors=True)

    def clear(self) -> None:
        """Delete the directories of all machines."""
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir(mode=0o700)


def _asked(request: MachineRequest) -> dict[str, Any]:
    return {
        "cores": request.cores,
        "memoryMib": request.memory_mib,
        "hostname": request.hostname,
        "userData": request.user_data,
        "sshPublicKeys": list(request.ssh_public_keys),
    }


class ProcessGuests:
    """The guests that are processes, one per machine: the service adapter, or ``command`` with the same arguments."""

    def __init__(
        self, disks: Disks, tasks: asyncio.TaskGroup, listener: GuestListener, command: Sequence[str] = ADAPTER
    ) -> None:
        self._disks = disks
        self._tasks = tasks
        self._listener = listener
        self._command = command
        self._guests: dict[str, _ProcessGuest] = {}
        self._kept: set[asyncio.Task[None]] = set()
        self._closing = False

    def run(self, machine_id: str) -> None:
        """Start the process of a guest, or continue a frozen one."""
        guest = self._guests.get(machine_id)
        if guest:
            guest.freeze(False)
        elif not self._closing:
            directory = self._disks.get_path(machine_id)
            files = ("--bootstrap", str(directory / BOOTSTRAP_FILE), "--directory", str(directory))
            guest = self._guests[machine_id] = _ProcessGuest((*self._command, *files), directory)
            task = self._tasks.create_task(self._keep(machine_id, guest))
            self._kept.add(task)
            task.add_done_callback(self._kept.discard)

    def freeze(self, machine_id: str) -> None:
        """Stop the processes of a guest (SIGSTOP); they keep their memory."""
        if machine_id in self._guests:
            self._guests[machine_id].freeze(True)

    def end(self, machine_id: str) -> bool:
        """Send SIGTERM to the guest's processes, and SIGKILL after ``GRACE_SECONDS``."""
        guest = self._guests.get(machine_id)
        if guest:
            guest.end()
        return guest is not None

    async def aclose(self) -> None:
        """End all guests."""
        self._closing = True
        for guest in self._guests.values():
            guest.end()
        if self._kept:
            await asyncio.wait(self._kept)

    async def _keep(self, machine_id: str, guest: _ProcessGuest) -> None:
        failure = None
        try:
            await keep_running(guest.run, guest.ending, guest.report)
        except UnusableError as error:
            failure = str(error)
        del self._guests[machine_id]
        if self._closing:
            return
        if failure is None or guest.ending.is_set():
            self._listener.guest_ended(machine_id)
        else:
            self._listener.guest_failed(machine_id, failure)


class _ProcessGuest:
    def __init__(self, command: Sequence[str], directory: Path) -> None:
        self.ending = asyncio.Event()
        self._command = command
        self._directory = directory
        self._log = BoundedLog(directory / "guest.log")
        self._child: Child | None = None
        self._frozen = False

    def freeze(self, frozen: bool) -> None:
        self._frozen = frozen
        if self._child:
            self._child.send_signal(signal.SIGSTOP if frozen else signal.SIGCONT)

    def end(self) -> None:
        self.ending.set()
        if self._child:
            self._child.terminate(GRACE_SECONDS)

    async def run(self) -> str:
        try:
            self._child = Child(self._command, self._directory, self._log)
        except OSError as error:
            return str(error)
        if self._frozen:
            self._child.send_signal(signal.SIGSTOP)
        code = await self._child.exited
        self._child = None
        if code:
            end_leftovers(self._directory)
        if code == EXIT_UNUSABLE:
            raise UnusableError(self._log.last_line or f"exit code {code}")
        return f"exit code {code}"

    def report(self, line: str) -> None:
        self._log.write(f"emulated cloud: the guest {line}\n".encode())
