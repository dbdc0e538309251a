# SPDX-License-Identifier: Apache-2.0
"""Runs a child process as an emulated machine: in its own group, with a bounded log. It ends with this process."""

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
_LAST_READS = 16  # The contents of a full pipe; a process that escaped may continue to write.
_LAST_LINE_BYTES = 500
# setpriv of util-linux; the setting is inherited by the program that it starts, see prctl(2).
_DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")


class BoundedLog:
    """A log file of at most 1 MiB. A full log file is renamed to ``<name>.1``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = path.stat().st_size if path.exists() else 0
        self._tail = b""

    @property
    def last_line(self) -> str:
        """The last line that is not empty; of a long line only the end."""
        return self._tail.rstrip().rpartition(b"\n")[2].decode(errors="replace").strip()

    def write(self, data: bytes) -> None:
        """Append data; data that cannot be written (a full disk) is lost."""
        self._tail = (self._tail + data)[-_LAST_LINE_BYTES:]
        with contextlib.suppress(OSError):
            if self._size + len(data) > _LOG_BYTES:
                self._path.replace(self._path.with_name(self._path.name + ".1"))
                self._size = 0
            with self._path.open("ab") as file:
                file.write(data)
            self._size += len(data)


class Child:
    """A running process, the leader of a separate session. It and its group are killed when this process ends.

    ``exited`` is called with the exit code (negative: the signal) when the process has ended and its output is in the
    log. Of our environment, the process inherits only paths and language. Create it in a running event loop.

    Raises:
        OSError: The process cannot be started.
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
        """The process id, which is also the id of its group."""
        return self._process.pid

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group."""
        if not self.exited.done():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def terminate(self, grace_seconds: float) -> None:
        """Ask the group to end, and kill it when the grace period has passed."""
        self.send_signal(signal.SIGTERM)
        self.send_signal(signal.SIGCONT)
        if self._kill_timer is None:
            self._kill_timer = self._loop.call_later(grace_seconds, self.send_signal, signal.SIGKILL)

    def _read_output(self) -> bool:
        """Move the available output into the log; return False when there is no more for now."""
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
        self.send_signal(signal.SIGKILL)  # Kill the processes that it left in its group.
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
    """Kill every process of a machine below ``directory``, wait until all have ended, and return their number."""
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
    return copy_environment() | {"HOME": str(directory), MARK: f"{directory}/"}


def copy_environment() -> dict[str, str]:
    """Return the part of our environment that another program may see: paths and language, no secrets."""
    return {name: os.environ[name] for name in _INHERITED if name in os.environ}
