"""Work by key: each key is worked on by one task at a time, at its due time, and as often as it was asked for."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import random
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Any, Generic, NoReturn, TypeVar
from weakref import WeakSet

from prometheus_client import Gauge, Histogram

from simyard.messaging.errors import MessagingError
from simyard_sites.base import SiteError
from simyard_sites.kubernetes.errors import ApiError

log = logging.getLogger(__name__)

SECONDS = Histogram(
    "simyard_reconcile_seconds",
    "Time of one pass over one object, by kind of work.",
    ["queue"],
    buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60),
)
DEPTH = Gauge("simyard_reconcile_queue_depth", "Objects that wait for their pass, now or later.", ["queue"])
OVERDUE = Gauge(
    "simyard_reconcile_overdue_seconds", "How long the longest has waited or run beyond its due time.", ["queue"]
)
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 30.0
_SLACK = 64
_queues: WeakSet[KeyQueue[Any]] = WeakSet()

K = TypeVar("K", bound=Hashable)
Process = Callable[[K], Awaitable[float | None]]
"""Does the work of a key; returns after how many seconds to come again, None for not of itself."""


class KeyQueue(Generic[K]):
    """Keys that wait for their work.

    A key that is added again before its time is due at the earlier of both times. Failures are logged and retried with
    growing pauses, key by key. Two passes over a key begin at least ``spacing_seconds`` apart.
    """

    def __init__(self, name: str, process: Process[K], *, concurrency: int = 8, spacing_seconds: float = 0.0) -> None:
        self._name = name
        self._process = process
        self._concurrency = concurrency
        self._spacing = spacing_seconds
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
        """Ask for a pass over the key in so many seconds, or sooner."""
        due = asyncio.get_running_loop().time() + delay
        if self._spacing and key in self._begun:
            due = max(due, self._begun[key] + self._spacing)
        if self._due.get(key, float("inf")) <= due:
            return
        self._due[key] = due
        self._depth.set(len(self._due))
        if key not in self._running:
            self._push(key)

    def forget(self, key: K) -> None:
        """Drop what is remembered of a key whose object is gone."""
        self._begun.pop(key, None)
        self._failures.pop(key, None)

    @property
    def name(self) -> str:
        """The kind of work."""
        return self._name

    def overdue_seconds(self) -> float:
        """Return for how long a key has been due, or a pass has run; keys that are retried later are not due."""
        due = [self._heap[0][0]] if self._heap else []
        oldest = min([*due, *self._running.values()], default=float("inf"))
        return max(0.0, asyncio.get_running_loop().time() - oldest)

    def settle(self, keys: Iterable[K]) -> Awaitable[object]:
        """Ask for a pass over each key now; await that each has succeeded, or that it is clear that it will not."""
        loop = asyncio.get_running_loop()
        futures = []
        for key in keys:
            future = loop.create_future()
            self._waiters.setdefault(key, []).append(future)
            futures.append(future)
            self.add(key)
        return asyncio.gather(*futures)

    async def run(self) -> NoReturn:
        """Work until cancelled; a queue that has ended is not overdue."""
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
                while self._heap and self._heap[0][0] <= now and len(self._running) < self._concurrency:
                    due, _, key = heapq.heappop(self._heap)
                    if self._due.get(key) == due and key not in self._running:
                        del self._due[key]
                        self._running[key] = due
                        group.create_task(self._pass(key), name=f"{self._name} {key}")
                self._depth.set(len(self._due))
                waits = self._heap[0][0] - now if self._heap and len(self._running) < self._concurrency else None
                try:
                    async with asyncio.timeout(waits):
                        await self._wake.wait()
                except TimeoutError:
                    continue

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
            log.exception("%s %s: this is a defect", self._name, key)
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
        pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(failures - 1, 16))
        self.add(key, pause * random.uniform(0.75, 1.25))  # noqa: S311

    def _forget_old_begins(self) -> None:
        """Forget, now and then, passes that no other has to keep its distance from any more."""
        if len(self._begun) > 2 * len(self._due) + _SLACK:
            latest = asyncio.get_running_loop().time() - self._spacing
            self._begun = {key: begun for key, begun in self._begun.items() if begun > latest}

    def _push(self, key: K) -> None:
        if len(self._heap) > 2 * len(self._due) + _SLACK:  # most of it is of times that were brought forward
            waiting = ((due, next(self._order), key) for key, due in self._due.items() if key not in self._running)
            self._heap = list(waiting)
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, (self._due[key], next(self._order), key))
        self._wake.set()


def most_overdue() -> tuple[str, float]:
    """Return the queue of this process that is behind most, and for how many seconds; brings the metrics up to date."""
    found: dict[str, float] = {}
    for queue in _queues:
        found[queue.name] = max(found.get(queue.name, 0.0), queue.overdue_seconds())
    for name, seconds in found.items():
        OVERDUE.labels(name).set(seconds)
    return max(found.items(), key=lambda item: item[1], default=("", 0.0))


def _release(waiters: Iterable[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


class RateLimit:
    """Spreads requests over time: so many per second, and a second's worth at once after a quiet time."""

    MOST_DEBT_SECONDS = 30.0

    def __init__(self, per_second: float, clock: Callable[[], float]) -> None:
        self.per_second = per_second
        self._clock = clock
        self._next = 0.0

    def reserve(self, count: int = 1) -> float:
        """Book so many requests; the seconds to wait until they may be sent."""
        now = self._clock()
        self._next = max(self._next, now - 1.0) + count / self.per_second
        return max(0.0, self._next - now)

    def spend(self, count: int = 1) -> None:
        """Take note of requests that were not booked: those that are booked from now on come later."""
        now = self._clock()
        spent = max(self._next, now - 1.0) + count / self.per_second
        self._next = max(self._next, min(spent, now + self.MOST_DEBT_SECONDS))
