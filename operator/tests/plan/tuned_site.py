# SPDX-License-Identifier: Apache-2.0
"""Sites to tune for, in simulated time: how long they take for a call and what of it they accept."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from simyard.plan.pace import Pace
from simyard.plan.tuner import Answer, Bounds, Tuner

THROTTLED_CALLS = 64


class Site(Protocol):
    """Behaviour of a site for a call with a number of items that arrives at ``now``."""

    retry_after_seconds: float | None

    def call(self, now: float, items: int) -> tuple[float, int]:
        """When it is answered, and how many items it accepted."""
        ...


@dataclass
class Fast:
    """Takes the same time for any number of calls, of any size."""

    seconds: float = 0.02
    retry_after_seconds: float | None = None

    def call(self, now: float, items: int) -> tuple[float, int]:
        return now + self.seconds, items


@dataclass
class Servers:
    """Serves one call after the other on each of its servers; a call and each of its items take some time."""

    count: int = 1
    call_seconds: float = 0.01
    item_seconds: float = 0.005
    away_seconds: float = 0.01
    retry_after_seconds: float | None = None
    _free: list[float] = field(default_factory=list)

    def call(self, now: float, items: int) -> tuple[float, int]:
        while len(self._free) < self.count:
            heapq.heappush(self._free, now)
        while len(self._free) > self.count:
            heapq.heappop(self._free)
        begin = max(now + self.away_seconds / 2, heapq.heappop(self._free))
        end = begin + self.call_seconds + self.item_seconds * items
        heapq.heappush(self._free, end)
        return end + self.away_seconds / 2, items


@dataclass
class Bucket:
    """Accepts so many items per second, and some at once after a pause."""

    rate: float
    burst: float
    retry_after_seconds: float | None = None
    _tokens: float = float("inf")
    _at: float = 0.0

    def call(self, now: float, items: int) -> tuple[float, int]:
        self._tokens = min(self.burst, self._tokens + (now - self._at) * self.rate)
        self._at = now
        accepted = min(items, int(self._tokens))
        self._tokens -= accepted
        return now + 0.02, accepted


@dataclass
class Noisy:
    """Site whose times vary."""

    site: Site
    chance: random.Random
    retry_after_seconds: float | None = None

    def call(self, now: float, items: int) -> tuple[float, int]:
        end, accepted = self.site.call(now, items)
        return now + (end - now) * self.chance.lognormvariate(0, 0.3), accepted


@dataclass
class Run:
    """A client that always has more to send, as ``fleet/sites/bulk.py`` does it."""

    site: Site
    bounds: Bounds = field(default_factory=lambda: Bounds(1000))
    rate: float = 100_000.0
    check: Callable[[Run], None] | None = None
    now: float = 0.0
    accepted: int = 0
    refused: int = 0
    most_in_flight: int = 0
    tuner: Tuner = field(init=False)
    pace: Pace = field(init=False)
    _next_at: float = 0.0
    _in_flight: int = 0
    _calls: int = 0
    _events: list[tuple[float, int, tuple[int, int, int, float, bool] | None]] = field(default_factory=list)
    _order: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.tuner = Tuner.start(self.bounds)
        self.pace = Pace(self.rate).start_work(0.0)

    def until(self, seconds: float) -> Run:
        """Go on until then."""
        while True:
            self._send()
            if self._events[0][0] > seconds:
                self.now = seconds
                return self
            self.now, _, answer = heapq.heappop(self._events)
            if answer is not None:
                self._answered(*answer)
            if self.check is not None:
                self.check(self)

    def _send(self) -> None:
        while True:
            at = max(self.pace.paused_until, self._next_at)
            if at > self.now:
                if not any(event is None for _, _, event in self._events):
                    self._push(at, None)
                return
            setting, throttled = self.tuner.setting, self.pace.is_throttled(self.now)
            size = min(setting.batch, self.pace.get_batch(self.now))
            most = max(setting.calls, min(THROTTLED_CALLS, self.bounds.in_flight // size)) if throttled else 0
            if self._calls >= max(setting.calls, most) or self._in_flight + size > self.bounds.in_flight:
                return
            self._next_at = max(self._next_at, self.now) + size / self.pace.get_rate(self.now)
            self._calls += 1
            self._in_flight += size
            self.most_in_flight = max(self.most_in_flight, self._in_flight)
            end, accepted = self.site.call(self.now, size)
            full = size == setting.batch and not throttled
            self._push(end, (self.tuner.round, size, accepted, self.now, full))

    def _push(self, at: float, event: tuple[int, int, int, float, bool] | None) -> None:
        heapq.heappush(self._events, (at, next(self._order), event))

    def _answered(self, round_: int, size: int, accepted: int, sent_at: float, full: bool) -> None:
        self._calls -= 1
        self._in_flight -= size
        self.accepted += accepted
        self.refused += size - accepted
        wait = self.site.retry_after_seconds
        self.pace = self.pace.record_answer(
            accepted, size - accepted, sent_at=sent_at, now=self.now, retry_after_seconds=wait
        )
        if accepted < size:
            self.tuner = self.tuner.record_throttle(round_)
        else:
            self.tuner = self.tuner.record_answer(Answer(round_, size, self.now - sent_at, full, self.now - sent_at))
