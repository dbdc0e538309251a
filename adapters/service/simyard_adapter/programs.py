"""One run of a simulation program: output captured and bounded, and nothing of it left behind when it ends.

The program is never started through a shell. It leads a process group of its own, so that what it started ends with
it: SIGTERM first, because a licensed program must be able to give its seat back, then SIGKILL. On Windows the tree is
ended by ``taskkill``.

A descendant can leave the process group (``setsid``). Every program therefore gets a variable of its own in its
environment, which its descendants inherit: on Linux, processes that have it when the program has ended are killed. Only
a descendant that leaves the group and clears its environment as well survives, until its machine ends.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from pathlib import Path
from typing import IO, Callable, Iterator, Mapping, Optional, Sequence, Union

from simyard_adapter.errors import ActionCancelledError

OUTPUT_LIMIT = 4 * 2**20
"""Characters kept of each output stream; of a longer one the end is kept."""

PROGRAM_VARIABLE = "SIMYARD_PROGRAM"
"""Says in the environment of a process to which run of a program it belongs: its directory, and a random number."""

MAX_SCANS = 20
"""Limit of the scans for processes of an ended program: a process that one scan finds may have started others."""

LINE_LIMIT = 64 * 2**10
TERMINATION_GRACE_SECONDS = 5.0
_DRAIN_SECONDS = 2.0


class Program:
    """A running program. :meth:`wait` in one thread, :meth:`terminate` in any."""

    def __init__(
        self,
        args: Sequence[str],
        *,
        directory: Path,
        stdin: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
    ) -> None:
        """Start it.

        Raises:
            OSError: it cannot be started.
            ValueError: an argument holds a NUL.
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
    ) -> "subprocess.CompletedProcess[str]":
        """Wait for its end; ``on_stdout`` and ``on_stderr`` get each line, from threads of their own.

        Raises:
            ActionCancelledError: :meth:`terminate` was called.
            Exception: what ``on_stdout`` or ``on_stderr`` raised; the program was ended.
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
            raise ActionCancelledError("the program was ended")
        return subprocess.CompletedProcess(self._args, self._process.returncode, pumps[0].text(), pumps[1].text())

    def terminate(self) -> None:
        """End the program and all that it started; returns at once."""
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
            # The leader stays a zombie until the rest of its group is gone: its id cannot be somebody else's.
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
            with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS refuses a group of zombies
                os.killpg(self._process.pid, signal.SIGKILL if kill else signal.SIGTERM)
        else:
            subprocess.run(
                ["taskkill", "/T", "/F", "/PID", str(self._process.pid)],
                check=False,
                capture_output=True,
                timeout=TERMINATION_GRACE_SECONDS,
            )


class _Pump(threading.Thread):
    """Reads one stream to its end, keeps its last part and hands each line on."""

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
        self.start()

    def run(self) -> None:
        with self._stream:
            for line in iter(lambda: self._stream.readline(LINE_LIMIT), ""):
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
        while self._size > OUTPUT_LIMIT:
            self._size -= len(self._kept.popleft())

    def text(self) -> str:
        """What was kept."""
        return "".join(tuple(self._kept))


@contextlib.contextmanager
def _as_file(text: Optional[str]) -> Iterator[Union[int, IO[bytes]]]:
    """A file to read standard input from: no thread is needed to feed it, and it cannot block."""
    if text is None:
        yield subprocess.DEVNULL
        return
    with tempfile.TemporaryFile() as file:
        file.write(text.encode())
        file.seek(0)
        yield file


def _kill_marked(mark: str) -> int:
    """Kill the processes whose :data:`PROGRAM_VARIABLE` starts with ``mark``; returns how many (Linux only)."""
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
    """Kill a process if a variable in its environment starts so. A handle makes sure that it is that very process."""
    try:
        handle = os.pidfd_open(pid)
    except (OSError, AttributeError):  # it is gone; or the kernel or the system has no such handles
        return False
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if any(variable.startswith(start) for variable in variables):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            return True
    except OSError:  # it has ended, or it is somebody else's
        return False
    finally:
        os.close(handle)
    return False


def end_leftovers(directory: Path) -> int:
    """Kill what an adapter that was killed left running below ``directory``; returns how many (Linux only)."""
    root = str(directory.resolve())
    ended = _kill_marked(root + os.sep)
    for entry in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            working = str(entry.readlink())
            if (working == root or working.startswith(root + os.sep)) and int(entry.parent.name) != os.getpid():
                os.kill(int(entry.parent.name), signal.SIGKILL)
                ended += 1
    return ended
