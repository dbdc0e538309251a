# SPDX-License-Identifier: Apache-2.0
"""Start machines as the fleet does: its bulk executor, tuner and breaker send the calls to the site.

The measurement does not include the other work of the operator (Workers, pools, restarts).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

from simyard.api.cloud_site import SiteLimits
from simyard.fleet.sites.batch_queue import BatchQueue, BatchResult
from simyard.fleet.sites.calls import carry_out
from simyard.fleet.sites.event_stream import follow
from simyard.fleet.sites.health import SiteHealth
from simyard.plan.machine import Step
from simyard.plan.tuner import START, Setting
from simyard_dev.errors import SetupError
from simyard_sites.base import Changed, Gone, Machine, MachineRequest, MachineState, Outcome, Site, SiteEvent, Snapshot

START_SECONDS = 300.0
_NAME = "bench"


@dataclass(frozen=True)
class Started:
    """Times of a start: seconds until the last machine was accepted, and until events showed the last one running.

    ``cpu_seconds`` is the CPU time of this process; ``setting`` is the last setting of the tuner.
    """

    seconds: float
    accepted_seconds: float
    cpu_seconds: float
    setting: Setting


class Fleet:
    """An asynchronous context with the machines of one site. It is entered when the site's events have begun."""

    def __init__(self, site: Site) -> None:
        self.machines: dict[str, Machine] = {}
        self._site = site
        self._running: set[str] = set()
        self._queue = BatchQueue(_NAME, SiteLimits(), _nothing)
        self._health = SiteHealth(_NAME, site, self._queue, _nothing)
        self._requests: dict[str, MachineRequest] = {}
        self._answers = 0
        self._answered_at = 0.0
        self._failure: SetupError | None = None
        self._began = False
        self._news = asyncio.Event()

    async def __aenter__(self) -> Self:
        events = follow(_NAME, self._site, self._health, self._apply_event, self._broken)
        self._tasks = [asyncio.create_task(events), asyncio.create_task(self._queue.run(self._send))]
        try:
            await self._until(lambda: self._began)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._site.aclose()

    async def start(self, requests: Sequence[MachineRequest]) -> Started:
        """Have machines created, and wait until all of them run.

        Raises:
            SetupError: a machine was refused or failed, or not all ran in time.
        """
        self._requests = {request.name: request for request in requests}
        self._answers = 0
        cpu, began = time.process_time(), time.monotonic()
        for name in self._requests:
            self._queue.add(Step.CREATE, name)
        await self._until(lambda: len(self._running) == len(requests) == self._answers)
        seconds, cpu = time.monotonic() - began, time.process_time() - cpu
        # A start that needs a single round of calls ends before the tuner learns of it.
        setting = next((each.setting for each in self._queue.list_observations() if each.call == "Create"), START)
        return Started(seconds, self._answered_at - began, cpu, setting)

    async def end(self) -> None:
        """Have all machines deleted, and wait until they are gone.

        Raises:
            SetupError: a machine cannot be deleted, or machines are left after the deadline.
        """
        for machine_id in self.machines:
            self._queue.add(Step.DELETE, machine_id)
        await self._until(lambda: not self.machines)

    async def _until(self, wanted: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(START_SECONDS):
                while not wanted():
                    if self._failure is not None:
                        raise self._failure
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            states = f"{len(self.machines)} machines, {len(self._running)} of them run"
            raise SetupError(f"after {START_SECONDS:.0f} s there are {states}") from None

    async def _send(self, step: Step, keys: Sequence[str]) -> BatchResult | None:
        if step is Step.CREATE:
            call = self._site.create([self._requests[key] for key in keys])
        else:
            call = self._site.delete(keys)
        return await carry_out(_NAME, self._health, step, keys, call, partial(self._answered, step))

    def _answered(self, step: Step, outcome: Outcome) -> None:
        self._queue.record_answer(step, outcome.key)
        self._answers += 1
        self._answered_at = time.monotonic()
        if outcome.error is not None:
            self._fail(f"{step.name.lower()} {outcome.key}: {outcome.error}")
        self._news.set()

    def _apply_event(self, event: SiteEvent) -> None:
        if isinstance(event, Snapshot):
            self._began = True
            for machine in event.machines:
                self._seen(machine)
        elif isinstance(event, Changed):
            self._seen(event.machine)
        elif isinstance(event, Gone):
            self.machines.pop(event.id, None)
            self._running.discard(event.id)
        self._news.set()

    def _seen(self, machine: Machine) -> None:
        self.machines[machine.id] = machine
        if machine.state is MachineState.RUNNING:
            self._running.add(machine.id)
        elif machine.state is MachineState.FAILED:
            self._fail(f"the machine {machine.id} failed: {machine.reason} {machine.message}")

    def _broken(self) -> None:
        self._fail("the stream of the site's events broke")

    def _fail(self, message: str) -> None:
        self._failure = self._failure or SetupError(message)
        self._news.set()


def _nothing() -> None:
    """Do nothing: this benchmark needs no notification."""
