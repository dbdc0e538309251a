# SPDX-License-Identifier: Apache-2.0
"""Measure Dask and Ray, which run in a virtual environment of their own.

A client (``dask_client.py``, ``ray_client.py``) starts its cluster, and writes a line. It runs the tasks when it reads
a line, and writes the seconds. So the CPU between the two lines is that of the tasks alone.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from simyard_bench.studies.rows import Figures, System
from simyard_bench.studies.watching import watch
from simyard_dev.errors import SetupError
from simyard_dev.files import locked
from simyard_dev.progress import say, step

REQUIREMENTS = {System.DASK: "distributed==2026.8.0", System.RAY: "ray==2.60.0"}
ENVIRONMENTS = Path(__file__).resolve().parents[3] / ".run" / "bench"


def measure(system: System, workers: int, tasks: int) -> tuple[Figures, dict[str, str]]:
    """Run tasks at a system; return the figures, and the version of the system.

    Raises:
        SetupError: the system cannot be installed, or its client failed.
    """
    python = _ensure(system)
    client = Path(__file__).with_name(f"{system}_client.py")
    process = subprocess.Popen(
        [python, client, str(workers), str(tasks)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        with step(f"{system}: {tasks} tasks, {workers} workers"):
            ready = _read(process)
            with watch(lambda: {str(system): process.pid}) as costs:
                process.stdin.write("go\n")
                process.stdin.flush()
                report = _read(process)
    finally:
        process.stdin.close()  # the client ends
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    figures = Figures(
        system=system,
        tasks=tasks,
        workers=int(ready["workers"]),
        seconds=round(report["seconds"], 3),
        cpu_s=costs.cpu_s,
        rss_mib=costs.rss_mib,
        load_average=costs.load_average,
    )
    say(f"{system}: {figures.rate:.0f} tasks/s, {figures.cpu_us:.0f} us of CPU each")
    return figures, {str(system): str(ready["version"])}


def _read(process: subprocess.Popen[str]) -> dict[str, float]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SetupError(f"the client has ended with {process.wait()}")
    found: dict[str, float] = json.loads(line)
    return found


def _ensure(system: System) -> Path:
    """Return the Python of the virtual environment of a system; it is made on demand."""
    requirement, place = REQUIREMENTS[system], ENVIRONMENTS / system
    python, stamp = place / "bin" / "python", place / "requirement"
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    with locked(ENVIRONMENTS / f"{system}.lock"):
        if stamp.exists() and stamp.read_text() == requirement:
            return python
        shutil.rmtree(place, ignore_errors=True)
        uv = Path(sys.executable).with_name("uv")
        for arguments in (
            ("venv", "--python", sys.executable, place),
            ("pip", "install", "--python", python, requirement),
        ):
            command: list[str | Path] = [uv, *arguments]
            done = subprocess.run([*command, "--quiet"], capture_output=True, text=True, check=False)
            if done.returncode:
                raise SetupError(f"{requirement} cannot be installed: {done.stderr.strip()}")
        stamp.write_text(requirement)
    return python
