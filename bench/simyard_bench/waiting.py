# SPDX-License-Identifier: Apache-2.0
"""Measure times as a requester sees them: by ``kubectl wait``, which begins its watch before the request."""

from __future__ import annotations

import queue
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from simyard_dev import tools
from simyard_dev.errors import SetupError

_WATCH_SECONDS = 30.0
_CHECK_SECONDS = 1.0


class Waiting:
    """A context in which ``kubectl wait RESOURCE/NAME --for=CONDITION`` runs.

    The context is entered once the watch is established.

    Raises:
        SetupError: kubectl cannot watch.
    """

    def __init__(self, kubeconfig: Path, target: str, condition: str, seconds: float, namespace: str = "") -> None:
        self._title = f"{target} {condition}"
        self._seconds = seconds
        self._watches = threading.Event()
        self._ended: queue.SimpleQueue[float] = queue.SimpleQueue()
        self._lines: list[str] = []
        self._command = [
            str(tools.ensure(["kubectl"])["kubectl"]),
            f"--kubeconfig={kubeconfig}",
            *([f"--namespace={namespace}"] if namespace else []),
            "wait",
            target,
            f"--for={condition}",
            f"--timeout={seconds:.0f}s",
            "-v=6",  # at this level kubectl logs the server's answer to the watch
        ]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stderr is not None
        threading.Thread(target=self._read, args=(self._process.stderr,), daemon=True).start()
        if not self._watches.wait(_WATCH_SECONDS) or self._process.poll() is not None:
            self._end()
            raise SetupError(
                f"kubectl wait {self._title}: {self._lines[-1] if self._lines else 'no watch was established'}"
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def until(self, check: Callable[[], object]) -> float:
        """Wait for the end of kubectl and return its time on the monotonic clock; ``check`` may raise to end the wait.

        Raises:
            SetupError: the condition did not become true in time.
        """
        deadline = time.monotonic() + self._seconds + _WATCH_SECONDS
        while time.monotonic() < deadline:
            try:
                ended = self._ended.get(timeout=_CHECK_SECONDS)
            except queue.Empty:
                check()
                continue
            if self._process.wait(_WATCH_SECONDS):
                raise SetupError(f"kubectl wait {self._title}: {self._lines[-1]}")
            return ended
        raise SetupError(f"kubectl wait {self._title} did not end in time")

    def _read(self, stderr: IO[str]) -> None:
        for line in stderr:
            self._lines = [*self._lines[-4:], line.strip()]
            if "watch=true" in line and "status=" in line:
                self._watches.set()
        self._ended.put(time.monotonic())
        self._watches.set()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
