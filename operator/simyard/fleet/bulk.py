"""Sends work to a site in batches: as many and as large as its tuner found, at its pace, when its breaker permits."""

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
    "Time of a bulk call to a site.",
    ["site", "call"],
    buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
IN_FLIGHT = Gauge("simyard_site_in_flight_limit", "Items under way at once, as tuned.", ["site", "call"])
BATCH_SIZE = Gauge("simyard_site_batch_size", "Items of a call, as tuned.", ["site", "call"])
PACE = Gauge("simyard_site_pace_items", "Items per second that the site is asked for at most.", ["site"])

LINGER_SECONDS = 0.01
"""While calls are under way, a batch that is not full waits so long for more."""
CATCH_UP_SECONDS = 0.02
THROTTLED_CALLS = 64
"""Calls under way at most while the pace limits what is sent."""
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
    """Drop the gauges of a site that is not asked any more."""
    with contextlib.suppress(KeyError):
        PACE.remove(name)
    for gauge, step in itertools.product((IN_FLIGHT, BATCH_SIZE), _ORDER):
        with contextlib.suppress(KeyError):
            gauge.remove(name, step.name.lower())


@dataclass(frozen=True, slots=True)
class Told:
    """What a batch taught about the site: the time of its call, the items accepted, and those refused as too many.

    ``broken``: why the site could not answer.
    """

    seconds: float
    accepted: int
    throttled: int = 0
    retry_after_seconds: float | None = None
    broken: SiteError | None = None


Send = Callable[[Step, Sequence[str]], Awaitable[Told | None]]
"""Sends one batch: a step and the keys it is for (uids of workers for CREATE, else ids of machines). None: it taught
nothing, because it did not come to a call."""


@dataclass(slots=True)
class _Calls:
    """What waits and what is under way of one step, and what its calls taught."""

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


class Bulk:
    """Steps that wait to be sent to a site, each key once; batches run beside each other.

    ``permitted`` says how many items may be under way in all because of the site's breaker; None: no limit from there.
    ``rested`` is called when the last call has been answered and nothing waits.
    """

    def __init__(
        self,
        name: str,
        send: Send,
        limits: SiteLimits,
        permitted: Callable[[], int | None],
        rested: Callable[[], None],
    ) -> None:
        self._name = name
        self._send = send
        self._permitted = permitted
        self._rested = rested
        self._bounds = Bounds(limits.max_in_flight)
        self._pace = Pace(limits.requests_per_second)
        self._calls: dict[Step, _Calls] = {step: _Calls(Tuner.start(self._bounds)) for step in _ORDER}
        self._turns = list(_ORDER)
        self._next_at = 0.0
        self._working = False
        self._wake = asyncio.Event()
        self._clock = asyncio.get_running_loop().time

    def set_limits(self, limits: SiteLimits) -> None:
        """Take over changed limits; what was learned within them stays."""
        self._bounds = Bounds(limits.max_in_flight)
        self._pace = self._pace.bounded(limits.requests_per_second)
        for calls in self._calls.values():
            calls.tuner = calls.tuner.bounded(self._bounds)
        self._wake.set()

    @property
    def waits(self) -> bool:
        """Something waits to be sent."""
        return any(calls.waiting for calls in self._calls.values())

    def want(self, step: Step, key: str) -> None:
        """Ask for a step, unless it waits or is under way already."""
        calls = self._calls[step]
        if key not in calls.sent and key not in calls.waiting:
            if not calls.waiting:
                calls.waiting_since = self._clock()
            calls.waiting[key] = None
            self._wake.set()

    def under_way(self, step: Step, key: str) -> bool:
        """It was sent and not answered yet."""
        return key in self._calls[step].sent

    def done(self, step: Step, key: str) -> None:
        """It was answered; the rest of its batch may not have been."""
        self._calls[step].sent.discard(key)

    def pause(self, step: Step, seconds: float) -> None:
        """Send no such step for so long."""
        calls = self._calls[step]
        calls.paused_until = max(calls.paused_until, self._clock() + seconds)

    def permitted_changed(self) -> None:
        """The breaker permits more than before. When it has closed, calls are few and small as at first."""
        if self._permitted() is None:
            for calls in self._calls.values():
                calls.tuner = calls.tuner.restarted()
        self._wake.set()

    def observations(self) -> Iterator[CallObservation]:
        """What was learned of each kind of call that was ever made."""
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
                pace=self._pace.rate(now) if self._is_throttled(now) else None,
            )

    async def run(self) -> NoReturn:
        """Send until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                wakes = self._send_all(group)
                self._note_rest()
                try:
                    async with asyncio.timeout_at(wakes):
                        await self._wake.wait()
                except TimeoutError:
                    continue
        raise AssertionError("the loop does not end")

    def _send_all(self, group: asyncio.TaskGroup) -> float | None:
        """Send all batches that may go now; returns when to look again, unless something wakes us before.

        Steps take turns: one that waits for room is not overtaken by the smaller batches of another one.
        """
        wakes: list[float] = []
        turns = list(self._turns)
        for turn, step in enumerate(turns, start=1):
            at = self._send_due(group, step)
            if at == _NO_ROOM:
                for behind in turns[turn:]:
                    self._calls[behind].starved_at = self._clock()
                break
            if at is not None:
                wakes.append(at)
        return min(wakes, default=None)

    def _send_due(self, group: asyncio.TaskGroup, step: Step) -> float | None:
        """Send the batches of a step that may go now; returns when to look again, infinity when there is no room."""
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
            self._next_at = max(self._next_at, now - CATCH_UP_SECONDS) + len(batch) / self._pace.rate(now)
            self._begin(calls, now)
            group.create_task(self._run_batch(step, batch, calls.tuner.round, now), name=f"{step.name} {len(batch)}")
        if calls.under_way < calls.tuner.setting.calls:
            calls.starved_at = self._clock()
        return None

    def _batch(self, calls: _Calls, now: float) -> tuple[int, int]:
        """How large a batch may be now (0: none fits), and how many may be under way."""
        setting = calls.tuner.setting
        size, most = min(setting.batch, self._pace.batch(now)), setting.calls
        if self._is_throttled(now):
            most = max(most, min(THROTTLED_CALLS, self._bounds.in_flight // size))
        under_way = sum(len(each.sent) for each in self._calls.values())
        room = self._bounds.in_flight - under_way
        permitted = self._permitted()
        if permitted is not None:
            room = min(room, permitted - under_way)
            size = min(size, max(1, permitted))
        return (size if size <= room else 0), most

    def _begin(self, calls: _Calls, now: float) -> None:
        if not self._working:
            self._working = True
            self._pace = self._pace.working(now)
        if calls.under_way == 1:
            calls.answered_at = now

    async def _run_batch(self, step: Step, batch: list[str], round_: int, sent_at: float) -> None:
        calls = self._calls[step]
        told: Told | None = None
        try:
            told = await self._send(step, batch)
        finally:
            calls.sent.difference_update(batch)
            calls.under_way -= 1
            self._wake.set()
        if told is not None:
            answer = Answer(round_, len(batch), self._clock() - sent_at, False, told.seconds)
            self._learn(step, calls, told, answer, sent_at)

    def _learn(self, step: Step, calls: _Calls, told: Told, answer: Answer, sent_at: float) -> None:
        now = self._clock()
        SECONDS.labels(self._name, step.name.lower()).observe(told.seconds)
        calls.seconds.append(told.seconds)
        calls.recent_items = calls.recent_items * _FORGETTING + told.accepted
        calls.recent_seconds = calls.recent_seconds * _FORGETTING + now - calls.answered_at
        calls.answered_at = now
        calls.throttled += told.throttled
        self._pace = self._pace.answered(
            told.accepted, told.throttled, sent_at=sent_at, now=now, retry_after_seconds=told.retry_after_seconds
        )
        if told.broken is not None:
            calls.tuner = calls.tuner.failed(answer.round)
        elif told.throttled:
            calls.tuner = calls.tuner.throttled(answer.round)
        else:
            full = answer.items == calls.tuner.setting.batch and calls.starved_at < sent_at
            calls.tuner = calls.tuner.answered(replace(answer, full=full))
        IN_FLIGHT.labels(self._name, step.name.lower()).set(calls.tuner.base.in_flight)
        BATCH_SIZE.labels(self._name, step.name.lower()).set(calls.tuner.base.batch)
        PACE.labels(self._name).set(self._pace.rate(now))

    def _is_throttled(self, now: float) -> bool:
        return self._pace.is_throttled(now)

    def _note_rest(self) -> None:
        if self._working and not any(calls.under_way or calls.waiting for calls in self._calls.values()):
            self._working = False
            self._pace = self._pace.resting(self._clock())
            self._rested()
