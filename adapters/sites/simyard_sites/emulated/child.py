"""A child process as a machine of an emulated cloud has it: a group of its own, a bounded log, no way to survive us."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

MARK = "SIMYARD_EMULATED_MACHINE"
"""The environment variable that every process in a machine has: the machine's directory."""
_INHERITED = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ", "TMPDIR")
_LOG_BYTES = 2**20
_READ_BYTES = 2**16
_LAST_READS = 16  # a pipe holds one of them; something that escaped may go on writing
_LAST_LINE_BYTES = 500
_DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")  # of util-linux; what is started inherits it, prctl(2)


class BoundedLog:
    """A log file of at most 1 MiB; when it is full it becomes ``<name>.1`` in place of the one before."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = path.stat().st_size if path.exists() else 0
        self._tail = b""

    @property
    def last_line(self) -> str:
        """The last line that says something, shortened to its end."""
        return self._tail.rstrip().rpartition(b"\n")[2].decode(errors="replace").strip()

    def write(self, data: bytes) -> None:
        """Append; what cannot be written (a full disk) is lost."""
        self._tail = (self._tail + data)[-_LAST_LINE_BYTES:]
        with contextlib.suppress(OSError):
            if self._size + len(data) > _LOG_BYTES:
                self._path.replace(self._path.with_name(self._path.name + ".1"))
                self._size = 0
            with self._path.open("ab") as file:
                file.write(data)
            self._size += len(data)


class Child:
    """A running process, leader of a session of its own; it and its group die when this process dies.

    ``exited`` gets the exit code (negative: the signal) once it has ended and has been reaped, and its output is in the
    log. It inherits nothing of our environment but paths and language. To be used in a running event loop.

    Raises:
        OSError: the process cannot be started.
    """

    def __init__(self, args: Sequence[str], directory: Path, log: BoundedLog, stdin: int = subprocess.DEVNULL) -> None:
        self._loop = asyncio.get_running_loop()
        self._log = log
        self._kill_timer: asyncio.TimerHandle | None = None
        self.exited: asyncio.Future[int] = self._loop.create_future()
        self._output, output = os.pipe()
        try:
            self._process = subprocess.Popen(
                [*_DIE_WITH_PARENT, *args],
                stdin=stdin,
                stdout=output,
                stderr=output,
                cwd=directory,
                env=_environment(directory),
                start_new_session=True,
            )
        except OSError:
            os.close(self._output)
            raise
        finally:
            os.close(output)
        try:
            self._pidfd = os.pidfd_open(self._process.pid)
        except OSError:
            os.close(self._output)
            self._process.kill()
            self._process.wait()
            raise
        os.set_blocking(self._output, False)
        self._loop.add_reader(self._output, self._read_output)
        self._loop.add_reader(self._pidfd, self._reap)

    @property
    def pid(self) -> int:
        """The process id, which is also its group's."""
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group."""
        if not self.exited.done():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def terminate(self, grace_seconds: float) -> None:
        """Ask the group to end, and kill it when it has not done so in time."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)
        if self._kill_timer is None:
            self._kill_timer = self._loop.call_later(grace_seconds, self.signal, signal.SIGKILL)

    def _read_output(self) -> bool:
        """Move what is there into the log; False when there is nothing for now."""
        try:
            data = os.read(self._output, _READ_BYTES)
        except BlockingIOError:
            return False
        if data:
            self._log.write(data)
        else:
            self._loop.remove_reader(self._output)
        return bool(data)

    def _reap(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self.signal(signal.SIGKILL)  # what it left behind in its group
        code = self._process.wait()
        if self._kill_timer:
            self._kill_timer.cancel()
        for _ in range(_LAST_READS):
            if not self._read_output():
                break
        self._loop.remove_reader(self._output)
        os.close(self._output)
        self.exited.set_result(code)


def end_leftovers(directory: Path, timeout_seconds: float = 1.0) -> int:
    """Kill every process that runs in a machine below ``directory``, and wait until it is dead; returns how many."""
    mark = f"{MARK}={directory}/".encode()
    pidfds = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (process / "environ").read_bytes():
                pidfd = os.pidfd_open(int(process.name))
                pidfds.append(pidfd)
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    for pidfd in pidfds:
        death = select.poll()
        death.register(pidfd, select.POLLIN)
        death.poll(timeout_seconds * 1000)
        os.close(pidfd)
    return len(pidfds)


def _environment(directory: Path) -> dict[str, str]:
    return inherited_environment() | {"HOME": str(directory), MARK: f"{directory}/"}


def inherited_environment() -> dict[str, str]:
    """What of our environment another program may know: where to find things and how to write; no secrets."""
    return {name: os.environ[name] for name in _INHERITED if name in os.environ}
