# SPDX-License-Identifier: Apache-2.0
"""A run of a simulation program: its output is captured up to a limit, and all its processes end with it.

The program is never started through a shell. It leads a process group of its own, so that its child processes end with
it. The group receives SIGTERM first, because a licensed program must be able to return its seat, then SIGKILL. On
Windows, ``taskkill`` ends the process tree.

A descendant can leave the process group (``setsid``). Every run therefore has a unique variable in its environment,
which all descendants inherit. On Linux, the processes with this variable are killed after the program has ended. Only a
descendant that leaves the group and also clears its environment survives, until its machine ends.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from pathlib import Path
from typing import IO, Callable, Iterator, Mapping, Optional, Sequence, Union

from simyard_adapter.errors import ActionCancelledError

MAX_OUTPUT_CHARACTERS = 4 * 2**20
"""Limit of the characters that are kept of each output stream; the end of the stream is kept."""

PROGRAM_VARIABLE = "SIMYARD_PROGRAM"
"""The environment variable that identifies the run to which a process belongs: its directory and a random number."""

MAX_SCANS = 20
"""Limit of the scans for processes of an ended program: a process that one scan finds may have started others."""

MAX_LINE_CHARACTERS = 64 * 2**10
TERMINATION_GRACE_SECONDS = 5.0
_DRAIN_SECONDS = 2.0


class CompletedProgram(subprocess.CompletedProcess[str]):
    """A program that has ended.

    Attributes:
        cut: True if ``stdout`` lacks the beginning of the output.
    """

    cut = False


class Program:
    """A running program. One thread calls :meth:`wait`; any thread may call :meth:`terminate`."""

    def __init__(
        self,
        args: Sequence[str],
        *,
        directory: Path,
        stdin: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
    ) -> None:
        """Start the program.

        Raises:
            OSError: The program cannot be started.
            ValueError: An argument contains a NUL character.
        """
        self._args = [str(arg) for arg in args]
        self._lock = threading.Lock()
        self._ended = False
        self._terminated = False
        self._killer: Optional[threading.Timer] = None
        self._mark = f"{directory.resolve()}{os.sep}#{secrets.token_hex(8)}"
        with _as_file(stdin) as source:
            self._process = subprocess.Popen(
                self._args,
                cwd=directory,
                env={**os.environ, **(env or {}), PROGRAM_VARIABLE: self._mark},
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
            )

    def wait(
        self,
        on_stdout: Optional[Callable[[str], None]] = None,
        on_stderr: Optional[Callable[[str], None]] = None,
    ) -> CompletedProgram:
        """Wait for the end; ``on_stdout`` and ``on_stderr`` receive each line, in threads of their own.

        Raises:
            ActionCancelledError: :meth:`terminate` was called.
            Exception: The exception that ``on_stdout`` or ``on_stderr`` raised; the program was ended.
        """
        pumps = [
            _Pump(self._process.stdout, on_stdout, self.terminate),
            _Pump(self._process.stderr, on_stderr, self.terminate),
        ]
        self._reap()
        for pump in pumps:
            pump.join(_DRAIN_SECONDS)
        for pump in pumps:
            if pump.error is not None:
                raise pump.error
        if self._terminated:
            raise ActionCancelledError("the program was ended because its invocation stopped")
        done = CompletedProgram(self._args, self._process.returncode, pumps[0].get_text(), pumps[1].get_text())
        done.cut = pumps[0].cut
        return done

    def terminate(self) -> None:
        """Start to end the program and its descendants; this returns at once."""
        with self._lock:
            if self._ended or self._terminated:
                return
            self._terminated = True
            self._signal(kill=False)
            self._killer = threading.Timer(TERMINATION_GRACE_SECONDS, self._kill)
            self._killer.daemon = True
            self._killer.start()

    def _kill(self) -> None:
        with self._lock:
            if not self._ended:
                self._signal(kill=True)

    def _reap(self) -> None:
        if sys.platform != "win32":
            # The leader stays a zombie until the rest of its group is gone, so its id cannot belong to another process.
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
            with self._lock:
                self._signal(kill=True)
                self._ended = True
                self._process.wait()
            _kill_marked(self._mark)
        else:
            self._process.wait()
            with self._lock:
                self._ended = True
        if self._killer is not None:
            self._killer.cancel()

    def _signal(self, *, kill: bool) -> None:
        if sys.platform != "win32":
            # macOS refuses to signal a group of zombies.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL if kill else signal.SIGTERM)
        else:
            subprocess.run(
                ["taskkill", "/T", "/F", "/PID", str(self._process.pid)],
                check=False,
                capture_output=True,
                timeout=TERMINATION_GRACE_SECONDS,
            )


class _Pump(threading.Thread):
    """A thread that reads one stream to its end, keeps the last part and passes each line on."""

    def __init__(
        self, stream: Optional[IO[str]], on_line: Optional[Callable[[str], None]], fail: Callable[[], None]
    ) -> None:
        super().__init__(daemon=True)
        assert stream is not None
        self._stream = stream
        self._on_line = on_line
        self._fail = fail
        self._kept: deque[str] = deque()
        self._size = 0
        self.error: Optional[Exception] = None
        self.cut = False
        self.start()

    def run(self) -> None:
        with self._stream:
            for line in iter(lambda: self._stream.readline(MAX_LINE_CHARACTERS), ""):
                self._keep(line)
                if self._on_line is not None and self.error is None:
                    try:
                        self._on_line(line.rstrip("\r\n"))
                    except Exception as error:  # noqa: BLE001 - the connector's own code: handed to wait()
                        self.error = error
                        self._fail()

    def _keep(self, line: str) -> None:
        self._kept.append(line)
        self._size += len(line)
        while self._size > MAX_OUTPUT_CHARACTERS:
            self._size -= len(self._kept.popleft())
            self.cut = True

    def get_text(self) -> str:
        """Return the kept part of the stream."""
        return "".join(tuple(self._kept))


@contextlib.contextmanager
def _as_file(text: Optional[str]) -> Iterator[Union[int, IO[bytes]]]:
    """Return a file with the text for standard input: it needs no writing thread and cannot block."""
    if text is None:
        yield subprocess.DEVNULL
        return
    with tempfile.TemporaryFile() as file:
        file.write(text.encode())
        file.seek(0)
        yield file


def _kill_marked(mark: str) -> int:
    """Kill the processes whose :data:`PROGRAM_VARIABLE` starts with ``mark``; return their number (Linux only)."""
    killed: set[int] = set()
    start = f"{PROGRAM_VARIABLE}={mark}".encode()
    for _ in range(MAX_SCANS):
        found = [pid for pid in _own_processes() if _kill_if(pid, start)]
        if not found:
            break
        killed.update(found)
    return len(killed)


def _own_processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*") if int(entry.name) != os.getpid()]


def _kill_if(pid: int, start: bytes) -> bool:
    """Kill a process if a variable in its environment starts with ``start``; return True if it was killed.

    The pidfd ensures that the id has not passed to another process meanwhile.
    """
    try:
        handle = os.pidfd_open(pid)
    except (OSError, AttributeError):  # The process is gone, or the kernel or the system has no pidfds.
        return False
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if any(variable.startswith(start) for variable in variables):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            return True
    except OSError:  # The process has ended, or it belongs to another user.
        return False
    finally:
        os.close(handle)
    return False


def clear_leftovers(directory: Path) -> int:
    """End the programs that a killed adapter left running below ``directory``, delete it, and return their number."""
    ended = end_leftovers(directory)
    shutil.rmtree(directory, ignore_errors=True)
    return ended


def end_leftovers(directory: Path) -> int:
    """Kill the processes that a killed adapter left running below ``directory``; return their number (Linux only)."""
    root = str(directory.resolve())
    ended = _kill_marked(root + os.sep)
    for entry in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            working = str(entry.readlink())
            if (working == root or working.startswith(root + os.sep)) and int(entry.parent.name) != os.getpid():
                os.kill(int(entry.parent.name), signal.SIGKILL)
                ended += 1
    return ended
