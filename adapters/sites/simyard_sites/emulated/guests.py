"""What runs inside the machines of an emulated cloud: the interface, the machines' directories, process guests."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from simyard_sites.emulated.child import BoundedLog, Child, end_leftovers

EXIT_UNUSABLE = 78  # EX_CONFIG of sysexits.h: what the adapter was given can never work
ADAPTER = (sys.executable, "-m", "simyard_adapter", "run")
GRACE_SECONDS = 5.0
_SHORTEST_DELAY_SECONDS = 1.0
_LONGEST_DELAY_SECONDS = 30.0
_STEADY_SECONDS = 60.0


class GuestListener(Protocol):
    """Hears from guests; both are called from the event loop, never from within a call to :class:`Guests`."""

    def guest_ended(self, machine_id: str) -> None:
        """It has ended as it was told to; nothing of it runs any more."""
        ...

    def guest_failed(self, machine_id: str, message: str) -> None:
        """It ended by itself and can never work; nothing of it runs any more."""
        ...


class Guests(Protocol):
    """The guests of one kind, by machine id. One that ends by itself is started again, as a service manager would."""

    def run(self, machine_id: str) -> None:
        """Start the guest, or let a frozen one go on."""
        ...

    def freeze(self, machine_id: str) -> None:
        """Stop the clock of a guest."""
        ...

    def end(self, machine_id: str) -> bool:
        """Begin to end a guest; False says that there is none, else the listener hears of the end."""
        ...

    async def aclose(self) -> None:
        """End all guests; the listener hears nothing of it."""
        ...


@dataclass(frozen=True, slots=True)
class Disks:
    """The directories of the machines, each readable by us alone, with the document that its guest starts from."""

    root: Path

    def path(self, machine_id: str) -> Path:
        """The directory of a machine."""
        return self.root / machine_id

    def bootstrap(self, machine_id: str) -> Path:
        """The bootstrap document of a machine (mode 0600)."""
        return self.root / machine_id / "bootstrap.json"

    def make(self, machine_id: str, bootstrap: bytes) -> None:
        """Make the directory of a new machine."""
        self.path(machine_id).mkdir(mode=0o700)
        document = self.bootstrap(machine_id)
        document.touch(mode=0o600, exist_ok=False)
        document.write_bytes(bootstrap)

    def remove(self, machine_ids: Iterable[str]) -> None:
        """Remove the directories of machines whose guests have ended."""
        for machine_id in machine_ids:
            shutil.rmtree(self.path(machine_id), ignore_errors=True)

    def clear(self) -> None:
        """Start with no machines."""
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir(mode=0o700)


class Backoff:
    """How long a service manager waits before it starts something again: 1 s, up to 30 s while it is unsteady."""

    def __init__(self) -> None:
        self._seconds = _SHORTEST_DELAY_SECONDS

    def after(self, ran_seconds: float) -> float:
        """The delay in seconds after it ran that long."""
        delay = _SHORTEST_DELAY_SECONDS if ran_seconds >= _STEADY_SECONDS else self._seconds
        self._seconds = min(delay * 2, _LONGEST_DELAY_SECONDS)
        return delay


class ProcessGuests:
    """One process per machine: the service adapter, or ``command`` with the same arguments."""

    def __init__(
        self, disks: Disks, tasks: asyncio.TaskGroup, listener: GuestListener, command: Sequence[str] = ADAPTER
    ) -> None:
        self._disks = disks
        self._tasks = tasks
        self._listener = listener
        self._command = command
        self._guests: dict[str, _ProcessGuest] = {}
        self._closing = False

    def run(self, machine_id: str) -> None:
        """See :class:`Guests`."""
        guest = self._guests.get(machine_id)
        if guest:
            guest.freeze(False)
        elif not self._closing:
            directory = self._disks.path(machine_id)
            files = ("--bootstrap", str(self._disks.bootstrap(machine_id)), "--directory", str(directory))
            guest = self._guests[machine_id] = _ProcessGuest((*self._command, *files), directory)
            self._tasks.create_task(self._keep(machine_id, guest))

    def freeze(self, machine_id: str) -> None:
        """See :class:`Guests`: its processes are stopped (SIGSTOP) and keep their memory."""
        if machine_id in self._guests:
            self._guests[machine_id].freeze(True)

    def end(self, machine_id: str) -> bool:
        """See :class:`Guests`: SIGTERM to its processes, SIGKILL after ``GRACE_SECONDS``."""
        guest = self._guests.get(machine_id)
        if guest:
            guest.end()
        return guest is not None

    async def aclose(self) -> None:
        """See :class:`Guests`."""
        self._closing = True
        guests = list(self._guests.values())
        for guest in guests:
            guest.end()
        for guest in guests:
            await guest.ended.wait()

    async def _keep(self, machine_id: str, guest: _ProcessGuest) -> None:
        failure = await guest.keep_running()
        del self._guests[machine_id]
        if self._closing:
            return
        if failure is None:
            self._listener.guest_ended(machine_id)
        else:
            self._listener.guest_failed(machine_id, failure)


class _ProcessGuest:
    def __init__(self, command: Sequence[str], directory: Path) -> None:
        self.ended = asyncio.Event()
        self._command = command
        self._directory = directory
        self._log = BoundedLog(directory / "guest.log")
        self._child: Child | None = None
        self._ending = asyncio.Event()
        self._frozen = False

    def freeze(self, frozen: bool) -> None:
        self._frozen = frozen
        if self._child:
            self._child.signal(signal.SIGSTOP if frozen else signal.SIGCONT)

    def end(self) -> None:
        self._ending.set()
        if self._child:
            self._child.terminate(GRACE_SECONDS)

    async def keep_running(self) -> str | None:
        """Start it again whenever it ends, until it was told to end (None) or says that it can never work (why)."""
        loop = asyncio.get_running_loop()
        backoff = Backoff()
        try:
            while not self._ending.is_set():
                started = loop.time()
                code = await self._run_once()
                if self._ending.is_set():
                    break
                if code == EXIT_UNUSABLE:
                    return self._log.last_line or f"the guest ended with exit code {code}"
                delay = backoff.after(loop.time() - started)
                self._log.write(f"emulated cloud: the guest ended ({code}); next start in {delay:.0f} s\n".encode())
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._ending.wait(), delay)
            return None
        finally:
            self.ended.set()

    async def _run_once(self) -> int | OSError:
        """Its exit code, or why it could not be started."""
        try:
            self._child = Child(self._command, self._directory, self._log)
        except OSError as error:
            return error
        if self._frozen:
            self._child.signal(signal.SIGSTOP)
        code = await self._child.exited
        self._child = None
        if code:
            end_leftovers(self._directory)
        return code
