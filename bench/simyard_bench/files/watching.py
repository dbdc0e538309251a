# SPDX-License-Identifier: Apache-2.0
"""Count the requests in the log of the store, and measure the CPU of the platform's processes during transfers."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from simyard_bench import machine
from simyard_bench.files.client import BARE_KEY
from simyard_bench.world import World

IDLE_SECONDS = 10.0
STORE = "versitygw"
_ROOT = re.compile(r"/[^/]+/")
_TRANSFERS = re.compile(r"[^/]+/(in|out)/")


@dataclass(frozen=True)
class StoreRequest:
    """A request that the store has answered; ``key`` is that of the object, without the bucket."""

    method: str
    key: str
    query: str

    @property
    def is_transfer(self) -> bool:
        """True if a client sent the request, and not the platform."""
        if self.key.startswith(BARE_KEY):
            return True
        begins_upload, lists_parts = "uploads=" in self.query, self.method == "GET" and "uploadId=" in self.query
        moves = self.method in ("GET", "PUT", "POST") and not begins_upload and not lists_parts
        return moves and _TRANSFERS.match(self.key) is not None


def parse_requests(log: str) -> list[StoreRequest]:
    """Return the requests in lines of the log of versitygw."""
    found = []
    for line in log.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) >= 9 and fields[1] == "vgw" and (root := _ROOT.match(fields[6])):
            found.append(StoreRequest(fields[5], fields[6][root.end() :].removesuffix(".."), fields[8]))
    return found


def count_api_requests(metrics: str) -> int:
    """Return the number of requests for files in the metrics of the aggregated apiserver."""
    return _sum(metrics, "simyard_apiserver_requests_total", "resource", "files")


def count_questions(metrics: str) -> int:
    """Return the number of workers' questions in the metrics of the operator."""
    return _sum(metrics, "simyard_file_questions_total")


def _sum(metrics: str, name: str, label: str = "", value: str = "") -> int:
    lines = "\n".join([*(line for line in metrics.splitlines() if name.removesuffix("_total") in line), ""])
    return sum(
        int(sample.value)
        for family in text_string_to_metric_families(lines)
        for sample in family.samples
        if sample.name == name and (not label or sample.labels[label] == value)
    )


class Watch:
    """A counter of the requests to the store, and of the CPU of the platform's processes, since the last reset."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._log: Path = world.environment.files.process.log_file
        self._idle: dict[str, float] = {}
        self.reset()

    def measure_idle(self) -> None:
        """Measure the CPU that the processes use without any transfer."""
        self.reset()
        time.sleep(IDLE_SECONDS)
        self._idle = {name: seconds / IDLE_SECONDS for name, seconds in self.cpu_seconds().items()}

    def reset(self) -> None:
        """Begin to count again."""
        self._log_size = self._log.stat().st_size
        self._api_requests, self._questions = self._count_platform_requests()
        self._began = time.perf_counter()
        self._cpu = self._read_cpu()

    def cpu_seconds(self) -> dict[str, float]:
        """Return the CPU of each process, less its idle use in the same time."""
        seconds = time.perf_counter() - self._began
        return {
            name: max(0.0, now - self._cpu[name] - self._idle.get(name, 0.0) * seconds)
            for name, now in self._read_cpu().items()
            if name in self._cpu
        }

    def requests(self) -> list[StoreRequest]:
        """Return the requests that the store has answered."""
        with self._log.open("rb") as file:
            file.seek(self._log_size)
            return parse_requests(file.read().decode(errors="replace"))

    def round_trips(self) -> int:
        """Return the number of requests and questions of clients, to the store and to the platform."""
        api_requests, questions = self._count_platform_requests()
        transfers = sum(request.is_transfer for request in self.requests())
        return transfers + api_requests - self._api_requests + questions - self._questions

    @property
    def store_rss_mib(self) -> float:
        """The peak memory of the store."""
        identity = self._world.environment.files.process.identity
        return machine.peak_rss_mib(identity.pid) if identity is not None else 0.0

    def _count_platform_requests(self) -> tuple[int, int]:
        return count_api_requests(self._world.apiserver_metrics()), count_questions(self._world.operator_metrics())

    def _read_cpu(self) -> dict[str, float]:
        identity = self._world.environment.files.process.identity
        return machine.cpu_seconds(self._world.processes() | ({STORE: identity.pid} if identity is not None else {}))


def count_downloads(requests: Iterable[StoreRequest], address: str) -> int:
    """Return how often clients have downloaded a file.

    The comparison ignores the end of long keys, which the log cuts.
    """
    names = [item.key.rpartition("/")[2] for item in requests if item.is_transfer and item.method == "GET"]
    return sum(address.startswith(name) for name in names)
