"""The model of an emulated cloud: machines, the stages of their start, power states and failures.

It does no I/O and has no clock: every call is told the time (seconds since the epoch). Chance is drawn from the name of
the machine, so the same machines meet the same fate each time. A change costs O(log n) in the number of machines that
are on their way to RUNNING, and nothing in the number of the others.
"""

from __future__ import annotations

import enum
import hashlib
import heapq
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from simyard_sites.base import ConflictError, Machine, MachineNotFoundError, MachineState, Owner, PowerAction, Stage
from simyard_sites.emulated.settings import Settings

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
# The state that an action leads to, by the state that the machine is in; what is not here is refused.
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
    """What is to become of the guest in a machine. The answer to END is :meth:`Cloud.ended`."""

    RUN = enum.auto()
    FREEZE = enum.auto()
    END = enum.auto()


@dataclass(frozen=True, slots=True)
class Change:
    """A machine is new, in another state, or (``gone``) does not exist any more."""

    id: str
    name: str
    gone: bool = False
    guest: GuestOrder | None = None


@dataclass(slots=True)
class _Record:
    """A machine. ``due`` is when it leaves its stage; ``then`` is its state once its guest has ended."""

    id: str
    name: str
    owner: Owner
    draws: tuple[float, ...]
    state: MachineState = MachineState.PENDING
    entered: dict[Stage, float] = field(default_factory=dict)
    due: float | None = None
    then: MachineState | None = None
    reason: str = ""
    message: str = ""


class Cloud:
    """The machines of one emulated cloud. Ids count up from ``first_id``.

    ``settings`` may be replaced at any time; a machine that is in a stage leaves it when it would have.
    """

    def __init__(self, settings: Settings, first_id: int = 0) -> None:
        self.settings = settings
        self.next_id = first_id
        self._by_id: dict[str, _Record] = {}
        self._by_name: dict[str, _Record] = {}
        self._timetable: list[tuple[float, int, _Record]] = []
        self._timetable_entries = 0
        self._changes: list[Change] = []

    def __len__(self) -> int:
        return len(self._by_id)

    def ids(self) -> list[str]:
        """The ids of all machines, oldest first."""
        return list(self._by_id)

    def named(self, name: str) -> Machine | None:
        """The machine of that name, or None."""
        record = self._by_name.get(name)
        return _seen(record) if record else None

    def machine(self, machine_id: str) -> Machine | None:
        """The machine of that id, or None."""
        record = self._by_id.get(machine_id)
        return _seen(record) if record else None

    def create(self, name: str, owner: Owner, now: float) -> Machine:
        """Make a machine with the id ``next_id``, or adopt the one that has this name."""
        record = self._by_name.get(name)
        if record is None:
            record = _Record(str(self.next_id), name, owner, _draws(name))
            self.next_id += 1
            self._by_id[record.id] = self._by_name[name] = record
            self._enter(record, MachineState.PENDING, now)
        return _seen(record)

    def delete(self, machine_id: str) -> None:
        """End a machine, whatever its state; it is gone once its guest has ended. An absent one is no error."""
        record = self._by_id.get(machine_id)
        if record and record.state is not MachineState.TERMINATING:
            record.due = record.then = None
            record.state = MachineState.TERMINATING
            self._changed(record, GuestOrder.END)

    def act(self, machine_id: str, action: PowerAction, now: float) -> Machine:
        """Begin a power action; one that is done or under way already is no error.

        Raises:
            MachineNotFoundError: there is no such machine.
            ConflictError: it is in a state from which the action does not lead anywhere.
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

    def ended(self, machine_id: str, now: float) -> None:
        """Nothing runs in the machine any more, as was ordered."""
        record = self._by_id.get(machine_id)
        if record is None:
            return
        if record.state is MachineState.TERMINATING:
            del self._by_id[record.id], self._by_name[record.name]
            self._changes.append(Change(record.id, record.name, gone=True))
        elif record.then:
            target, record.then = record.then, None
            self._enter(record, target, now)

    def fail(self, machine_id: str, reason: str, message: str) -> None:
        """What runs in the machine can never work; nothing of it runs any more."""
        record = self._by_id.get(machine_id)
        if record and record.state is MachineState.RUNNING and not record.then:
            self._fail(record, reason, message)

    def advance(self, now: float) -> list[Change]:
        """Let time pass; returns everything that changed since the last call, in order."""
        while self._timetable and self._timetable[0][0] <= now:
            due, _, record = heapq.heappop(self._timetable)
            if record.due == due:
                self._leave_stage(record, due)
        changes, self._changes = self._changes, []
        return changes

    def next_change(self) -> float | None:
        """When ``advance`` will have something to do, as far as time alone brings it."""
        return self._timetable[0][0] if self._timetable else None

    def _enter(self, record: _Record, state: MachineState, now: float) -> None:
        record.state = state
        record.due = None
        if state in _STAGE_OF:
            record.entered.setdefault(_STAGE_OF[state], now)
        if state in _NEXT:
            record.due = now + self._seconds_in(state, record)
            self._timetable_entries += 1
            heapq.heappush(self._timetable, (record.due, self._timetable_entries, record))
        self._changed(record, GuestOrder.RUN if state is MachineState.RUNNING else None)

    def _leave_stage(self, record: _Record, now: float) -> None:
        luck, which = record.draws[3:]
        fails_in = MachineState.PROLOG if which < 0.5 else MachineState.BOOT
        if record.state is fails_in and luck * 100 < self.settings.failure_percent:
            message = f"emulated: {self.settings.failure_percent} % of the machines fail, this one in {record.state}"
            self._fail(record, "EmulatedFailure", message)
        else:
            self._enter(record, _NEXT[record.state], now)

    def _seconds_in(self, state: MachineState, record: _Record) -> float:
        milliseconds, draw = {
            MachineState.PENDING: (self.settings.pending_milliseconds, record.draws[0]),
            MachineState.PROLOG: (self.settings.prolog_milliseconds, record.draws[1]),
            MachineState.BOOT: (self.settings.boot_milliseconds, record.draws[2]),
        }[state]
        return milliseconds / 1000 * (1 + (2 * draw - 1) * self.settings.jitter_percent / 100)

    def _fail(self, record: _Record, reason: str, message: str) -> None:
        record.state = MachineState.FAILED
        record.due = None
        record.reason, record.message = reason, message
        self._changed(record, None)

    def _changed(self, record: _Record, guest: GuestOrder | None) -> None:
        self._changes.append(Change(record.id, record.name, guest=guest))


def _seen(record: _Record) -> Machine:
    return Machine(
        record.id, record.name, record.owner, record.state, dict(record.entered), record.reason, record.message
    )


def _draws(name: str) -> tuple[float, ...]:
    """Five numbers in [0, 1) that depend on the name alone: three for the latencies, two for failures."""
    digest = hashlib.blake2b(name.encode(), digest_size=40).digest()
    return tuple(number / 2**64 for number in struct.unpack("<5Q", digest))
