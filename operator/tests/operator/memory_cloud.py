# SPDX-License-Identifier: Apache-2.0
"""A cloud in the test's own process: the emulated cloud's model, with real adapters as its guests.

What is emulated: machines are records, their stages take milliseconds, and what a cloud does wrong (it loses events and
answers, forgets machines and has them again, breaks its stream) it does as the test says.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

from simyard_adapter.adapter import Adapter
from simyard_adapter.bootstrap import Bootstrap, BrokerAddress
from simyard_adapter.transport import Connections
from simyard_dev.providers import make_emulated_settings
from simyard_sites.base import (
    Changed,
    Gone,
    Machine,
    MachineNotFoundError,
    MachineRequest,
    Outcome,
    PowerAction,
    SiteError,
    SiteEvent,
    SiteInfo,
    Snapshot,
    UnavailableError,
)
from simyard_sites.emulated.cloud import Cloud, GuestOrder
from simyard_sites.emulated.settings import Settings

CHANNELS_PER_CONNECTION = 200
LATENCIES = make_emulated_settings(pending_milliseconds=5, prolog_milliseconds=5, boot_milliseconds=5)
Told = SiteEvent | SiteError


class MemoryCloud:
    """The machines, whoever runs them.

    Attributes:
        made: the ids of all machines that were ever made, by the uid of their Worker.
        requests: what they were made from, by id.
        loses: asked about each event whether nobody gets to know of it.
        streams: how many streams of events have been begun.
        asked: the ids that somebody asked for by name.
    """

    def __init__(self, directory: Path, settings: Settings = LATENCIES) -> None:
        self.model = Cloud(settings)
        self.made: defaultdict[str, list[str]] = defaultdict(list)
        self.loses: Callable[[SiteEvent], bool] = lambda _: False
        self._directory = directory
        self.streams = 0
        self.asked: set[str] = set()
        self._hidden: set[str] = set()
        self.requests: dict[str, MachineRequest] = {}
        self._guests: dict[str, tuple[Adapter, asyncio.Task[None]]] = {}
        self.channels_per_connection = CHANNELS_PER_CONNECTION
        self._connections: weakref.WeakValueDictionary[BrokerAddress, Connections] = weakref.WeakValueDictionary()
        self._watchers: set[asyncio.Queue[Told]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def machines(self) -> list[Machine]:
        """What it says that it has."""
        return [machine for machine_id in self.model.list_ids() if (machine := self.machine(machine_id)) is not None]

    def machine(self, machine_id: str) -> Machine | None:
        return None if machine_id in self._hidden else self.model.find_machine(machine_id)

    def create(self, request: MachineRequest) -> Machine:
        first = self.model.next_id
        machine = self.model.create(request.name, request.owner, time.time())
        if self.model.next_id != first:
            self.made[request.owner.worker_uid].append(machine.id)
            self.requests[machine.id] = request
        self._settle()
        return machine

    def delete(self, machine_id: str) -> None:
        self.model.delete(machine_id)
        self._settle()

    def act(self, machine_id: str, action: PowerAction) -> Machine:
        machine = self.model.act(machine_id, action, time.time())
        self._settle()
        return machine

    def bootstrap(self, machine_id: str) -> Bootstrap:
        """What the machine's guest was told."""
        return Bootstrap.from_bytes(self.requests[machine_id].bootstrap)

    # What goes wrong

    def fail(self, machine_id: str) -> None:
        """The machine fails; its guest goes on."""
        self.model.fail(machine_id, "HostFailed", "its host is gone")
        self._settle()

    def forget(self, machine_id: str) -> None:
        """It says that the machine does not exist; the machine goes on."""
        machine = self.model.find_machine(machine_id)
        assert machine is not None, f"machine {machine_id} exists"
        self._hidden.add(machine_id)
        self._tell(Gone(machine.id, machine.name))

    def remember(self, machine_id: str) -> None:
        """It has the machine again."""
        self._hidden.discard(machine_id)
        if (machine := self.model.find_machine(machine_id)) is not None:
            self._tell(Changed(machine))

    def break_streams(self) -> None:
        """All streams of events end with an error."""
        for watcher in self._watchers:
            watcher.put_nowait(UnavailableError("the stream broke"))

    def tell_snapshot(self, machines: Sequence[Machine]) -> None:
        """Tell everybody that these machines are all."""
        self._tell(Snapshot(machines))

    # What it tells

    async def events(self) -> AsyncGenerator[SiteEvent, None]:
        watcher: asyncio.Queue[Told] = asyncio.Queue()
        self._watchers.add(watcher)
        self.streams += 1
        try:
            yield Snapshot(self.machines())
            while True:
                event = await watcher.get()
                if isinstance(event, SiteError):
                    raise event
                yield event
        finally:
            self._watchers.discard(watcher)

    async def aclose(self) -> None:
        """End all guests."""
        if self._timer is not None:
            self._timer.cancel()
        tasks = [task for _, task in self._guests.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _tell(self, event: SiteEvent) -> None:
        if not self.loses(event):
            for watcher in self._watchers:
                watcher.put_nowait(event)

    def _settle(self) -> None:
        """Tell what has changed, have the guests do what was ordered, and come again when the model has to."""
        while changes := self.model.advance(time.time()):
            for change in changes:
                machine = self.machine(change.id)
                if change.gone:
                    self._tell(Gone(change.id, change.name))
                elif machine is not None:
                    self._tell(Changed(machine))
                if change.guest is GuestOrder.RUN:
                    self._run_guest(change.id)
                elif change.guest is GuestOrder.END:
                    self._end_guest(change.id)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (due := self.model.get_next_change()) is not None:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, due - time.time()), self._settle)

    def _run_guest(self, machine_id: str) -> None:
        bootstrap = self.bootstrap(machine_id)
        directory = self._directory / machine_id
        directory.mkdir(parents=True, exist_ok=True)
        connections = self._connections.get(bootstrap.broker)
        if connections is None:
            connections = Connections(bootstrap.broker, "guests", channels_per_connection=self.channels_per_connection)
            self._connections[bootstrap.broker] = connections
        adapter = Adapter(bootstrap, directory, connections=connections)
        task = asyncio.get_running_loop().create_task(adapter.run(), name=f"guest {machine_id}")
        self._guests[machine_id] = adapter, task

    def raise_defect(self) -> None:
        """Raise what made a guest fail, if one did: nothing in these tests makes adapters fail."""
        for _, task in self._guests.values():
            if task.done() and not task.cancelled():
                task.result()

    def _end_guest(self, machine_id: str) -> None:
        if (guest := self._guests.get(machine_id)) is None:
            self.model.record_guest_end(machine_id, time.time())
            return
        adapter, task = guest
        adapter.stop()
        task.add_done_callback(lambda _: self._ended(machine_id))

    def _ended(self, machine_id: str) -> None:
        if self._guests.pop(machine_id, None) is not None:
            self.model.record_guest_end(machine_id, time.time())
            self._settle()


class Effects(Protocol):
    """Stands between an operator and what it does to the world; see :class:`fleet_life.Life`."""

    async def site(self, what: str, perform: Callable[[], Awaitable[Outcome]]) -> Outcome:
        """Have one item of a call carried out."""
        ...


class MemorySite:
    """An operator's way to the cloud: see :class:`simyard_sites.base.Site`."""

    def __init__(self, cloud: MemoryCloud, effects: Effects) -> None:
        self._cloud = cloud
        self._effects = effects

    async def probe(self) -> SiteInfo:
        return SiteInfo("memory 1 (emulated)")

    async def create(self, requests: Sequence[MachineRequest]) -> AsyncIterator[Outcome]:
        for request in requests:

            async def perform(request: MachineRequest = request) -> Outcome:
                return Outcome(request.name, machine=self._cloud.create(request))

            yield await self._perform(f"create machine {request.name}", request.name, perform)

    async def delete(self, ids: Sequence[str]) -> AsyncIterator[Outcome]:
        for machine_id in ids:

            async def perform(machine_id: str = machine_id) -> Outcome:
                self._cloud.delete(machine_id)
                return Outcome(machine_id)

            yield await self._perform(f"delete machine {machine_id}", machine_id, perform)

    async def act(self, ids: Sequence[str], action: PowerAction) -> AsyncIterator[Outcome]:
        for machine_id in ids:

            async def perform(machine_id: str = machine_id) -> Outcome:
                return Outcome(machine_id, machine=self._cloud.act(machine_id, action))

            yield await self._perform(f"{action} machine {machine_id}", machine_id, perform)

    async def get(self, ids: Sequence[str]) -> AsyncIterator[Outcome]:
        for machine_id in ids:
            self._cloud.asked.add(machine_id)
            machine = self._cloud.machine(machine_id)
            yield Outcome(machine_id, machine, None if machine else MachineNotFoundError("no such machine"))

    async def list_owned(self) -> Sequence[Machine]:
        return self._cloud.machines()

    def events(self) -> AsyncGenerator[SiteEvent, None]:
        return self._cloud.events()

    async def clear(self) -> None:
        """Nothing is kept but machines."""

    async def aclose(self) -> None:
        """Nothing is held."""

    async def _perform(self, what: str, key: str, perform: Callable[[], Awaitable[Outcome]]) -> Outcome:
        try:
            return await self._effects.site(what, perform)
        except SiteError as error:
            return Outcome(key, error=error)
