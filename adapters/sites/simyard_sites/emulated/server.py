"""The emulated cloud at work: the model, its clock, its guests, and its clients."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar, assert_never

from simyard_sites.base import (
    Gone,
    InternalError,
    Machine,
    MachineNotFoundError,
    MachineRequest,
    MachineState,
    Outcome,
    PowerAction,
    SiteError,
)
from simyard_sites.emulated import protocol
from simyard_sites.emulated.cloud import Change, Cloud, GuestOrder
from simyard_sites.emulated.files import CloudFiles
from simyard_sites.emulated.guests import Disks, GuestListener, Guests
from simyard_sites.emulated.protocol import Batch, BatchKind, Outcomes, Welcome
from simyard_sites.emulated.settings import GuestKind, Settings

_LOG = logging.getLogger(__name__)
_IDS_AT_ONCE = 1000
_TICK_SECONDS = 0.005
_Item = TypeVar("_Item")

MakeGuests = Callable[[Disks, GuestListener], Mapping[GuestKind, Guests]]


class CloudServer:
    """One emulated cloud and its clients; starts with no machines.

    ``on_idle`` is called when it has had neither machines nor clients for ``idle_seconds``, and again after as long;
    ``on_shut_down`` when a client asks for its end. To be used in a running event loop.
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
        self._cloud = Cloud(Settings(), self._reserved_ids)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._creating = asyncio.Lock()
        self._to_remove: list[str] = []
        self._removing: asyncio.Task[None] | None = None
        self._watchers: set[_Watcher] = set()
        self._clients: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}
        self._on_shut_down = on_shut_down
        self._on_idle = on_idle
        self._idle_seconds = idle_seconds
        self._idle_timer = self._loop.call_later(idle_seconds, self._consider_idle)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client until it leaves."""
        task = asyncio.current_task()
        assert task
        self._clients[writer] = task
        try:
            async for line in reader:
                try:
                    call = protocol.decode_call(line)
                except ValueError as error:
                    _LOG.warning("a client does not speak our protocol: %s", error)
                    break
                if isinstance(call, protocol.Watch):
                    await self._serve_watch(reader, writer)
                elif isinstance(call, protocol.ShutDown):
                    self._on_shut_down()
                else:
                    writer.write(protocol.encode(await self._answer(call)))
                    await writer.drain()
        except ConnectionError:
            pass  # it left in the middle
        finally:
            del self._clients[writer]
            self._restart_idle_clock()
            writer.close()

    async def aclose(self) -> None:
        """Leave the clients and end all guests; the machines are gone, and their ids will not be used again."""
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
        """See :class:`GuestListener`."""
        self._ended(machine_id)
        self._advance()

    def guest_failed(self, machine_id: str, message: str) -> None:
        """See :class:`GuestListener`."""
        _LOG.warning("the guest of machine %s can never work: %s", machine_id, message)
        self._cloud.fail(machine_id, "GuestUnusable", message)
        self._advance()

    async def _answer(
        self, call: protocol.Configure | protocol.Create | protocol.Delete | protocol.Get | protocol.Act
    ) -> Welcome | Outcomes:
        match call:
            case protocol.Configure(settings):
                self._cloud.settings = settings
                return Welcome(protocol.VERSION)
            case protocol.Create(requests):
                outcomes = await self._create(requests)
            case protocol.Delete(ids):
                outcomes = [self._delete(machine_id) for machine_id in ids]
            case protocol.Get(ids):
                outcomes = [self._get(machine_id) for machine_id in ids]
            case protocol.Act(ids, action):
                outcomes = [self._act(machine_id, action) for machine_id in ids]
            case _:
                assert_never(call)
        self._advance()
        return Outcomes(outcomes)

    async def _create(self, requests: Sequence[MachineRequest]) -> list[Outcome]:
        async with self._creating:
            found = {request.name: self._cloud.named(request.name) for request in requests}
            new = {request.name: request for request in requests if not found[request.name]}
            bootstraps = {str(self._cloud.next_id + n): request.bootstrap for n, request in enumerate(new.values())}
            try:
                await asyncio.to_thread(self._prepare, bootstraps)
            except OSError as error:
                no_disk = InternalError(f"the emulated cloud cannot make disks: {error}")
                return [Outcome(request.name, error=no_disk) for request in requests]
            self._guests_of |= dict.fromkeys(bootstraps, self._guests[self._cloud.settings.guests])
            for name, request in new.items():
                found[name] = self._cloud.create(name, request.owner, time.time())
        return [Outcome(request.name, found[request.name]) for request in requests]

    def _prepare(self, bootstraps: Mapping[str, bytes]) -> None:
        needed_ids = self._cloud.next_id + len(bootstraps)
        if needed_ids > self._reserved_ids:
            self._next_id.write_text(str(needed_ids + _IDS_AT_ONCE))
            self._reserved_ids = needed_ids + _IDS_AT_ONCE
        self._disks.make(bootstraps)

    def _delete(self, machine_id: str) -> Outcome:
        self._cloud.delete(machine_id)
        return Outcome(machine_id, self._cloud.machine(machine_id))

    def _get(self, machine_id: str) -> Outcome:
        machine = self._cloud.machine(machine_id)
        if machine is None:
            return Outcome(machine_id, error=MachineNotFoundError(f"the emulated cloud has no machine {machine_id}"))
        return Outcome(machine_id, machine)

    def _act(self, machine_id: str, action: PowerAction) -> Outcome:
        try:
            return Outcome(machine_id, self._cloud.act(machine_id, action, time.time()))
        except SiteError as error:
            return Outcome(machine_id, error=error)

    def _advance(self) -> None:
        """Carry out all that has changed, and wake again when time brings the next change."""
        while changes := self._cloud.advance(time.time()):
            for change in changes:
                self._carry_out(change)
                for watcher in self._watchers:
                    watcher.tell(change)
        if self._timer:
            self._timer.cancel()
        due = self._cloud.next_change()
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
        """Nothing runs in the machine any more. One that is to go has its directory removed first."""
        machine = self._cloud.machine(machine_id)
        if machine and machine.state is MachineState.TERMINATING:
            self._to_remove.append(machine_id)
            if self._removing is None:
                self._removing = self._tasks.create_task(self._remove())
        else:
            self._cloud.ended(machine_id, time.time())

    async def _remove(self) -> None:
        while self._to_remove:
            machine_ids, self._to_remove = self._to_remove, []
            await asyncio.to_thread(self._disks.remove, machine_ids)
            for machine_id in machine_ids:
                self._cloud.ended(machine_id, time.time())
            self._advance()
        self._removing = None

    async def _serve_watch(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send batches until the client leaves."""
        sending = asyncio.create_task(self._send_batches(writer))
        try:
            await reader.read()
        finally:
            sending.cancel()
            await asyncio.wait([sending])

    async def _send_batches(self, writer: asyncio.StreamWriter) -> None:
        async def send(batch: Batch) -> None:
            writer.write(protocol.encode(batch))
            await writer.drain()

        watcher = _Watcher()
        self._watchers.add(watcher)
        try:
            for ids in _parts(self._cloud.ids()):
                await send(Batch(BatchKind.SNAPSHOT, self._present(ids)))
            await send(Batch(BatchKind.CHANGES))
            while True:
                changes = await watcher.take(protocol.HEARTBEAT_SECONDS)
                for part in _parts(list(changes.values())):
                    machines = self._present(change.id for change in part)
                    here = {machine.id for machine in machines}
                    gone = [Gone(change.id, change.name) for change in part if change.id not in here]
                    await send(Batch(BatchKind.CHANGES, machines, gone))
        except ConnectionError:
            pass  # it left in the middle
        finally:
            self._watchers.discard(watcher)

    def _present(self, ids: Iterable[str]) -> list[Machine]:
        return [machine for machine in map(self._cloud.machine, ids) if machine]

    def _restart_idle_clock(self) -> None:
        if not self._clients and not len(self._cloud):
            self._idle_timer.cancel()
            self._idle_timer = self._loop.call_later(self._idle_seconds, self._consider_idle)

    def _consider_idle(self) -> None:
        if not self._clients and not len(self._cloud):
            self._on_idle()
            self._restart_idle_clock()


class _Watcher:
    """What one client has not been told yet: the last change of each machine, so that a slow client costs no more."""

    def __init__(self) -> None:
        self._changes: dict[str, Change] = {}
        self._changed = asyncio.Event()

    def tell(self, change: Change) -> None:
        self._changes[change.id] = change
        self._changed.set()

    async def take(self, timeout_seconds: float) -> dict[str, Change]:
        """All of it; waits until there is something, but not longer than that."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._changed.wait()
        self._changed.clear()
        changes, self._changes = self._changes, {}
        return changes


def _parts(items: Sequence[_Item]) -> list[Sequence[_Item]]:
    """The items in the parts that a line may hold; no items are one empty part."""
    return [items[start : start + protocol.ITEMS] for start in range(0, len(items) or 1, protocol.ITEMS)]
