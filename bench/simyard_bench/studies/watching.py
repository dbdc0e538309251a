# SPDX-License-Identifier: Apache-2.0
"""Measure a run from outside: CPU and memory of its processes, and the cost for the Kubernetes API and etcd."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from simyard_bench import machine
from simyard_bench.writes import LEASES
from simyard_dev.controlplane import ControlPlane

_VERBS = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"})
_FAMILIES = ("apiserver_request_total", "apiserver_storage_size_bytes")


@dataclass
class Costs:
    """The costs of a run.

    Attributes:
        seconds: the time of the run.
        cpu_s: CPU of each process.
        rss_mib: the sum of the peaks of the memory of all processes since their starts.
        writes: writes to the Kubernetes API, without Leases; None without an API.
        etcd_bytes: growth of etcd's database; None without an API.
        load_average: load over the minute before.
    """

    seconds: float = 0.0
    cpu_s: dict[str, float] = field(default_factory=dict)
    rss_mib: float = 0.0
    writes: int | None = None
    etcd_bytes: int | None = None
    load_average: float = 0.0


@contextmanager
def watch(processes: Callable[[], Mapping[str, int]], plane: ControlPlane | None = None) -> Iterator[Costs]:
    """Measure the costs of what happens within the context; they are known after it."""
    costs = Costs(load_average=round(os.getloadavg()[0], 2))
    before = parse_api_costs(_fetch(plane)) if plane is not None else (0, 0)
    cpu, began = machine.cpu_seconds(processes()), time.monotonic()
    yield costs
    costs.seconds = round(time.monotonic() - began, 3)
    now = processes()
    costs.cpu_s = {
        name: round(used - cpu.get(name, 0.0), 2) for name, used in machine.cpu_seconds(now).items() if name in cpu
    }
    costs.rss_mib = round(sum(map(machine.peak_rss_mib_of_tree, now.values())), 1)
    if plane is not None:
        writes, size = parse_api_costs(_fetch(plane))
        costs.writes, costs.etcd_bytes = writes - before[0], size - before[1]


def parse_api_costs(metrics: str) -> tuple[int, int]:
    """Return the number of writes so far, without Leases, and the size of etcd's database."""
    lines = "\n".join([*(line for line in metrics.splitlines() if line.startswith(_FAMILIES)), ""])
    writes = size = 0
    for family in text_string_to_metric_families(lines):
        for sample in family.samples:
            if sample.name == _FAMILIES[1]:
                size += int(sample.value)
            elif sample.labels["verb"] in _VERBS and sample.labels["resource"] != LEASES:
                writes += int(sample.value)
    return writes, size


def _fetch(plane: ControlPlane) -> str:
    return plane.kubectl("get", "--raw", "/metrics")
