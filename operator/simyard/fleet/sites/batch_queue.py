# SPDX-License-Identifier: Apache-2.0
"""Holds the requests that wait to be sent to one site, and sends them in batches.

Three limits decide when the queue sends a batch, and how large the batch is:

- the tuner of each kind of call limits the items in a batch, and the number of parallel calls;
- the pace of the site limits the items per second;
- the breaker of the site limits the items under way.

The kinds of calls take turns, so that many deletions do not delay creations.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import statistics
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

from prometheus_client import Gauge, Histogram

from simyard.api.cloud_site import SiteLimits
from simyard.plan.machine import Step
from simyard.plan.pace import Pace
from simyard.plan.site import CallName, CallObservation
from simyard.plan.tuner import Answer, Bounds, Tuner
from simyard_sites.base import SiteError

SECONDS = Histogram(
    "simyard_site_call_seconds",
    "Duration of a bulk call to a site.",
    ["site", "call"],
    buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
IN_FLIGHT = Gauge(
    "simyard_site_in_flight_limit", "Maximum of items under way at once, as the tuner found it.", ["site", "call"]
)
BATCH_SIZE = Gauge("simyard_site_batch_size", "Items in one call, as the tuner found it.", ["site", "call"])
PACE = Gauge("simyard_site_pace_items", "Maximum of items per second that are sent to the site.", ["site"])

LINGER_SECONDS = 0.01
"""Time for which a batch that is not full waits for further requests, if another call is under way."""
CATCH_UP_SECONDS = 0.02
THROTTLED_CALLS = 64
"""Maximum number of parallel calls while the site accepts less than the declared rate."""
_NO_ROOM = float("inf")
_FORGETTING = 0.98
_NEARLY = 0.9
_CALLS: Mapping[Step, CallName] = {
    Step.CREATE: "Create",
    Step.DELETE: "Delete",
    Step.LOOK: "Look",
    Step.START: "Start",
    Step.STOP: "Stop",
    Step.SUSPEND: "Suspend",
    Step.RESTART: "Restart",
}
_ORDER = (Step.DELETE, Step.LOOK, Step.CREATE, Step.START, Step.STOP, Step.SUSPEND, Step.RESTART)


def forget_limits(name: str) -> None:
    """Remove the gauges of a site's limits after its runner has ended."""
    with contextlib.suppress(KeyError):
        PACE.remove(name)
    for gauge, step in itertools.product((IN_FLIGHT, BATCH_SIZE), _ORDER):
        with contextlib.suppress(KeyError):
            gauge.remove(name, step.name.lower())


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The result of a call, as far as the queue needs it.

    Attributes:
        seconds: duration of the call in seconds.
        accepted: number of items that the site accepted.
        throttled: number of items that the site refused because of its rate limit.
        retry_after_seconds: pause that the site asked for.
        broken: error that shows that the site does not work; None if no error shows this.
    """

    seconds: float
    accepted: int
    throttled: int = 0
    retry_after_seconds: float | None = None
    broken: SiteError | None = None


Send = Callable[[Step, Sequence[str]], Awaitable[BatchResult | None]]
"""Function that sends one batch of a step. The keys are uids of Workers for CREATE, and else ids of machines.

It returns None if it did not call the site.
"""


@dataclass(slots=True)
class _Calls:
    """The requests of one step that wait or are under way, and the measurements of its calls."""

    tuner: Tuner
    waiting: dict[str, None] = field(default_factory=dict)
    sent: set[str] = field(default_factory=set)
    under_way: int = 0
    waiting_since: float = 0.0
    starved_at: float = 0.0
    paused_until: float = 0.0
    throttled: int = 0
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=101))
    answered_at: float = 0.0
    recent_items: float = 0.0
    recent_seconds: float = 0.0


class BatchQueue:
    """Queue of the requests to one site that wait or are under way. For each step, it has each key at most once.

    It calls ``on_rest`` when no request waits or is under way any more.
    """

    def __init__(self, name: str, limits: SiteLimits, on_rest: Callable[[], None]) -> None:
        self._name = name
        self._on_rest = on_rest
        self._permitted: int | None = None
        self._bounds = Bounds(limits.max_in_flight)
        self._pace = Pace(limits.requests_per_second)
        self._calls: dict[Step, _Calls] = {step: _Calls(Tuner.start(self._bounds)) for step in _ORDER}
        self._turns = list(_ORDER)
        self._next_at = 0.0
        self._working = False
        self._wake = asyncio.Event()
        self._clock = asyncio.get_running_loop().time

    def set_limits(self, limits: SiteLimits) -> None:
        """Apply changed limits. The tuners keep their settings as far as the new limits permit."""
        self._bounds = Bounds(limits.max_in_flight)
        self._pace = self._pace.with_bound(limits.requests_per_second)
        for calls in self._calls.values():
            calls.tuner = calls.tuner.with_bounds(self._bounds)
        self._wake.set()

    @property
    def has_waiting(self) -> bool:
        """True while a request waits to be sent."""
        return any(calls.waiting for calls in self._calls.values())

    def add(self, step: Step, key: str) -> None:
        """Add a request, unless the same request waits or is under way already."""
        calls = self._calls[step]
        if key not in calls.sent and key not in calls.waiting:
            if not calls.waiting:
                calls.waiting_since = self._clock()
            calls.waiting[key] = None
            self._wake.set()

    def is_sent(self, step: Step, key: str) -> bool:
        """Return whether a request is under way."""
        return key in self._calls[step].sent

    def record_answer(self, step: Step, key: str) -> None:
        """Record that a request is answered. Other requests of its batch may still be under way."""
        self._calls[step].sent.discard(key)

    def pause(self, step: Step, seconds: float) -> None:
        """Send no requests of this step for ``seconds``."""
        calls = self._calls[step]
        calls.paused_until = max(calls.paused_until, self._clock() + seconds)

    def permit(self, items: int | None) -> None:
        """Set the breaker's limit for the items under way; None if the breaker is closed.

        When the breaker closes, the tuners start again with few parallel calls and small batches.
        """
        self._permitted = items
        if items == 0:
            return
        if items is None:
            for calls in self._calls.values():
                calls.tuner = calls.tuner.restart()
        self._wake.set()

    def list_observations(self) -> Iterator[CallObservation]:
        """Yield the measurements and the setting of each kind of call that the queue has made."""
        now = self._clock()
        for step, calls in self._calls.items():
            if not calls.seconds:
                continue
            seconds = sorted(calls.seconds)
            rate = calls.recent_items / max(calls.recent_seconds, 1e-3)
            yield CallObservation(
                call=_CALLS[step],
                setting=calls.tuner.base,
                growing=calls.tuner.growing,
                bound=calls.tuner.is_bound or rate >= _NEARLY * self._pace.bound,
                idle=not calls.under_way and not calls.waiting,
                rate=rate,
                median_seconds=statistics.median(seconds),
                high_seconds=seconds[math.ceil(0.95 * len(seconds)) - 1],
                throttled=calls.throttled,
                pace=self._pace.get_rate(now) if self._is_throttled(now) else None,
            )

    async def run(self, send: Send) -> NoReturn:
        """Send batches with ``send`` until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                wakes = self._send_all(group, send)
                self._note_rest()
                try:
                    async with asyncio.timeout_at(wakes):
                        await self._wake.wait()
                except TimeoutError:
                    continue
        raise AssertionError("the loop does not end")

    def _send_all(self, group: asyncio.TaskGroup, send: Send) -> float | None:
        """Send all batches that the limits permit now, in turns between the steps.

        If a step has no room for its batch, the steps behind it wait, so that their smaller batches do not use up the
        room. Returns the time of the next attempt; None: only a change makes an attempt useful.
        """
        wakes: list[float] = []
        turns = list(self._turns)
        for turn, step in enumerate(turns, start=1):
            at = self._send_due(group, send, step)
            if at == _NO_ROOM:
                for behind in turns[turn:]:
                    self._calls[behind].starved_at = self._clock()
                break
            if at is not None:
                wakes.append(at)
        return min(wakes, default=None)

    def _send_due(self, group: asyncio.TaskGroup, send: Send, step: Step) -> float | None:
        """Send the batches of a step that the limits permit now.

        Returns the time of the next attempt; ``_NO_ROOM`` if the limits for items under way leave no room for a batch;
        None if only a change makes an attempt useful.
        """
        calls = self._calls[step]
        while calls.waiting:
            now = self._clock()
            wakes = max(calls.paused_until, self._pace.paused_until, self._next_at)
            if wakes > now:
                calls.starved_at = now
                return wakes
            size, most = self._batch(calls, now)
            if calls.under_way >= most:
                return None
            if not size:
                calls.starved_at = now
                return _NO_ROOM
            if len(calls.waiting) < size:
                calls.starved_at = now
                if calls.under_way and (lingers := calls.waiting_since + LINGER_SECONDS) > now:
                    return lingers
            batch = [key for key, _ in zip(calls.waiting, range(size), strict=False)]
            for key in batch:
                del calls.waiting[key]
            calls.sent.update(batch)
            calls.under_way += 1
            calls.waiting_since = now
            self._turns.remove(step)
            self._turns.append(step)
            self._next_at = max(self._next_at, now - CATCH_UP_SECONDS) + len(batch) / self._pace.get_rate(now)
            self._begin(calls, now)
            sending = self._run_batch(send, step, batch, calls.tuner.round, now)
            group.create_task(sending, name=f"{step.name} {len(batch)}")
        if calls.under_way < calls.tuner.setting.calls:
            calls.starved_at = self._clock()
        return None

    def _batch(self, calls: _Calls, now: float) -> tuple[int, int]:
        """Return the maximum number of items in a batch (0: no room), and the maximum number of parallel calls."""
        setting = calls.tuner.setting
        size, most = min(setting.batch, self._pace.get_batch(now)), setting.calls
        if self._is_throttled(now):
            most = max(most, min(THROTTLED_CALLS, self._bounds.in_flight // size))
        under_way = sum(len(each.sent) for each in self._calls.values())
        room = self._bounds.in_flight - under_way
        permitted = self._permitted
        if permitted is not None:
            room = min(room, permitted - under_way)
            size = min(size, max(1, permitted))
        return (size if size <= room else 0), most

    def _begin(self, calls: _Calls, now: float) -> None:
        if not self._working:
            self._working = True
            self._pace = self._pace.start_work(now)
        if calls.under_way == 1:
            calls.answered_at = now

    async def _run_batch(self, send: Send, step: Step, batch: list[str], round_: int, sent_at: float) -> None:
        calls = self._calls[step]
        result: BatchResult | None = None
        try:
            result = await send(step, batch)
        finally:
            calls.sent.difference_update(batch)
            calls.under_way -= 1
            self._wake.set()
        if result is not None:
            answer = Answer(round_, len(batch), self._clock() - sent_at, False, result.seconds)
            self._learn(step, calls, result, answer, sent_at)

    def _learn(self, step: Step, calls: _Calls, result: BatchResult, answer: Answer, sent_at: float) -> None:
        now = self._clock()
        SECONDS.labels(self._name, step.name.lower()).observe(result.seconds)
        calls.seconds.append(result.seconds)
        calls.recent_items = calls.recent_items * _FORGETTING + result.accepted
        calls.recent_seconds = calls.recent_seconds * _FORGETTING + now - calls.answered_at
        calls.answered_at = now
        calls.throttled += result.throttled
        self._pace = self._pace.record_answer(
            result.accepted, result.throttled, sent_at=sent_at, now=now, retry_after_seconds=result.retry_after_seconds
        )
        if result.broken is not None:
            calls.tuner = calls.tuner.record_failure(answer.round)
        elif result.throttled:
            calls.tuner = calls.tuner.record_throttle(answer.round)
        else:
            full = answer.items == calls.tuner.setting.batch and calls.starved_at < sent_at
            calls.tuner = calls.tuner.record_answer(replace(answer, full=full))
        IN_FLIGHT.labels(self._name, step.name.lower()).set(calls.tuner.base.in_flight)
        BATCH_SIZE.labels(self._name, step.name.lower()).set(calls.tuner.base.batch)
        PACE.labels(self._name).set(self._pace.get_rate(now))

    def _is_throttled(self, now: float) -> bool:
        return self._pace.is_throttled(now)

    def _note_rest(self) -> None:
        if self._working and not any(calls.under_way or calls.waiting for calls in self._calls.values()):
            self._working = False
            self._pace = self._pace.stop_work(self._clock())
            self._on_rest()
