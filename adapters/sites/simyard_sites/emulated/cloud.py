# SPDX-License-Identifier: Apache-2.0
"""Models an emulated cloud: machines, the stages of their start, power states and failures.

The model does no I/O and has no clock: every call gets the time (seconds since the epoch). Random numbers depend on the
name of the machine, so the same machines always have the same times and failures. A change costs O(log n) in the number
of starting machines, and nothing in the number of others.

A machine is PENDING until the controller has handled its request, the latency of the stage has passed and the scheduler
has placed it. It is in PROLOG until a driver thread has carried out its operation on its host and the latency has
passed. It is in BOOT only for the latency. If a machine is deleted while its operation waits for a thread or a host,
the operation is still carried out.
"""

from __future__ import annotations

import enum
import hashlib
import heapq
import ipaddress
import struct
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from simyard_sites.base import (
    Address,
    ConflictError,
    Machine,
    MachineNotFoundError,
    MachineState,
    Owner,
    PowerAction,
    Stage,
)
from simyard_sites.emulated.queueing import Rate, Servers
from simyard_sites.emulated.scheduler import Scheduler
from simyard_sites.emulated.settings import Settings

_FIRST_ADDRESS = ipaddress.IPv4Address("198.18.0.1")
_ADDRESSES = 2**17 - 2
_REMEMBERED = 1000  # Limit of the ended machines that can be resurrected.

_NEXT = {
    MachineState.PENDING: MachineState.PROLOG,
    MachineState.PROLOG: MachineState.BOOT,
    MachineState.BOOT: MachineState.RUNNING,
}
_STAGE_OF = {
    MachineState.PENDING: Stage.PENDING,
    MachineState.PROLOG: Stage.PROLOG,
    MachineState.BOOT: Stage.BOOT,
    MachineState.RUNNING: Stage.RUNNING,
}
_STARTING = {state: state for state in _NEXT}
# The state after an action, by the present state of the machine; other combinations are refused.
_ACTIONS: Mapping[PowerAction, Mapping[MachineState, MachineState]] = {
    PowerAction.START: _STARTING
    | {
        MachineState.RUNNING: MachineState.RUNNING,
        MachineState.STOPPED: MachineState.BOOT,
        MachineState.SUSPENDED: MachineState.RUNNING,
    },
    PowerAction.STOP: {
        MachineState.RUNNING: MachineState.STOPPED,
        MachineState.SUSPENDED: MachineState.STOPPED,
        MachineState.STOPPED: MachineState.STOPPED,
    },
    PowerAction.RESTART: _STARTING | {MachineState.RUNNING: MachineState.BOOT},
    PowerAction.SUSPEND: {
        MachineState.RUNNING: MachineState.SUSPENDED,
        MachineState.SUSPENDED: MachineState.SUSPENDED,
    },
}


class GuestOrder(enum.Enum):
    """An order to the guest in a machine. The answer to END is :meth:`Cloud.record_guest_end`."""

    RUN = enum.auto()
    FREEZE = enum.auto()
    END = enum.auto()


@dataclass(frozen=True, slots=True)
class Change:
    """A machine that is new, in another state, or (``gone``) does not exist any more.

    Watchers do not receive a change that is ``lost``.
    """

    id: str
    name: str
    gone: bool = False
    guest: GuestOrder | None = None
    lost: bool = False


@dataclass(slots=True)
class _Record:
    """A machine. ``due`` is the time at which its stage ends; ``then`` is its state after its guest has ended."""

    id: str
    name: str
    owner: Owner
    draws: tuple[float, ...]
    state: MachineState = MachineState.PENDING
    entered: dict[Stage, float] = field(default_factory=dict)
    due: float | None = None
    then: MachineState | None = None
    host: int | None = None
    reason: str = ""
    message: str = ""


class Cloud:
    """The machines of one emulated cloud. Ids count up from ``first_id``.

    ``loses_events`` is a fault: while it is set, no watcher receives a change.
    """

    def __init__(self, settings: Settings, first_id: int = 0) -> None:
        self.settings = settings
        self.loses_events = False
        self.next_id = first_id
        self._by_id: dict[str, _Record] = {}
        self._by_name: dict[str, _Record] = {}
        self._gone: OrderedDict[str, _Record] = OrderedDict()
        self._controller = Rate()
        self._scheduler = Scheduler()
        self._threads = Servers()
        self._hosts: dict[int, Servers] = {}
        # An entry without a record is a run of the scheduler.
        self._timetable: list[tuple[float, int, _Record | None]] = []
        self._timetable_entries = 0
        self._changes: list[Change] = []

    def __len__(self) -> int:
        return len(self._by_id)

    def configure(self, settings: Settings, now: float) -> None:
        """Replace the settings. The present stage of each machine ends as planned with the old settings."""
        if settings != self.settings:
            self.settings = settings
            before = self._scheduler.next_run
            self._scheduler.retry(now)
            self._plan_run(before)

    def list_ids(self) -> list[str]:
        """Return the ids of all machines, oldest first."""
        return list(self._by_id)

    def find_by_name(self, name: str) -> Machine | None:
        """Return the machine with this name, or None."""
        record = self._by_name.get(name)
        return _seen(record) if record else None

    def find_machine(self, machine_id: str) -> Machine | None:
        """Return the machine with this id, or None."""
        record = self._by_id.get(machine_id)
        return _seen(record) if record else None

    def create(self, name: str, owner: Owner, now: float) -> Machine:
        """Create a machine with the id ``next_id``, or adopt the machine with this name."""
        record = self._by_name.get(name)
        if record is None:
            record = _Record(str(self.next_id), name, owner, _draws(name))
            self.next_id += 1
            self._by_id[record.id] = self._by_name[name] = record
            self._enter(record, MachineState.PENDING, now)
        return _seen(record)

    def delete(self, machine_id: str) -> None:
        """Start to delete a machine in any state; it is gone when its guest has ended. Do nothing if it is absent."""
        record = self._by_id.get(machine_id)
        if record and record.state is not MachineState.TERMINATING:
            self._scheduler.drop(record.id)
            record.due = record.then = None
            record.state = MachineState.TERMINATING
            self._changed(record, GuestOrder.END)

    def act(self, machine_id: str, action: PowerAction, now: float) -> Machine:
        """Start a power action. Do nothing if the action is done or in progress already.

        Raises:
            MachineNotFoundError: The machine does not exist.
            ConflictError: The action is not possible in the machine's state.
        """
        record = self._by_id.get(machine_id)
        if record is None:
            raise MachineNotFoundError(f"the emulated cloud has no machine {machine_id}")
        state = record.then or record.state
        target = _ACTIONS[action].get(state)
        if target is None or (record.then and target is not record.then):
            raise ConflictError(f"cannot {action} machine {machine_id}: it is {state} or about to be")
        if target is state:
            return _seen(record)
        if target is MachineState.SUSPENDED:
            record.state = target
            self._changed(record, GuestOrder.FREEZE)
        elif state is MachineState.STOPPED or target is MachineState.RUNNING:
            self._enter(record, target, now)
        else:
            record.then = target
            self._changed(record, GuestOrder.END)
        return _seen(record)

    def record_guest_end(self, machine_id: str, now: float) -> None:
        """Record that the guest of a machine has ended, as ordered."""
        record = self._by_id.get(machine_id)
        if record is None:
            return
        if record.state is MachineState.TERMINATING:
            self._remove(record, now, self._loses_event(record.name, "gone"))
        elif record.then:
            target, record.then = record.then, None
            self._enter(record, target, now)

    def fail(self, machine_id: str, reason: str, message: str) -> None:
        """Record that the guest of a machine has ended with an error that every new start would repeat."""
        record = self._by_id.get(machine_id)
        if record and record.state is MachineState.RUNNING and not record.then:
            self._fail(record, reason, message)

    def forget(self, machine_id: str, now: float) -> None:
        """Inject a fault: the machine disappears without an event. Do nothing if it is absent."""
        record = self._by_id.get(machine_id)
        if record:
            self._scheduler.drop(record.id)
            record.due = record.then = None
            self._changes.append(Change(record.id, record.name, guest=GuestOrder.END, lost=True))
            self._remove(record, now, is_lost=True)

    def resurrect(self, machine_id: str, now: float) -> Machine:
        """Inject a fault: a machine that is gone exists again and runs, without a guest.

        Raises:
            MachineNotFoundError: The machine never existed, too many machines are gone since, or its name is in use
                again.
        """
        record = self._gone.pop(machine_id, None)
        if record is None or record.name in self._by_name:
            raise MachineNotFoundError(
                f"the emulated cloud cannot resurrect the machine {machine_id}: it does not remember it"
            )
        self._by_id[record.id] = self._by_name[record.name] = record
        record.state = MachineState.RUNNING
        record.entered.setdefault(Stage.RUNNING, now)
        self._changed(record, None)
        return _seen(record)

    def draw_lost_answer(self, name: str, what: str) -> bool:
        """Return True if the answer to a call is lost, which depends only on the names of machine and call."""
        return _is_drawn(self.settings.lost_answers_percent, name, what)

    def advance(self, now: float) -> list[Change]:
        """Advance the time; return all changes since the last call, in order."""
        while self._timetable and self._timetable[0][0] <= now:
            due, _, record = heapq.heappop(self._timetable)
            if record is None:
                self._run_scheduler(due)
            elif record.due == due:
                self._leave_stage(record, due)
        changes, self._changes = self._changes, []
        return changes

    def get_next_change(self) -> float | None:
        """Return the time of the next planned change, or None."""
        return self._timetable[0][0] if self._timetable else None

    def _enter(self, record: _Record, state: MachineState, now: float) -> None:
        record.state = state
        record.due = None
        if state in _STAGE_OF:
            record.entered.setdefault(_STAGE_OF[state], now)
        if state in _NEXT:
            record.due = self._served(state, record, now) + self._latency(state, record)
            self._plan(record.due, record)
        self._changed(record, GuestOrder.RUN if state is MachineState.RUNNING else None)

    def _plan(self, due: float, record: _Record | None) -> None:
        self._timetable_entries += 1
        heapq.heappush(self._timetable, (due, self._timetable_entries, record))

    def _leave_stage(self, record: _Record, now: float) -> None:
        luck, which = record.draws[3:]
        fails_in = MachineState.PROLOG if which < 0.5 else MachineState.BOOT
        if record.state is fails_in and luck * 100 < self.settings.failure_percent:
            message = (
                f"emulated: {self.settings.failure_percent} % of the machines fail, this one in state {record.state}"
            )
            self._fail(record, "EmulatedFailure", message)
        elif record.state is MachineState.PENDING and (self.settings.interval_milliseconds or self.settings.hosts):
            record.due = None
            before = self._scheduler.next_run
            self._scheduler.add(record.id, self.settings, now)
            self._plan_run(before)
        else:
            self._enter(record, _NEXT[record.state], now)

    def _plan_run(self, before: float | None) -> None:
        """Plan the scheduler's next run, unless it was planned at ``before``."""
        if self._scheduler.next_run is not None and self._scheduler.next_run != before:
            self._plan(self._scheduler.next_run, None)

    def _run_scheduler(self, now: float) -> None:
        placed = self._scheduler.run(self.settings, now)
        self._plan_run(None)
        for machine_id, host in placed.machines:
            record = self._by_id[machine_id]
            record.host = host
            record.reason = record.message = ""
            self._enter(record, MachineState.PROLOG, now)
        for machine_id in placed.stuck:
            record = self._by_id[machine_id]
            record.reason, record.message = "Unschedulable", "emulated: no host has room for the machine"
            self._changed(record, None)

    def _served(self, state: MachineState, record: _Record, now: float) -> float:
        """Return the time at which the shared servers have finished their part of the stage."""
        settings = self.settings
        if state is MachineState.PENDING and settings.requests_per_second:
            pace = settings.compute_interval(settings.requests_per_second)
            return self._controller.reserve(settings.requests_per_machine, settings.request_burst, pace, now)
        if state is MachineState.PROLOG and settings.operation_milliseconds:
            start = self._threads.free_at(settings.threads, now)
            host = self._hosts.setdefault(record.host, Servers()) if record.host is not None else None
            if host:
                start = max(start, host.free_at(settings.operations_per_host, now))
            end = start + settings.compute_seconds(settings.operation_milliseconds)
            self._threads.occupy(end)
            if host:
                host.occupy(end)
            return end
        return now

    def _latency(self, state: MachineState, record: _Record) -> float:
        if state is MachineState.PENDING:
            milliseconds, draw = self.settings.pending_milliseconds, record.draws[0]
        elif state is MachineState.PROLOG:
            milliseconds, draw = self.settings.prolog_milliseconds, record.draws[1]
        else:
            milliseconds, draw = self.settings.boot_milliseconds, record.draws[2]
        return self.settings.compute_seconds(milliseconds) * (1 + (2 * draw - 1) * self.settings.jitter_percent / 100)

    def _remove(self, record: _Record, now: float, is_lost: bool) -> None:
        del self._by_id[record.id], self._by_name[record.name]
        if record.host is not None:
            before = self._scheduler.next_run
            self._scheduler.release(record.host, self.settings, now)
            self._plan_run(before)
            record.host = None
        self._gone[record.id] = record
        if len(self._gone) > _REMEMBERED:
            self._gone.popitem(last=False)
        self._changes.append(Change(record.id, record.name, gone=True, lost=is_lost))

    def _fail(self, record: _Record, reason: str, message: str) -> None:
        record.state = MachineState.FAILED
        record.due = None
        record.reason, record.message = reason, message
        self._changed(record, None)

    def _loses_event(self, name: str, what: str) -> bool:
        return self.loses_events or _is_drawn(self.settings.lost_events_percent, name, what)

    def _changed(self, record: _Record, guest: GuestOrder | None) -> None:
        is_lost = self._loses_event(record.name, record.state)
        self._changes.append(Change(record.id, record.name, guest=guest, lost=is_lost))


def _seen(record: _Record) -> Machine:
    return Machine(
        record.id,
        record.name,
        record.owner,
        record.state,
        dict(record.entered),
        record.reason,
        record.message,
        (_address(record.id),) if Stage.RUNNING in record.entered else (),
    )


def _address(machine_id: str) -> Address:
    """Return an address of 198.18.0.0/15, which RFC 2544 reserves for tests and which no router forwards."""
    return Address(str(_FIRST_ADDRESS + int(machine_id) % _ADDRESSES), "eth0")


def _draws(name: str) -> tuple[float, ...]:
    """Return five numbers in [0, 1) that depend only on the name: three for the latencies, two for failures."""
    digest = hashlib.blake2b(name.encode(), digest_size=40).digest()
    return tuple(number / 2**64 for number in struct.unpack("<5Q", digest))


def _is_drawn(percent: int, name: str, what: str) -> bool:
    """Return True for ``percent`` of all machines; the result depends only on the two names."""
    if not percent:
        return False
    digest = hashlib.blake2b(f"{name} {what}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) * 100 < percent * 2**64
