"""The machines of one account as OpenNebula told them last, and who wants to hear of changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from simyard_sites.base import Machine, MachineState, Owner
from simyard_sites.opennebula.machines import STARTING, machine_of
from simyard_sites.opennebula.ownership import Ownership
from simyard_sites.opennebula.records import VmRecord
from simyard_sites.opennebula.states import VmState, is_settled, meaning_of, name_of

_REMEMBERED = 50_000


class Changes:
    """What one listener has not been told yet: machines by id that changed, and the names of those that are gone."""

    def __init__(self) -> None:
        self.waiting: dict[int, str] = {}
        self.news = asyncio.Event()

    def take(self) -> dict[int, str]:
        """All of it."""
        taken, self.waiting = self.waiting, {}
        self.news.clear()
        return taken


class Table:
    """Machines of one CloudSite.

    OpenNebula does not mind two machines of one name. Here the one of the lower id is the machine; the other one is a
    duplicate, is not shown, and waits in :attr:`duplicates` to be ended. Ids only grow, so all who look agree.

    What was asked earlier is older news: a record is ignored when a later question has been answered already.
    ``begun`` numbers the questions.
    """

    def __init__(self, ownership: Ownership, now: Callable[[], float]) -> None:
        self._ownership = ownership
        self._now = now
        self._machines: dict[int, Machine] = {}
        self._begun: dict[int, int] = {}
        self._by_name: dict[str, int] = {}
        self._seen_starting: set[int] = set()
        self._finished: dict[int, None] = {}
        self._listeners: set[Changes] = set()
        self._questions = 0
        self.moving: set[int] = set()
        self.duplicates: set[int] = set()
        self.next_id = 0

    def __len__(self) -> int:
        return len(self._machines)

    def question(self) -> int:
        """The number of a question that is asked now."""
        self._questions += 1
        return self._questions

    def machines(self) -> Sequence[Machine]:
        """All that are there."""
        return list(self._machines.values())

    def ids(self) -> Sequence[int]:
        """The ids of all that are there."""
        return list(self._machines)

    def get(self, machine_id: int) -> Machine | None:
        """The machine of that id."""
        return self._machines.get(machine_id)

    def is_own(self, machine_id: int) -> bool:
        """Whether it is a machine of this CloudSite that has not ended, as far as is known."""
        return machine_id in self._machines or machine_id in self.duplicates

    def is_known(self, machine_id: int) -> bool:
        """Whether it is, or was, a machine of this CloudSite, as far as is remembered."""
        return self.is_own(machine_id) or machine_id in self._finished

    def named(self, name: str) -> Machine | None:
        """The machine of that name."""
        found = self._by_name.get(name)
        return None if found is None else self._machines.get(found)

    @property
    def first_id(self) -> int:
        """No machine that is there has a lower id than this, nor has one that is made from now on."""
        return min(self._machines, default=self.next_id)

    def listen(self) -> Changes:
        """Be told of changes from now on."""
        changes = Changes()
        self._listeners.add(changes)
        return changes

    def leave(self, changes: Changes) -> None:
        """Be told no more."""
        self._listeners.discard(changes)

    def expect_change(self, ids: Iterable[int]) -> None:
        """Something was asked of these machines: they are about to move, and are looked at often."""
        self.moving.update(each for each in ids if each in self._machines)
        for listener in self._listeners:
            listener.news.set()

    def accepted(self, machine_id: int, name: str, owner: Owner) -> None:
        """The site said that it made a machine; more is not known of it yet."""
        if not any(machine_id in known for known in (self._machines, self.duplicates, self._finished)):
            record = VmRecord(machine_id, name, VmState.PENDING, 0, int(self._now()))
            self._put(record, owner, 0)

    def put(self, records: Iterable[VmRecord], begun: int) -> None:
        """What OpenNebula answered to a question."""
        for record in records:
            self.next_id = max(self.next_id, record.id + 1)
            if record.state == VmState.DONE:
                self.finish([record.id])
                continue
            known = self._machines.get(record.id)
            owner = self._ownership.owner_of(record.labels) or (known.owner if known is not None else None)
            if owner is not None and record.id not in self._finished:
                self._put(record, owner, begun)

    def finish(self, ids: Iterable[int]) -> None:
        """These do not exist any more, and never will again."""
        for machine_id in ids:
            if self.is_own(machine_id):
                self._finished[machine_id] = None
            self.duplicates.discard(machine_id)
            self._drop(machine_id)
        while len(self._finished) > _REMEMBERED:
            del self._finished[next(iter(self._finished))]

    def _put(self, record: VmRecord, owner: Owner, begun: int) -> None:
        if record.id in self.duplicates or begun < self._begun.get(record.id, 0):
            return
        known = self._machines.get(record.id)
        other = self._by_name.setdefault(known.name if known is not None else record.name, record.id)
        if other < record.id:
            self.duplicates.add(record.id)
            self._drop(record.id)
            return
        if other > record.id:
            self.duplicates.add(other)
            self._drop(other)
            self._by_name[record.name] = record.id
        before = self._machines.get(record.id)
        state = name_of(record.state, record.lcm_state)
        if before is None and meaning_of(state) in STARTING:
            self._seen_starting.add(record.id)
        machine = machine_of(record, owner, before, self._now(), seen_starting=record.id in self._seen_starting)
        self._begun[record.id] = begun
        if machine != before:
            self._machines[record.id] = machine
            self._tell(record.id, machine.name)
        if not is_settled(state):
            self.moving.add(record.id)
        elif before is None or before.state is not machine.state:
            self.moving.discard(record.id)

    def _drop(self, machine_id: int) -> None:
        machine = self._machines.pop(machine_id, None)
        self._begun.pop(machine_id, None)
        self._seen_starting.discard(machine_id)
        self.moving.discard(machine_id)
        if machine is None:
            return
        if self._by_name.get(machine.name) == machine_id:
            del self._by_name[machine.name]
        self._tell(machine_id, machine.name)

    def _tell(self, machine_id: int, name: str) -> None:
        for listener in self._listeners:
            listener.waiting[machine_id] = name
            listener.news.set()


def is_ending(machine: Machine | None) -> bool:
    """It is gone, or on its way out."""
    return machine is None or machine.state is MachineState.TERMINATING
