# SPDX-License-Identifier: Apache-2.0
"""Run processes that outlive the command that started them; later commands find and stop them by a pid file.

The kernel reuses pids, so a pid alone could name a later process, which a command would then kill by mistake. The pid
file therefore also records the start time. Each process has a separate session and a separate log file.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from simyard_dev.errors import SetupError
from simyard_dev.files import write_whole

# Other programs write files named ".pid", without a start time.
PID_SUFFIX = ".process"
POLL_SECONDS = 0.05
KILL_SECONDS = 10.0
LOG_TAIL_LINES = 20

# Children of this very process: without a wait for them they stay as zombies.
_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True)
class Identity:
    """The unique identity of a process: its pid, and its start time in clock ticks since the machine's boot."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> "Identity | None":
        """Return the identity of a living process; None if it has ended (a zombie has ended)."""
        child = _children.get(pid)
        if child and child.poll() is not None:
            _children.pop(pid, None)
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return None
        # Field 2, the name, is in parentheses and may contain any character (proc(5)).
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] in "ZX" else cls(pid, int(fields[19]))

    def is_alive(self) -> bool:
        """Return true if this process still runs; false if it has ended or another process has its pid."""
        return Identity.of(self.pid) == self

    def wait_gone(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for the end of this process; return whether it has ended."""
        deadline = time.monotonic() + seconds
        while self.is_alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def __str__(self) -> str:
        return f"{self.pid} {self.started}"

    @classmethod
    def parse(cls, text: str) -> "Identity":
        """Return the identity that `str()` of an identity wrote."""
        pid, started = text.split()
        return cls(int(pid), int(started))


class Process:
    """A named process of an environment: `NAME.process` and `NAME.log` in one directory."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self.pid_file = directory / f"{name}{PID_SUFFIX}"
        self.log_file = directory / f"{name}.log"

    @property
    def identity(self) -> Identity | None:
        """The process that the pid file records; None if it does not run."""
        try:
            recorded = Identity.parse(self.pid_file.read_text())
        except FileNotFoundError:
            return None
        return recorded if recorded.is_alive() else None

    def is_alive(self) -> bool:
        """Return whether the process runs."""
        return self.identity is not None

    def start(self, command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> None:
        """Start the process unless it runs; its log replaces that of an earlier one.

        Raises:
            SetupError: the program cannot be executed.
        """
        if self.is_alive():
            return
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("wb") as log:
            try:
                child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    cwd=self.log_file.parent,
                    start_new_session=True,
                )
            except OSError as error:
                raise SetupError(f"{self.name} cannot be started: {error}") from error
        _children[child.pid] = child
        identity = Identity.of(child.pid)
        if identity:
            write_whole(self.pid_file, f"{identity}\n")

    def wait_ready(self, is_ready: Callable[[], bool], deadline_seconds: float) -> None:
        """Wait until `is_ready` returns true.

        Raises:
            SetupError: the process ended, or the deadline passed; the message contains the end of its log.
        """
        deadline = time.monotonic() + deadline_seconds
        while not is_ready():
            if not self.is_alive():
                raise SetupError(f"{self.name} ended before it was ready.\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise SetupError(f"{self.name} was not ready after {deadline_seconds:.0f} s.\n{self.log_tail()}")
            time.sleep(POLL_SECONDS)

    def stop(self, grace_seconds: float) -> None:
        """Stop the process and its whole session: SIGTERM, then SIGKILL after the grace period."""
        identity = self.identity
        if identity and grace_seconds:
            os.kill(identity.pid, signal.SIGTERM)
            identity.wait_gone(grace_seconds)
        self.kill()

    def kill(self) -> None:
        """Kill the process and its whole session at once, as a crash would."""
        identity = self.identity
        if identity:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(identity.pid, signal.SIGKILL)
            if not identity.wait_gone(KILL_SECONDS):
                raise SetupError(f"{self.name} (pid {identity.pid}) still runs {KILL_SECONDS:.0f} s after SIGKILL")
        self.pid_file.unlink(missing_ok=True)

    def log_tail(self) -> str:
        """Return the last lines of the log, for an error message."""
        try:
            lines = self.log_file.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            lines = []
        return "\n".join([f"The end of {self.log_file}:", *lines[-LOG_TAIL_LINES:]])


def kill_all(directory: Path) -> bool:
    """Kill every process with a pid file in or below the directory; return whether one ran."""
    # rglob() fails when a process removes a folder meanwhile.
    files = [Path(folder, name) for folder, _, names in os.walk(directory) for name in names]
    processes = [Process(file.parent, file.stem) for file in files if file.suffix == PID_SUFFIX]
    alive = [process for process in processes if process.is_alive()]
    for process in alive:
        process.kill()
    return bool(alive)
