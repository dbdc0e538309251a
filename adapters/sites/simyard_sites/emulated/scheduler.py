# SPDX-License-Identifier: Apache-2.0
"""Models the scheduler, which places waiting machines on hosts. Pure; times are in seconds."""

from __future__ import annotations

import heapq
import math
from collections import Counter, OrderedDict
from dataclasses import dataclass, field

from simyard_sites.emulated.settings import Settings


@dataclass(frozen=True, slots=True)
class Placed:
    """The result of a run: the placed machines with their hosts, and the machines for which no host has room.

    The host is None if the cloud has no limits of hosts. ``full`` has only machines that were refused for the first
    time.
    """

    machines: list[tuple[str, int | None]] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)


class Scheduler:
    """The scheduler: it places the oldest machines first, each on the host with the fewest machines.

    The number of machines in a run, and on one host in a run, is limited. The scheduler runs once per interval. When a
    machine arrives after a time without work, the next run is half an interval later, which is the mean delay of a
    scheduler that runs all the time. Without an interval, it runs whenever a machine waits.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, None] = OrderedDict()
        self._stuck: OrderedDict[str, None] = OrderedDict()
        self._last_run: float | None = None
        self._loads: Counter[int] = Counter()
        self._count = 0
        self._free: list[tuple[int, int]] = []
        self.next_run: float | None = None

    def add(self, machine_id: str, settings: Settings, now: float) -> None:
        """Add a machine to be placed."""
        self._waiting[machine_id] = None
        if self.next_run is None:
            interval = settings.compute_seconds(settings.interval_milliseconds)
            beat = -math.inf if self._last_run is None else self._last_run + interval
            self.next_run = beat if now < beat else now + interval / 2

    def drop(self, machine_id: str) -> None:
        """Remove a machine that is not to be placed any more."""
        self._waiting.pop(machine_id, None)
        self._stuck.pop(machine_id, None)

    def release(self, host: int, settings: Settings, now: float) -> None:
        """Record that a machine has left its host."""
        self._loads[host] -= 1
        if host < self._count:
            heapq.heappush(self._free, (self._loads[host], host))
        self.retry(now)

    def retry(self, now: float) -> None:
        """Try again to place the machines that found no room."""
        if self._stuck and self.next_run is None:
            self.next_run = now

    def run(self, settings: Settings, now: float) -> Placed:
        """Place as many machines as possible."""
        self._last_run, self.next_run = now, None
        self._use_hosts(settings.hosts)
        placed = Placed()
        full: list[tuple[int, int]] = []
        on_host: Counter[int] = Counter()
        most = settings.machines_per_interval or len(self._stuck) + len(self._waiting)
        has_room = True
        while (self._stuck or self._waiting) and len(placed.machines) < most:
            host = None
            if settings.hosts:
                host = self._next_host(settings, on_host, full)
                if host is None:
                    has_room = bool(full)
                    break
            machine_id, _ = (self._stuck or self._waiting).popitem(last=False)
            placed.machines.append((machine_id, host))
        for entry in full:
            heapq.heappush(self._free, entry)
        if not has_room:
            placed.stuck.extend(self._waiting)
            self._stuck.update(self._waiting)
            self._waiting.clear()
        interval = settings.compute_seconds(settings.interval_milliseconds)
        if self._waiting or (self._stuck and interval):
            self.next_run = now + interval
        return placed

    def _next_host(self, settings: Settings, on_host: Counter[int], full: list[tuple[int, int]]) -> int | None:
        """Return the host with the fewest machines that accepts one more in this run; move full hosts to ``full``."""
        while self._free:
            load, host = self._free[0]
            if load != self._loads[host]:  # This entry is outdated.
                heapq.heappop(self._free)
                continue
            if settings.machines_per_host and load >= settings.machines_per_host:
                return None  # All other hosts are full too.
            heapq.heappop(self._free)
            if settings.machines_per_host_and_interval and on_host[host] >= settings.machines_per_host_and_interval:
                full.append((load, host))
                continue
            self._loads[host] += 1
            on_host[host] += 1
            heapq.heappush(self._free, (load + 1, host))
            return host
        return None

    def _use_hosts(self, count: int) -> None:
        if count != self._count or len(self._free) > 4 * count:  # Outdated entries accumulate.
            self._count = count
            self._free = [(self._loads[host], host) for host in range(count)]
            heapq.heapify(self._free)
