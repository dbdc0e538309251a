"""What a running invocation is to its connector: progress, cancellation, log, scratch directory, programs."""

from __future__ import annotations

import contextlib
import math
import shutil
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Iterator, Mapping, Optional, Sequence

from simyard_adapter.errors import ActionCancelledError
from simyard_adapter.programs import Program
from simyard_adapter.wire import Reason

MESSAGE_LIMIT = 500


@dataclass(frozen=True)
class Progress:
    """How far an invocation is: ``percent`` is 0 to 100, None where it is not known."""

    percent: Optional[float] = None
    message: str = ""


class Context:
    """One running invocation of an action. Every method may be called from any thread.

    Attributes:
        invocation: its id.
        action: the name of the action.
        has_directory: the scratch directory was used.
    """

    def __init__(
        self,
        invocation: str,
        action: str,
        directory: Path,
        on_progress: Callable[["Context"], None],
        on_log: Callable[[str], None],
    ) -> None:
        self.invocation = invocation
        self.action = action
        self._directory = directory
        self._on_progress = on_progress
        self._on_log = on_log
        self._lock = threading.Lock()
        self._stopped: Optional[Reason] = None
        self._on_stop: list[Callable[[], object]] = []
        self._progress: Optional[Progress] = None
        self.has_directory = False

    @property
    def directory(self) -> Path:
        """A scratch directory of this invocation alone; it is removed when the invocation has ended."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self.has_directory = True
        return self._directory

    def remove_directory(self) -> None:
        """Remove the scratch directory."""
        shutil.rmtree(self._directory, ignore_errors=True)

    def progress(self, percent: Optional[float] = None, message: str = "") -> None:
        """Say how far it is (0 to 100). Callers see about four of these a second, and always the newest."""
        if percent is not None:
            percent = min(100.0, max(0.0, float(percent))) if math.isfinite(percent) else None
        self._progress = Progress(percent, message[:MESSAGE_LIMIT])
        self._on_progress(self)

    def log(self, text: str) -> None:
        """Add a line to the worker's log, under this invocation."""
        self._on_log(text)

    def cancel(self) -> None:
        """Cancel this invocation: its programs are ended, its next ``check_cancelled`` raises."""
        self.stop(Reason.CANCELLED)

    def check_cancelled(self) -> None:
        """Raise if the invocation is to stop: call this now and then in long computations.

        Raises:
            ActionCancelledError: it was cancelled, timed out, or the adapter ends.
        """
        if self._stopped is not None:
            raise ActionCancelledError(self._stopped.value)

    def run(
        self,
        args: Sequence[str],
        *,
        stdin: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        on_line: Optional[Callable[[str], None]] = None,
    ) -> "subprocess.CompletedProcess[str]":
        """Run a program in the scratch directory and wait for it (an async action calls this in a thread).

        Its lines go to the log. It is ended, with all that it started, when the invocation is cancelled or times out.

        Args:
            args: the program and its arguments; no shell is involved.
            stdin: text for its standard input.
            env: variables that it gets besides the adapter's own.
            on_line: gets each line of its standard output, in another thread.

        Returns:
            Its exit code and the last 4 MiB of each of its output streams; a failure is for the caller to judge.

        Raises:
            ActionCancelledError: the invocation was cancelled or timed out.
            OSError: the program cannot be started.
        """
        self.check_cancelled()
        program = Program(args, directory=self.directory, stdin=stdin, env=env)

        def on_stdout(line: str) -> None:
            self.log(line)
            if on_line is not None:
                on_line(line)

        with self.stopping(program.terminate):
            completed = program.wait(on_stdout, self.log)
        self.check_cancelled()
        return completed

    @property
    def stopped(self) -> Optional[Reason]:
        """Why the invocation is to stop, once it is."""
        return self._stopped

    def stop(self, reason: Reason) -> None:
        """Ask it to stop; the first reason stays."""
        with self._lock:
            if self._stopped is not None:
                return
            self._stopped = reason
            callbacks = list(self._on_stop)
        for callback in callbacks:
            callback()

    @contextlib.contextmanager
    def stopping(self, callback: Callable[[], object]) -> Iterator[None]:
        """Call ``callback`` (from any thread) if the invocation is to stop while the block runs."""
        with self._lock:
            self._on_stop.append(callback)
            stopped = self._stopped is not None
        if stopped:
            callback()
        try:
            yield
        finally:
            with self._lock:
                self._on_stop.remove(callback)

    def take_progress(self) -> Optional[Progress]:
        """The newest progress, if it was not taken yet."""
        progress, self._progress = self._progress, None
        return progress
