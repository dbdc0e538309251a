# SPDX-License-Identifier: Apache-2.0
"""Reports changes of machines. It polls starting and ending machines often, and all others seldom."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from simyard_sites.base import Changed, Gone, SiteEvent, Snapshot
from simyard_sites.opennebula.ending import Ending
from simyard_sites.opennebula.settings import Settings
from simyard_sites.opennebula.sharing import Sharing
from simyard_sites.opennebula.table import Changes, Table
from simyard_sites.opennebula.view import View

SWEEP_SECONDS = 600.0
_PATIENCE = 0.05
_MAX_PAUSE_SECONDS = 5.0
"""Maximum pause between polls of changing machines. The pause grows with the time since the last change."""
_MIN_PAUSE_FACTOR = 4.0
"""The minimum pause after a poll, as a multiple of the duration of the poll."""


@dataclass(slots=True)
class PollSchedule:
    """The times of the next polls, in seconds of a monotonic clock.

    Attributes:
        changed_at: The time of the last request for a change, or of the last poll that showed a change. all_at: The
        time of the next poll of all known machines. sweep_at: The time of the next poll for unknown machines.
    """

    settings: Settings
    changed_at: float
    all_at: float
    sweep_at: float
    _looked_seconds: float = 0.0

    @classmethod
    def begin(cls, settings: Settings, now: float) -> PollSchedule:
        """Return the schedule after a sweep."""
        return cls(settings, now, now + settings.quiet_poll_seconds, now + SWEEP_SECONDS)

    def record_poll(self, begun: float, now: float, *, changed: bool) -> None:
        """Record a poll that showed a change or no change."""
        self._looked_seconds = now - begun
        if changed:
            self.changed_at = now

    def compute_next_poll(self, now: float, *, moving: bool) -> float:
        """Return the time of the next poll."""
        if not moving:
            return self.all_at
        patient = min(_MAX_PAUSE_SECONDS, self.settings.quiet_poll_seconds, (now - self.changed_at) * _PATIENCE)
        return min(
            self.all_at, now + max(self.settings.poll_seconds, self._looked_seconds * _MIN_PAUSE_FACTOR, patient)
        )


class Watching:
    """A source of the events of one site. All sources share the table, but each one polls separately."""

    def __init__(self, table: Table, view: View, ending: Ending, sharing: Sharing, settings: Settings) -> None:
        self._table = table
        self._view = view
        self._ending = ending
        self._sharing = sharing
        self._settings = settings

    async def events(self) -> AsyncGenerator[SiteEvent, None]:
        """Yield the events of the site."""
        clock = asyncio.get_running_loop().time
        changes = self._table.add_listener()
        try:
            await self._view.read_all()
            changes.collect()
            yield Snapshot(self._table.list_machines())
            schedule = PollSchedule.begin(self._settings, clock())
            while True:
                looks_at = schedule.compute_next_poll(clock(), moving=self._has_moving())
                while clock() < looks_at:
                    await _wait_for_work(changes, looks_at)
                    for event in self._collect_events(changes):
                        yield event
                    if self._has_moving() and clock() < looks_at:
                        schedule.changed_at = clock()
                        looks_at = min(looks_at, schedule.compute_next_poll(clock(), moving=True))
                begun = clock()
                await self._look(schedule, begun)
                schedule.record_poll(begun, clock(), changed=bool(changes.waiting))
                for event in self._collect_events(changes):
                    yield event
        finally:
            self._table.leave(changes)

    async def _look(self, schedule: PollSchedule, now: float) -> None:
        if now >= schedule.sweep_at:
            await self._view.read_all()
            schedule.sweep_at = now + SWEEP_SECONDS
            schedule.all_at = now + self._settings.quiet_poll_seconds
        elif now >= schedule.all_at:
            await self._view.read(sorted(self._table.duplicates.union(self._table.list_ids())))
            await self._view.read_new()
            schedule.all_at = now + self._settings.quiet_poll_seconds
        else:
            await self._view.read(sorted(self._table.duplicates | self._table.moving))
            if self._view.is_doubtful:
                await self._view.read_new()
        await self._ending.retry_pending()
        await self._sharing.retry_pending()

    def _has_moving(self) -> bool:
        return bool(self._table.moving or self._table.duplicates or self._view.is_doubtful)

    def _collect_events(self, changes: Changes) -> list[SiteEvent]:
        events: list[SiteEvent] = []
        for machine_id, name in changes.collect().items():
            machine = self._table.get(machine_id)
            events.append(Changed(machine) if machine is not None else Gone(str(machine_id), name))
        return events


async def _wait_for_work(changes: Changes, until: float) -> None:
    """Wait until a change is reported or work is due, at most until this time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(until):
            await changes.news.wait()
