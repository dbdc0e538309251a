# SPDX-License-Identifier: Apache-2.0
"""The context of one invocation: progress, cancellation, log, scratch directory and programs."""

from __future__ import annotations

import contextlib
import math
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence

from simyard_adapter.errors import ActionCancelledError, FileTransferError
from simyard_adapter.programs import CompletedProgram, Program
from simyard_adapter.wire import ErrorReason

MAX_MESSAGE_CHARACTERS = 500


@dataclass(frozen=True)
class Progress:
    """The progress of an invocation: ``percent`` is 0 to 100, or None if it is unknown."""

    percent: Optional[float] = None
    message: str = ""


class Context:
    """A running invocation of an action. Every method may be called from any thread.

    Attributes:
        invocation: The id of the invocation.
        action: The name of the action.
        has_directory: True if the scratch directory exists.
        log_copy: A function that receives each line of the log as well, or None.
        upload_file: The function behind :meth:`upload`; None outside a worker.
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
        self._stopped: Optional[ErrorReason] = None
        self._on_stop: list[Callable[[], object]] = []
        self._progress: Optional[Progress] = None
        self.has_directory = False
        self.log_copy: Optional[Callable[[str], None]] = None
        self.upload_file: Optional[Callable[[Path, str], Mapping[str, Any]]] = None

    @property
    def directory(self) -> Path:
        """The scratch directory of this invocation; it is deleted when the invocation has ended."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self.has_directory = True
        return self._directory

    def remove_directory(self) -> None:
        """Delete the scratch directory."""
        shutil.rmtree(self._directory, ignore_errors=True)

    def progress(self, percent: Optional[float] = None, message: str = "") -> None:
        """Report the progress (0 to 100). Callers see about four reports per second, and always the newest one."""
        if percent is not None:
            percent = min(100.0, max(0.0, float(percent))) if math.isfinite(percent) else None
        self._progress = Progress(percent, message[:MAX_MESSAGE_CHARACTERS])
        self._on_progress(self)

    def log(self, text: str) -> None:
        """Add a line to the worker's log; the line carries the id of this invocation."""
        self._on_log(text)
        if (copy := self.log_copy) is not None:
            copy(text)

    def cancel(self) -> None:
        """Cancel this invocation: its programs are ended, and its next ``check_cancelled`` raises."""
        self.stop(ErrorReason.CANCELLED)

    def check_cancelled(self) -> None:
        """Raise an error if the invocation must stop. Call this regularly in long computations.

        Raises:
            ActionCancelledError: The invocation was cancelled or timed out, or the adapter is ending.
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
    ) -> CompletedProgram:
        """Run a program in the scratch directory and wait for its end; an async action calls this in a thread.

        Each output line is written to the log. When the invocation is cancelled or times out, the program and all its
        descendants are ended.

        Args:
            args: The program and its arguments; no shell is involved.
            stdin: The text for the standard input.
            env: Variables in addition to the adapter's own environment.
            on_line: Called with each line of the standard output, in another thread.

        Returns:
            The exit code and the last 4 MiB of each output stream. The caller decides if an exit code is a failure.

        Raises:
            ActionCancelledError: The invocation was cancelled or timed out.
            OSError: The program cannot be started.
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

    def upload(self, path: Path, media_type: str = "") -> Mapping[str, Any]:
        """Upload a file, and return the reference to it: the value of an attribute of the type ``file``.

        A file that the store has already is not sent again. An async action calls this in a thread. The call waits
        while the file store does not answer.

        Args:
            path: The file; a relative path begins in the scratch directory.
            media_type: The media type, such as ``image/png``.

        Raises:
            FileTransferError: The file cannot be read, or the platform or the store refuses it.
            ActionCancelledError: The invocation was cancelled or timed out.
        """
        if self.upload_file is None:
            raise FileTransferError(f"{path.name}: a file can be uploaded only while a worker runs the action")
        return self.upload_file(self.directory / path, media_type)

    @property
    def stopped(self) -> Optional[ErrorReason]:
        """The reason why the invocation must stop, or None."""
        return self._stopped

    def stop(self, reason: ErrorReason) -> None:
        """Ask the invocation to stop; the first reason is kept."""
        with self._lock:
            if self._stopped is not None:
                return
            self._stopped = reason
            callbacks = list(self._on_stop)
        for callback in callbacks:
            callback()

    @contextlib.contextmanager
    def stopping(self, callback: Callable[[], object]) -> Iterator[None]:
        """Call ``callback``, from any thread, if the invocation must stop while the block runs."""
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

    def collect_progress(self) -> Optional[Progress]:
        """Return the newest progress, or None if it was collected before."""
        progress, self._progress = self._progress, None
        return progress
