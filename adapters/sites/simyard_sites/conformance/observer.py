# SPDX-License-Identifier: Apache-2.0
"""Follows the events of a site, as the control plane does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from simyard_sites.base import Changed, Gone, Machine, MachineState, Site, SiteError, SiteEvent, Snapshot

_REOPEN_SECONDS = 0.05


class Observer:
    """The state that the events of a site have reported so far, by the names of the machines.

    The observer opens a stream again after a retryable error. ``check`` receives every machine and error.

    Attributes:
        machines: The machines in their last reported state.
        events: The events of all streams, in order.
        errors: The errors that broke streams.
    """

    def __init__(self, site: Site, check: Callable[[Machine | SiteError], None], deadline_seconds: float) -> None:
        self.machines: dict[str, Machine] = {}
        self.events: list[SiteEvent] = []
        self.errors: list[SiteError] = []
        self._site = site
        self._check = check
        self._deadline_seconds = deadline_seconds
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._watch(), name="observer")
        self._task.add_done_callback(lambda _: self._news.set())

    async def until(
        self, wanted: Callable[[dict[str, Machine]], bool], what: str = "the machines are as wanted"
    ) -> dict[str, Machine]:
        """Wait until ``wanted`` is true for the machines; after the deadline, raise an error that contains ``what``."""
        try:
            async with asyncio.timeout(self._deadline_seconds):
                while not self.events or not wanted(self.machines):
                    if self._task.done():
                        self._task.result()
                        raise AssertionError("the observer has been closed")
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            seen = {name: machine.state.value for name, machine in list(self.machines.items())[:20]}
            told = f"{len(self.events)} events reported {len(self.machines)} machines: {seen}"
            raise AssertionError(f"waited {self._deadline_seconds} s until {what}; {told}") from None
        return dict(self.machines)

    async def until_all(self, state: MachineState, count: int = 1) -> dict[str, Machine]:
        """Wait until there are ``count`` machines, all in this state."""

        def is_so(machines: dict[str, Machine]) -> bool:
            return [machine.state for machine in machines.values()] == [state] * count

        return await self.until(is_so, f"{count} machines are {state}")

    async def until_none(self) -> None:
        """Wait until there is no machine."""
        await self.until(lambda machines: not machines, "all machines are gone")

    async def aclose(self) -> None:
        """Close the stream; raise the error after which the observer stopped, if there is one."""
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.result()

    async def _watch(self) -> None:
        while True:
            try:
                async with aclosing(self._site.events()) as events:
                    await self._follow(events)
                raise AssertionError("the stream of events has ended without an error")
            except SiteError as error:
                self._check(error)
                self.errors.append(error)
                if not error.retryable:
                    raise
            await asyncio.sleep(_REOPEN_SECONDS)

    async def _follow(self, events: AsyncGenerator[SiteEvent, None]) -> None:
        is_first = True
        async for event in events:
            match event:
                case Snapshot(machines):
                    self.machines = {machine.name: machine for machine in machines}
                    assert len(self.machines) == len(machines), "a snapshot names a machine twice"
                    for machine in machines:
                        self._check(machine)
                case _ if is_first:
                    raise AssertionError(f"the first event is a {type(event).__name__}, not a Snapshot")
                case Changed(machine):
                    self._check(machine)
                    self.machines[machine.name] = machine
                case Gone(_, name):
                    self.machines.pop(name, None)
            is_first = False
            self.events.append(event)
            self._news.set()
