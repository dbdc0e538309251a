"""The model's scheduler: machines wait for it, and it places them on hosts. Pure; times are in seconds."""

from __future__ import annotations

import heapq
import math
from collections import Counter, OrderedDict
from dataclasses import dataclass, field

from simyard_sites.emulated.settings import Settings


@dataclass(frozen=True, slots=True)
class Placed:
    """What a run of the scheduler did: machines with their hosts (None: hosts do not matter), and machines for which
    it found no room for the first time."""

    machines: list[tuple[str, int | None]] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)


class Scheduler:
    """Places machines on the host with the fewest, oldest first, so many per run and so many per host and run.

    It runs each interval. After a time without work the first run is half an interval later: the mean of a clock that
    ticks on by itself. Without an interval it runs whenever there is something to do.
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
        """A machine is to be placed."""
        self._waiting[machine_id] = None
        if self.next_run is None:
            interval = settings.seconds(settings.interval_milliseconds)
            beat = -math.inf if self._last_run is None else self._last_run + interval
            self.next_run = beat if now < beat else now + interval / 2

    def drop(self, machine_id: str) -> None:
        """A machine is not to be placed any more."""
        self._waiting.pop(machine_id, None)
        self._stuck.pop(machine_id, None)

    def release(self, host: int, settings: Settings, now: float) -> None:
        """A machine has left its host."""
        self._loads[host] -= 1
        if host < self._count:
            heapq.heappush(self._free, (self._loads[host], host))
        self.retry(now)

    def retry(self, now: float) -> None:
        """There may be room now for those for whom there was none."""
        if self._stuck and self.next_run is None:
            self.next_run = now

    def run(self, settings: Settings, now: float) -> Placed:
        """Place what can be placed."""
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
        interval = settings.seconds(settings.interval_milliseconds)
        if self._waiting or (self._stuck and interval):
            self.next_run = now + interval
        return placed

    def _next_host(self, settings: Settings, on_host: Counter[int], full: list[tuple[int, int]]) -> int | None:
        """The host with the fewest machines that takes one more in this run; those that take no more go to ``full``."""
        while self._free:
            load, host = self._free[0]
            if load != self._loads[host]:  # it has changed since
                heapq.heappop(self._free)
                continue
            if settings.machines_per_host and load >= settings.machines_per_host:
                return None  # and so are all others
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
        if count != self._count or len(self._free) > 4 * count:  # entries that have changed since add up
            self._count = count
            self._free = [(self._loads[host], host) for host in range(count)]
            heapq.heapify(self._free)
