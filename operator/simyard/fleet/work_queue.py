# SPDX-License-Identifier: Apache-2.0
"""Runs passes over keys at their due times, again after failures, and at most one pass at a time for each key."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Any, Generic, NoReturn, TypeVar
from weakref import WeakSet

from prometheus_client import Gauge, Histogram

from simyard.fleet.turns import Turns
from simyard.messaging.errors import MessagingError
from simyard_adapter.backoff import draw_delay
from simyard_sites.base import SiteError
from simyard_sites.kubernetes.errors import ApiError

log = logging.getLogger(__name__)

SECONDS = Histogram(
    "simyard_reconcile_seconds",
    "Duration of one pass over one object, by kind of work.",
    ["queue"],
    buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60),
)
DEPTH = Gauge("simyard_reconcile_queue_depth", "Objects that wait for a pass, now or later.", ["queue"])
OVERDUE = Gauge("simyard_reconcile_overdue_seconds", "Time for which the oldest due pass has waited or run.", ["queue"])
FIRST_PAUSE_SECONDS = 0.1
MAX_PAUSE_SECONDS = 30.0
_SLACK = 64
_queues: WeakSet[KeyQueue[Any]] = WeakSet()

K = TypeVar("K", bound=Hashable)
Process = Callable[[K], Awaitable[float | None]]
"""Function that runs one pass over a key.

It returns the seconds until the next pass; None if only a change causes the next pass."""

Group = Callable[[K], Hashable]
"""Function that returns the group of a key. Groups whose keys are due take turns."""


class KeyQueue(Generic[K]):
    """Queue of keys that wait for passes. A key identifies an object.

    If a caller adds a key again before its pass, the earlier of the two times counts. The queue logs a failed pass and
    repeats it after a pause, which grows with the failures of the key. Two passes over a key start at least
    ``spacing_seconds`` apart. At most ``concurrency`` passes run at the same time. If more keys are due, the groups of
    keys take turns (:class:`~simyard.fleet.turns.Turns`).
    """

    def __init__(
        self,
        name: str,
        process: Process[K],
        *,
        concurrency: int = 8,
        spacing_seconds: float = 0.0,
        group: Group[K] = lambda _: None,
    ) -> None:
        self._name = name
        self._process = process
        self._concurrency = concurrency
        self._spacing = spacing_seconds
        self._group = group
        self._turns: Turns[K] = Turns()
        self._ready: dict[K, float] = {}
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = itertools.count()
        self._running: dict[K, float] = {}
        self._begun: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._waiters: dict[K, list[asyncio.Future[None]]] = {}
        self._wake = asyncio.Event()
        self._depth = DEPTH.labels(name)
        self._seconds = SECONDS.labels(name)
        _queues.add(self)

    def add(self, key: K, delay: float = 0.0) -> None:
        """Ask for a pass over the key after ``delay`` seconds, or sooner."""
        due = asyncio.get_running_loop().time() + delay
        if self._spacing and key in self._begun:
            due = max(due, self._begun[key] + self._spacing)
        if key in self._ready or self._due.get(key, float("inf")) <= due:
            return
        self._due[key] = due
        self._show_depth()
        if key not in self._running:
            self._push(key)

    def forget(self, key: K) -> None:
        """Forget the failures and the last pass of a key, because its object is gone."""
        self._begun.pop(key, None)
        self._failures.pop(key, None)

    @property
    def name(self) -> str:
        """Name of the kind of work in metrics and logs."""
        return self._name

    def measure_overdue_seconds(self) -> float:
        """Return the seconds for which the oldest key has been due or in its pass; 0 if no key is due.

        After a failed pass, the time counts from the due time of the retry.
        """
        due = [self._heap[0][0]] if self._heap else []
        ready = (self._ready[key] for key in self._turns.list_oldest())
        oldest = min([*due, *ready, *self._running.values()], default=float("inf"))
        return max(0.0, asyncio.get_running_loop().time() - oldest)

    def pass_now(self, keys: Iterable[K]) -> Awaitable[object]:
        """Ask for a pass over each key now; return a future that ends with the passes.

        The future waits for the retries of a failed pass, unless its error is not retryable or shows a defect.
        """
        loop = asyncio.get_running_loop()
        futures = []
        for key in keys:
            future = loop.create_future()
            self._waiters.setdefault(key, []).append(future)
            futures.append(future)
            self.add(key)
        return asyncio.gather(*futures)

    async def run(self) -> NoReturn:
        """Run passes until cancelled. After the end, the queue does not count as overdue."""
        _queues.add(self)
        try:
            await self._run()
        finally:
            _queues.discard(self)
            OVERDUE.labels(self._name).set(0)
        raise AssertionError("the loop does not end")

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                now = asyncio.get_running_loop().time()
                while self._heap and self._heap[0][0] <= now:
                    self._make_ready(*heapq.heappop(self._heap))
                while self._turns and len(self._running) < self._concurrency:
                    key = self._turns.pop()
                    self._running[key] = self._ready.pop(key)
                    group.create_task(self._pass(key), name=f"{self._name} {key}")
                self._show_depth()
                waits = self._heap[0][0] - now if self._heap else None
                try:
                    async with asyncio.timeout(waits):
                        await self._wake.wait()
                except TimeoutError:
                    continue

    def _make_ready(self, due: float, _order: int, key: K) -> None:
        """Add a key to the turns, because its pass is due, unless its due time has changed."""
        if self._due.get(key) == due and key not in self._running:
            del self._due[key]
            self._ready[key] = due
            self._turns.add(self._group(key), key)

    def _show_depth(self) -> None:
        self._depth.set(len(self._due) + len(self._ready))

    async def _pass(self, key: K) -> None:
        waiters = self._waiters.pop(key, [])
        self._begun[key] = asyncio.get_running_loop().time()
        try:
            with self._seconds.time():
                again = await self._process(key)
            self._failures.pop(key, None)
            _release(waiters)
            if again is not None:
                self.add(key, again)
        except (ApiError, MessagingError, SiteError) as error:
            log.warning("%s %s: %s", self._name, key, error)
            if not error.retryable:
                _release(waiters)
            self._retry(key, waiters)
        except Exception:
            log.exception("%s %s: the pass failed because of a defect", self._name, key)
            _release(waiters)
            self._retry(key, waiters)
        finally:
            self._running.pop(key, None)
            self._forget_old_begins()
            if key in self._due:
                self._push(key)
            self._wake.set()

    def _retry(self, key: K, waiters: list[asyncio.Future[None]]) -> None:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        if left := [waiter for waiter in waiters if not waiter.done()]:
            self._waiters.setdefault(key, []).extend(left)
        self.add(key, draw_delay(failures - 1, MAX_PAUSE_SECONDS, FIRST_PAUSE_SECONDS))

    def _forget_old_begins(self) -> None:
        """Forget the starts of passes that are too old to matter for the spacing, if there are many."""
        if len(self._begun) > 2 * len(self._due) + _SLACK:
            latest = asyncio.get_running_loop().time() - self._spacing
            self._begun = {key: begun for key, begun in self._begun.items() if begun > latest}

    def _push(self, key: K) -> None:
        if len(self._heap) > 2 * len(self._due) + _SLACK:  # most entries are outdated: their keys got an earlier time
            waiting = ((due, next(self._order), key) for key, due in self._due.items() if key not in self._running)
            self._heap = list(waiting)
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, (self._due[key], next(self._order), key))
        self._wake.set()


def find_most_overdue() -> tuple[str, float]:
    """Return the name of the most overdue queue in this process, and by how many seconds; update the metrics."""
    found: dict[str, float] = {}
    for queue in _queues:
        found[queue.name] = max(found.get(queue.name, 0.0), queue.measure_overdue_seconds())
    for name, seconds in found.items():
        OVERDUE.labels(name).set(seconds)
    return max(found.items(), key=lambda item: item[1], default=("", 0.0))


def _release(waiters: Iterable[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


class RateLimit:
    """Limit for requests per second. After an idle second, it permits a burst of ``per_second`` requests."""

    MAX_DEBT_SECONDS = 30.0

    def __init__(self, per_second: float, clock: Callable[[], float]) -> None:
        self.per_second = per_second
        self._clock = clock
        self._next = 0.0

    def reserve(self, count: int = 1) -> float:
        """Reserve a number of requests; return the seconds until they may be sent."""
        now = self._clock()
        self._next = max(self._next, now - 1.0) + count / self.per_second
        return max(0.0, self._next - now)

    def spend(self, count: int = 1) -> None:
        """Count requests that were sent without a reservation. They delay later reservations."""
        now = self._clock()
        spent = max(self._next, now - 1.0) + count / self.per_second
        self._next = max(self._next, min(spent, now + self.MAX_DEBT_SECONDS))
