# SPDX-License-Identifier: Apache-2.0
"""Describe this machine and measure processes, from proc(5)."""

from __future__ import annotations

import contextlib
import os
import platform
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from simyard_bench.results import Machine

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_IDLE_FIELDS = (3, 4)  # idle and iowait in the first line of /proc/stat


def describe() -> Machine:
    """Return the description of this machine."""
    model = next(
        (line.partition(":")[2].strip() for line in _lines(_PROC / "cpuinfo") if line.startswith("model name")),
        platform.machine(),
    )
    memory_kib = next(int(line.split()[1]) for line in _lines(_PROC / "meminfo") if line.startswith("MemTotal"))
    return Machine(
        cpu=model,
        cores=len(os.sched_getaffinity(0)),
        memory_mib=memory_kib // 1024,
        kernel=f"{platform.system()} {platform.release()}",
    )


def cpu_seconds(roots: Mapping[str, int]) -> dict[str, float]:
    """Return the CPU seconds used by each named process and its descendants, including ended descendants."""
    used, children = _read_processes()

    def total(pid: int) -> float:
        return used.get(pid, 0.0) + sum(map(total, children[pid]))

    return {name: total(pid) for name, pid in roots.items()}


def peak_rss_mib_of_tree(pid: int) -> float:
    """Return the sum of the peaks of the resident memory of a process and of its living descendants, in MiB."""
    _, children = _read_processes()

    def total(pid: int) -> float:
        found = 0.0
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, StopIteration):  # it has just ended
            found = peak_rss_mib(pid)
        return found + sum(map(total, children[pid]))

    return total(pid)


def _read_processes() -> tuple[dict[int, float], defaultdict[int, list[int]]]:
    """Return the CPU seconds of each process, with those of its ended children, and the children of each process."""
    used: dict[int, float] = {}
    children: defaultdict[int, list[int]] = defaultdict(list)
    for path in _PROC.glob("[0-9]*"):
        try:
            # Field 2, the name, is in parentheses and may contain any character.
            fields = (path / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        used[int(path.name)] = sum(map(int, fields[11:15])) / _TICKS
        children[int(fields[1])].append(int(path.name))
    return used, children


def find_processes(*words: bytes) -> list[int]:
    """Return the pids of the processes whose command lines have all of these words."""
    found = []
    for path in _PROC.glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            command = (path / "cmdline").read_bytes()
            if all(word in command for word in words):
                found.append(int(path.name))
    return found


def machine_cpu_seconds() -> float:
    """Return the CPU seconds that all processes together have used since the machine's boot."""
    fields = list(map(int, _lines(_PROC / "stat")[0].split()[1:9]))
    return sum(value for index, value in enumerate(fields) if index not in _IDLE_FIELDS) / _TICKS


def peak_rss_mib(pid: int) -> float:
    """Return the peak resident memory of a process in MiB."""
    line = next(line for line in _lines(_PROC / str(pid) / "status") if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()
