# SPDX-License-Identifier: Apache-2.0
"""Serves an emulated cloud: connects the model, the clock, the guests and the clients."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar, assert_never

from simyard_sites.base import (
    ErrorScope,
    InternalError,
    InvalidSpecError,
    Machine,
    MachineNotFoundError,
    MachineRequest,
    MachineState,
    Outcome,
    PowerAction,
    SiteError,
    ThrottledError,
)
from simyard_sites.emulated import protocol
from simyard_sites.emulated.cloud import Change, Cloud, GuestOrder
from simyard_sites.emulated.files import CloudFiles
from simyard_sites.emulated.guests import Disks, GuestListener, Guests
from simyard_sites.emulated.portions import yield_portions
from simyard_sites.emulated.profiles import Profile
from simyard_sites.emulated.protocol import Act, Create, Delete, Disturb, Outcomes, Refused, Reply, Welcome
from simyard_sites.emulated.queueing import Front, make_throttled_error
from simyard_sites.emulated.settings import GuestKind, Settings
from simyard_sites.emulated.watching import Watchers

_LOG = logging.getLogger(__name__)
_IDS_AT_ONCE = 1000
_TICK_SECONDS = 0.005
_UNTIL_CONFIGURED = Settings(GuestKind.PROCESS, Profile.INSTANT, 100)
"""The settings of a cloud before its first client sends others; until then it has no machines."""
_Item = TypeVar("_Item")

_Send = Callable[[Reply], Awaitable[None]]
MakeGuests = Callable[[Disks, GuestListener], Mapping[GuestKind, Guests]]


class CloudServer:
    """The server of an emulated cloud. It starts without machines.

    It calls ``on_idle`` after every ``idle_seconds`` without machines and clients, and ``on_shut_down`` when a client
    asks for the end of the cloud. Create it in a running event loop.
    """

    def __init__(
        self,
        files: CloudFiles,
        tasks: asyncio.TaskGroup,
        make_guests: MakeGuests,
        on_shut_down: Callable[[], None],
        on_idle: Callable[[], None],
        idle_seconds: float,
    ) -> None:
        self._tasks = tasks
        self._next_id = files.next_id
        self._disks = Disks(files.machines)
        self._disks.clear()
        self._guests = make_guests(self._disks, self)
        self._guests_of: dict[str, Guests] = {}
        self._reserved_ids = int(self._next_id.read_text()) if self._next_id.exists() else 0
        self._cloud = Cloud(_UNTIL_CONFIGURED, self._reserved_ids)
        self._front = Front()
        self._disturbance = Disturb()
        self._closing = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._creating = asyncio.Lock()
        self._to_remove: list[str] = []
        self._removing: asyncio.Task[None] | None = None
        self._watchers = Watchers(self._cloud)
        self._clients: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}
        self._on_shut_down = on_shut_down
        self._on_idle = on_idle
        self._idle_seconds = idle_seconds
        self._idle_timer = self._loop.call_later(idle_seconds, self._consider_idle)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client until it disconnects."""
        task = asyncio.current_task()
        assert task
        self._clients[writer] = task

        async def send(reply: Reply) -> None:
            # The client has disconnected; its request is carried out nevertheless.
            with contextlib.suppress(ConnectionError):
                if not writer.is_closing():
                    writer.write(protocol.encode(reply))
                    await writer.drain()

        try:
            async for line in reader:
                try:
                    call = protocol.decode_call(line)
                except ValueError as error:
                    _LOG.warning("a client uses another protocol: %s", error)
                    break
                if isinstance(call, protocol.Watch):
                    await self._watchers.serve(reader, writer)
                elif isinstance(call, protocol.ShutDown):
                    self._on_shut_down()
                elif not await self._answer(call, send):
                    break
        except ConnectionError:
            pass  # The client disconnected in the middle of a line.
        finally:
            del self._clients[writer]
            self._restart_idle_clock()
            writer.close()

    async def aclose(self) -> None:
        """Disconnect the clients and end all guests.

        The machines are then gone; no later machine gets one of their ids.
        """
        self._closing.set()
        for client in self._clients:
            client.transport.abort()
        while self._clients:
            await asyncio.wait(self._clients.values())
        self._idle_timer.cancel()
        if self._timer:
            self._timer.cancel()
        await asyncio.gather(*(guests.aclose() for guests in self._guests.values()))
        if self._removing:
            await self._removing
        self._disks.clear()
        self._next_id.write_text(str(self._cloud.next_id))

    def guest_ended(self, machine_id: str) -> None:
        """Record that a guest has ended as ordered."""
        self._ended(machine_id)
        self._advance()

    def guest_failed(self, machine_id: str, message: str) -> None:
        """Record that a guest has ended with an error that every new start would repeat."""
        _LOG.warning("the guest of machine %s can never work: %s", machine_id, message)
        self._cloud.fail(machine_id, "GuestUnusable", message)
        self._advance()

    async def _answer(
        self,
        call: Create
        | Delete
        | Act
        | protocol.Configure
        | protocol.Get
        | protocol.Forget
        | protocol.Resurrect
        | Disturb,
        send: _Send,
    ) -> bool:
        """Answer a call; return False if the answer, and the connection with it, is lost."""
        reply: Reply
        match call:
            case Create() | Delete() | Act():
                return await self._serve_call(call, send)
            case protocol.Configure(settings):
                self._cloud.configure(settings, time.time())
                reply = Welcome(f"{protocol.VERSION} {settings.title}")
            case protocol.Get(ids):
                reply = Outcomes([self._get(machine_id) for machine_id in ids])
            case protocol.Forget(ids):
                reply = Outcomes([self._forget(machine_id) for machine_id in ids])
            case protocol.Resurrect(ids):
                reply = Outcomes([self._resurrect(machine_id) for machine_id in ids])
            case Disturb():
                self._disturbance = call
                self._cloud.loses_events = call.loses_events
                reply = Outcomes([])
            case _:
                assert_never(call)
        self._advance()
        await send(reply)
        return True

    async def _serve_call(self, call: Create | Delete | Act, send: _Send) -> bool:
        """Answer a call after the time that the front end takes for it; return False if the answer is lost."""
        try:
            self._front.begin(self._cloud.settings)
        except ThrottledError as error:
            await send(Refused(error))
            return True
        try:
            match call:
                case Create(requests):
                    admitted, refused = self._admit(requests)
                    return await self._serve_items(Create(admitted), admitted, self._create, send, refused)
                case Delete(ids):
                    return await self._serve_items(call, ids, self._delete, send)
                case Act(ids, action):
                    return await self._serve_items(call, ids, functools.partial(self._act, action), send)
                case _:
                    assert_never(call)
        finally:
            self._front.end()

    async def _serve_items(
        self,
        call: Create | Delete | Act,
        items: Sequence[_Item],
        do: Callable[[Sequence[_Item]], Awaitable[list[Outcome]]],
        send: _Send,
        refused: Sequence[Outcome] = (),
    ) -> bool:
        is_lost = self._loses_answer(call)
        times = self._front.serve(len(items), self._cloud.settings, time.time())
        left = len(items)
        outcomes = list(refused)
        async for part in yield_portions(items, times, protocol.HEARTBEAT_SECONDS, self._closing):
            if part:
                outcomes += await do(part)
                self._advance()
                left -= len(part)
            if not is_lost:
                await send(Outcomes(outcomes, more=left > 0))
            outcomes = []
        return not is_lost

    def _loses_answer(self, call: Create | Delete | Act) -> bool:
        """Return True if the answer to a call is lost.

        The answer to a repeated call, which changes nothing, is never lost.
        """
        match call:
            case Create(requests):
                what = "create"
                new = [request.name for request in requests if self._cloud.find_by_name(request.name) is None]
            case Delete(ids):
                what = "delete"
                found = (machine for machine in map(self._cloud.find_machine, ids) if machine)
                new = [machine.name for machine in found if machine.state is not MachineState.TERMINATING]
            case Act():
                return False
        if not new:
            return False
        return self._cloud.draw_lost_answer(new[0], what) or (self._disturbance.error is None and self._disturbs())

    def _disturbs(self) -> bool:
        """Return True if the injected fault affects this call."""
        calls = self._disturbance.calls
        self._disturbance = dataclasses.replace(self._disturbance, calls=max(0, calls - 1))
        return calls > 0

    def _admit(self, requests: Sequence[MachineRequest]) -> tuple[list[MachineRequest], list[Outcome]]:
        """Return the requests that the front end accepts now, and the refusals of the others."""
        settings = self._cloud.settings
        error = self._disturbance.error
        if error:
            new = {request.name for request in requests if self._cloud.find_by_name(request.name) is None}
            refused = new if new and self._disturbs() else set()
        else:
            error = make_throttled_error(f"more than {settings.creates_per_second} creates per second", settings)
            refused = {request.name for request in requests if not self._front.admit(settings, time.time())}
        admitted = [request for request in requests if request.name not in refused]
        return admitted, [Outcome(request.name, error=error) for request in requests if request.name in refused]

    async def _create(self, requests: Sequence[MachineRequest]) -> list[Outcome]:
        async with self._creating:
            found = {request.name: self._cloud.find_by_name(request.name) for request in requests}
            new = {request.name: request for request in requests if not found[request.name]}
            by_id = {str(self._cloud.next_id + n): request for n, request in enumerate(new.values())}
            try:
                await asyncio.to_thread(self._prepare, by_id)
            except OSError as error:
                no_disk = InternalError(f"the emulated cloud cannot create disks: {error}")
                return [Outcome(request.name, error=no_disk) for request in requests]
            self._guests_of |= dict.fromkeys(by_id, self._guests[self._cloud.settings.guests])
            for name, request in new.items():
                found[name] = self._cloud.create(name, request.owner, time.time())
        return [_adopted(request, found[request.name]) for request in requests]

    def _prepare(self, requests: Mapping[str, MachineRequest]) -> None:
        needed_ids = self._cloud.next_id + len(requests)
        if needed_ids > self._reserved_ids:
            self._next_id.write_text(str(needed_ids + _IDS_AT_ONCE))
            self._reserved_ids = needed_ids + _IDS_AT_ONCE
        self._disks.make(requests)

    async def _delete(self, machine_ids: Sequence[str]) -> list[Outcome]:
        for machine_id in machine_ids:
            self._cloud.delete(machine_id)
        return [Outcome(machine_id, self._cloud.find_machine(machine_id)) for machine_id in machine_ids]

    def _forget(self, machine_id: str) -> Outcome:
        self._cloud.forget(machine_id, time.time())
        return Outcome(machine_id)

    def _resurrect(self, machine_id: str) -> Outcome:
        try:
            machine = self._cloud.resurrect(machine_id, time.time())
        except MachineNotFoundError as error:
            return Outcome(machine_id, error=error)
        self._guests_of[machine_id] = self._guests[self._cloud.settings.guests]
        return Outcome(machine_id, machine)

    def _get(self, machine_id: str) -> Outcome:
        machine = self._cloud.find_machine(machine_id)
        if machine is None:
            return Outcome(machine_id, error=MachineNotFoundError(f"the emulated cloud has no machine {machine_id}"))
        return Outcome(machine_id, machine)

    async def _act(self, action: PowerAction, machine_ids: Sequence[str]) -> list[Outcome]:
        outcomes = []
        for machine_id in machine_ids:
            try:
                outcomes.append(Outcome(machine_id, self._cloud.act(machine_id, action, time.time())))
            except SiteError as error:
                outcomes.append(Outcome(machine_id, error=error))
        return outcomes

    def _advance(self) -> None:
        """Carry out all changes, and plan the next call for the time of the next change."""
        while changes := self._cloud.advance(time.time()):
            for change in changes:
                self._carry_out(change)
                self._watchers.report(change)
        if self._timer:
            self._timer.cancel()
        due = self._cloud.get_next_change()
        if due is not None:
            self._timer = self._loop.call_later(max(due - time.time(), _TICK_SECONDS), self._advance)

    def _carry_out(self, change: Change) -> None:
        guests = self._guests_of[change.id]
        if change.gone:
            del self._guests_of[change.id]
            self._restart_idle_clock()
        elif change.guest is GuestOrder.RUN:
            guests.run(change.id)
        elif change.guest is GuestOrder.FREEZE:
            guests.freeze(change.id)
        elif change.guest is GuestOrder.END and not guests.end(change.id):
            self._ended(change.id)

    def _ended(self, machine_id: str) -> None:
        """Record that a guest has ended.

        Before that, delete the directory of the machine if it is being deleted or was forgotten.
        """
        machine = self._cloud.find_machine(machine_id)
        if machine is None or machine.state is MachineState.TERMINATING:
            self._to_remove.append(machine_id)
            if self._removing is None:
                self._removing = self._tasks.create_task(self._remove())
        else:
            self._cloud.record_guest_end(machine_id, time.time())

    async def _remove(self) -> None:
        while self._to_remove:
            machine_ids, self._to_remove = self._to_remove, []
            await asyncio.to_thread(self._disks.remove, machine_ids)
            for machine_id in machine_ids:
                self._cloud.record_guest_end(machine_id, time.time())
            self._advance()
        self._removing = None

    def _restart_idle_clock(self) -> None:
        if not self._clients and not len(self._cloud):
            self._idle_timer.cancel()
            self._idle_timer = self._loop.call_later(self._idle_seconds, self._consider_idle)

    def _consider_idle(self) -> None:
        if not self._clients and not len(self._cloud):
            self._on_idle()
            self._restart_idle_clock()


def _adopted(request: MachineRequest, machine: Machine | None) -> Outcome:
    """Return the existing machine with this name, or an error if it belongs to another worker."""
    if machine is None or machine.owner == request.owner:
        return Outcome(request.name, machine)
    said = f"the machine {request.name} exists but belongs to another owner: delete it"
    return Outcome(request.name, error=InvalidSpecError(said, scope=ErrorScope.ITEM))
