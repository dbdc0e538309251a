# SPDX-License-Identifier: Apache-2.0
"""Profile the operator during a start."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from simyard_bench.start import Profiling, no_profiling
from simyard_dev.errors import SetupError
from simyard_dev.frontends import SIMYARD
from simyard_dev.progress import say

KINDS = ("cprofile", "py-spy")
_END_SECONDS = 60.0


@dataclass(frozen=True)
class Chosen:
    """The command of the operator, and the profiler that runs at the same time."""

    operator_command: Sequence[str | Path]
    profiling: Profiling


def choose(kind: str | None, file: Path) -> Chosen:
    """Return the command of the operator and the profiler of this kind; None: no profiler.

    The profiler writes to ``file``, with a suffix that depends on the kind.

    ``cprofile`` counts every call of the operator from start to end and about doubles its CPU time (``.pstats``).
    ``py-spy`` samples the operator from outside during the start (``.speedscope.json``).

    Raises:
        SetupError: py-spy is not installed.
    """
    if kind is None:
        return Chosen((SIMYARD,), no_profiling)
    file.parent.mkdir(parents=True, exist_ok=True)
    if kind == "cprofile":
        target = file.with_suffix(".pstats")
        say(f"the operator's profile goes to {target}")
        return Chosen((sys.executable, "-m", "cProfile", "-o", target, SIMYARD), no_profiling)
    program = shutil.which("py-spy", path=f"{Path(sys.executable).parent}") or shutil.which("py-spy")
    if program is None:
        raise SetupError("py-spy is not installed: .venv/bin/uv pip install --python .venv/bin/python py-spy")
    return Chosen((SIMYARD,), _Sampling(program, file.with_suffix(".speedscope.json")))


@dataclass(frozen=True)
class _Sampling:
    program: str
    file: Path

    @contextlib.contextmanager
    def __call__(self, pid: int) -> Iterator[None]:
        command = [
            self.program,
            "record",
            "--pid",
            str(pid),
            "--format",
            "speedscope",
            "--rate",
            "250",
            "--nonblocking",
        ]
        log = self.file.with_suffix(".log")
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, "--output", str(self.file)], stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        say(f"the operator's profile is {self.file}" if self.file.exists() else f"no profile: {log.read_text()}")
