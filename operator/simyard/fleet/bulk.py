"""Sends work to a site in batches, within the site's limits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NoReturn

from simyard.api.cloud_site import SiteLimits
from simyard.fleet.queue import RateLimit
from simyard.plan.machine import Step

MOST_PER_BATCH = 200
_ORDER = (Step.DELETE, Step.CREATE, Step.START, Step.STOP, Step.SUSPEND)
Send = Callable[[Step, Sequence[str]], Awaitable[None]]
"""Sends one batch: a step and the keys it is for (uids of workers for CREATE, else ids of machines)."""


class Bulk:
    """Steps that wait to be sent to a site, each key once; batches run beside each other.

    A batch is a quarter of what may be in flight, so that there is always another one under way.
    """

    def __init__(self, send: Send, limits: SiteLimits) -> None:
        self._send = send
        self._waiting: dict[Step, dict[str, None]] = {step: {} for step in _ORDER}
        self._sent: dict[Step, set[str]] = {step: set() for step in _ORDER}
        self._paused_until: dict[Step, float] = {}
        self._wake = asyncio.Event()
        self._clock = asyncio.get_running_loop().time
        self.set_limits(limits)

    def set_limits(self, limits: SiteLimits) -> None:
        """Take over changed limits."""
        self._most = limits.max_in_flight
        self._rate = RateLimit(limits.requests_per_second, self._clock)

    def want(self, step: Step, key: str) -> None:
        """Ask for a step, unless it waits or is under way already."""
        if key not in self._sent[step]:
            self._waiting[step][key] = None
            self._wake.set()

    def done(self, step: Step, key: str) -> None:
        """It was answered; the rest of its batch may not have been."""
        self._sent[step].discard(key)
        self._wake.set()

    def pause(self, step: Step, seconds: float) -> None:
        """Send no such step for so long."""
        self._paused_until[step] = max(self._paused_until.get(step, 0.0), self._clock() + seconds)

    async def run(self) -> NoReturn:
        """Send until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                for step in _ORDER:
                    while batch := self._next_batch(step):
                        group.create_task(self._run_batch(step, batch), name=f"{step.name} {len(batch)}")
                pauses = [self._paused_until[step] for step in self._paused_until if self._waiting[step]]
                try:
                    async with asyncio.timeout_at(min(pauses, default=None)):
                        await self._wake.wait()
                except TimeoutError:
                    continue
        raise AssertionError("the loop does not end")

    def _next_batch(self, step: Step) -> list[str]:
        waiting = self._waiting[step]
        if not waiting:
            return []
        if (until := self._paused_until.get(step)) is not None:
            if self._clock() < until:
                return []
            del self._paused_until[step]
        size = min(len(waiting), max(1, self._most // 4), MOST_PER_BATCH)
        if self._most - sum(map(len, self._sent.values())) < size:
            return []
        batch = [key for key, _ in zip(waiting, range(size), strict=False)]
        for key in batch:
            del waiting[key]
        self._sent[step].update(batch)
        return batch

    async def _run_batch(self, step: Step, batch: list[str]) -> None:
        try:
            await asyncio.sleep(self._rate.reserve(len(batch)))
            await self._send(step, batch)
        finally:
            self._sent[step].difference_update(batch)
            self._wake.set()
