# SPDX-License-Identifier: Apache-2.0
"""Run the cases of each site one after the other, and collect their rows."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from simyard_bench import machine
from simyard_bench.sites import clouds, clusters
from simyard_bench.sites.rows import Figures, Row
from simyard_bench.start import revision
from simyard_dev import kubevirt, tools
from simyard_dev.progress import say

CONTROLLERS = "kubevirt-controllers"
SITES = ("kubevirt", CONTROLLERS, "pod", clouds.SITE)


@dataclass(frozen=True)
class Sizes:
    """The numbers of machines in the cases. Polls read ``known`` machines, or a few beside ``finished`` machines."""

    vmis: Sequence[int] = (100, 1000)
    controlled_vmis: Sequence[int] = (200,)
    pods: Sequence[int] = (500,)
    vms: int = 512
    known: int = 10_000
    finished: Sequence[int] = (600, 25_600)


def run(directory: Path, sites: Sequence[str], sizes: Sizes, rounds: int) -> list[Row]:
    """Measure the cases of these sites and return their rows.

    Raises:
        SetupError: a request was refused, or a case did not end in time.
    """
    where, with_ = machine.describe(), versions()
    rows = []
    for figures in _cases(directory, sites, sizes, rounds):
        now = datetime.now(UTC).replace(microsecond=0)
        rows.append(Row(**dict(figures), machine=where, versions=with_, date=now, revision=revision()))
        _print_summary(figures)
    return rows


def versions() -> dict[str, str]:
    """Return the versions of the programs that the benchmark uses."""
    return {
        "kubernetes": tools.KUBERNETES.version,
        "etcd": tools.ETCD.version,
        "kwok": tools.KWOK.version,
        "kubevirt": f"{kubevirt.MODULE.version} (definitions)",
        "virt-controller": tools.VIRT.version,
        "pyone": importlib.metadata.version("pyone"),
        "python": platform.python_version(),
    }


def _cases(directory: Path, sites: Sequence[str], sizes: Sizes, rounds: int) -> Iterator[Figures]:
    cases: dict[str, Iterable[Figures]] = {
        "kubevirt": clusters.vmis(directory / "kubevirt", sizes.vmis, rounds),
        CONTROLLERS: clusters.controlled_vmis(directory / CONTROLLERS, sizes.controlled_vmis, rounds),
        "pod": clusters.pods(directory / "pod", sizes.pods, rounds),
    }
    for site in sites:
        if site == clouds.SITE:
            yield from clouds.starts(sizes.vms, rounds)
            yield from clouds.polls(sizes.known, sizes.finished, rounds)
        else:
            yield from cases[site]


def _print_summary(row: Figures) -> None:
    theirs = f", yardstick {row.yardstick_s:.3f} s (CPU {row.yardstick_cpu_s:.3f} s)" if row.yardstick_s else ""
    tuned = f"; {row.calls_at_once} calls of {row.batch}" if row.batch else ""
    say(
        f"{row.site}, {row.case}, {row.n} machines, {row.finished} finished: {row.ours_s:.3f} s (CPU {row.cpu_s:.3f} s)"
        f"{theirs}; {row.writes_per_worker:.3f} writes each{tuned}; load {row.load_average}"
    )
