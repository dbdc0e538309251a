"""Tells what changes, by looking often at what moves and seldom at what rests."""

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
_PATIENT_SECONDS = 5.0
"""Machines that move are looked at again after this share of the time that nothing has happened, at most so seldom."""
_BUSY = 4.0
"""A look is followed by a pause of so many times its own length, at least."""


@dataclass(slots=True)
class Rhythm:
    """When to look next; times are seconds of a monotonic clock.

    Attributes:
        changed_at: when something was asked of a machine last, or a look showed something new.
        all_at: when everything is looked at next.
        sweep_at: when machines that are not known are looked for.
    """

    settings: Settings
    changed_at: float
    all_at: float
    sweep_at: float
    _looked_seconds: float = 0.0

    @classmethod
    def begin(cls, settings: Settings, now: float) -> Rhythm:
        """After a sweep."""
        return cls(settings, now, now + settings.quiet_poll_seconds, now + SWEEP_SECONDS)

    def looked(self, begun: float, now: float, *, changed: bool) -> None:
        """A look showed something, or not."""
        self._looked_seconds = now - begun
        if changed:
            self.changed_at = now

    def next_at(self, now: float, *, moving: bool) -> float:
        """When to look next."""
        if not moving:
            return self.all_at
        patient = min(_PATIENT_SECONDS, self.settings.quiet_poll_seconds, (now - self.changed_at) * _PATIENCE)
        return min(self.all_at, now + max(self.settings.poll_seconds, self._looked_seconds * _BUSY, patient))


class Watching:
    """The events of one site. All who listen share the table; each of them looks by itself."""

    def __init__(self, table: Table, view: View, ending: Ending, sharing: Sharing, settings: Settings) -> None:
        self._table = table
        self._view = view
        self._ending = ending
        self._sharing = sharing
        self._settings = settings

    async def events(self) -> AsyncGenerator[SiteEvent, None]:
        """See :class:`simyard_sites.base.Site`."""
        clock = asyncio.get_running_loop().time
        changes = self._table.listen()
        try:
            await self._view.sweep()
            changes.take()
            yield Snapshot(self._table.machines())
            rhythm = Rhythm.begin(self._settings, clock())
            while True:
                looks_at = rhythm.next_at(clock(), moving=self._has_moving())
                while clock() < looks_at:
                    await _news(changes, looks_at)
                    for event in self._told(changes):
                        yield event
                    if self._has_moving() and clock() < looks_at:
                        rhythm.changed_at = clock()
                        looks_at = min(looks_at, rhythm.next_at(clock(), moving=True))
                begun = clock()
                await self._look(rhythm, begun)
                rhythm.looked(begun, clock(), changed=bool(changes.waiting))
                for event in self._told(changes):
                    yield event
        finally:
            self._table.leave(changes)

    async def _look(self, rhythm: Rhythm, now: float) -> None:
        if now >= rhythm.sweep_at:
            await self._view.sweep()
            rhythm.sweep_at = now + SWEEP_SECONDS
            rhythm.all_at = now + self._settings.quiet_poll_seconds
        elif now >= rhythm.all_at:
            await self._view.look(sorted(self._table.duplicates.union(self._table.ids())))
            await self._view.look_for_new()
            rhythm.all_at = now + self._settings.quiet_poll_seconds
        else:
            await self._view.look(sorted(self._table.duplicates | self._table.moving))
            if self._view.is_doubtful:
                await self._view.look_for_new()
        await self._ending.carry_on()
        await self._sharing.carry_on()

    def _has_moving(self) -> bool:
        return bool(self._table.moving or self._table.duplicates or self._view.is_doubtful)

    def _told(self, changes: Changes) -> list[SiteEvent]:
        events: list[SiteEvent] = []
        for machine_id, name in changes.take().items():
            machine = self._table.get(machine_id)
            events.append(Changed(machine) if machine is not None else Gone(str(machine_id), name))
        return events


async def _news(changes: Changes, until: float) -> None:
    """Wait for something to tell, or to do, but no longer than that."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(until):
            await changes.news.wait()
