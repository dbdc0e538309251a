# SPDX-License-Identifier: Apache-2.0
"""Stores the known machines of one account, and tells listeners about their changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from simyard_sites.base import Machine, MachineState, Owner
from simyard_sites.opennebula.machines import STARTING, read_machine
from simyard_sites.opennebula.ownership import Ownership
from simyard_sites.opennebula.records import VmRecord
from simyard_sites.opennebula.states import VmState, get_machine_state, is_settled, name_of

_REMEMBERED = 50_000


class Changes:
    """The unreported changes for one listener: the ids of changed or gone machines, with their names."""

    def __init__(self) -> None:
        self.waiting: dict[int, str] = {}
        self.news = asyncio.Event()

    def collect(self) -> dict[int, str]:
        """Return all unreported changes and clear them."""
        taken, self.waiting = self.waiting, {}
        self.news.clear()
        return taken


class Table:
    """The machines of one CloudSite.

    OpenNebula allows two VMs with one name. The table then contains the VM with the lower id. The other VM is a
    duplicate: the table does not show it, and :attr:`duplicates` has its id until it is deleted. A newer VM always has
    a higher id, so all processes choose the same VM.

    Answers can arrive in the wrong order. ``begun`` is the number of a query. The table ignores a record if it has
    applied a record of this machine from a later query.
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

    def begin_query(self) -> int:
        """Return the number of a query that starts now."""
        self._questions += 1
        return self._questions

    def list_machines(self) -> Sequence[Machine]:
        """Return all machines."""
        return list(self._machines.values())

    def list_ids(self) -> Sequence[int]:
        """Return the ids of all machines."""
        return list(self._machines)

    def get(self, machine_id: int) -> Machine | None:
        """Return the machine with this id, or None."""
        return self._machines.get(machine_id)

    def is_own(self, machine_id: int) -> bool:
        """Return True if this is the id of a known machine of this CloudSite that still exists."""
        return machine_id in self._machines or machine_id in self.duplicates

    def is_known(self, machine_id: int) -> bool:
        """Return True if this is the id of a known machine of this CloudSite that exists or has existed."""
        return self.is_own(machine_id) or machine_id in self._finished

    def find_by_name(self, name: str) -> Machine | None:
        """Return the machine with this name, or None."""
        found = self._by_name.get(name)
        return None if found is None else self._machines.get(found)

    @property
    def first_id(self) -> int:
        """A lower bound for the ids of all present and future machines."""
        return min(self._machines, default=self.next_id)

    def add_listener(self) -> Changes:
        """Return a listener that collects changes from now on."""
        changes = Changes()
        self._listeners.add(changes)
        return changes

    def leave(self, changes: Changes) -> None:
        """Remove a listener."""
        self._listeners.discard(changes)

    def expect_change(self, ids: Iterable[int]) -> None:
        """Mark machines that are about to change, so that they are polled often."""
        self.moving.update(each for each in ids if each in self._machines)
        for listener in self._listeners:
            listener.news.set()

    def add_accepted(self, machine_id: int, name: str, owner: Owner) -> None:
        """Add a machine that the site has accepted; its state is not known yet."""
        if not any(machine_id in known for known in (self._machines, self.duplicates, self._finished)):
            record = VmRecord(machine_id, name, VmState.PENDING, 0, int(self._now()))
            self._apply_record(record, owner, 0)

    def apply_records(self, records: Iterable[VmRecord], begun: int) -> None:
        """Apply the records of an answer to query ``begun``."""
        for record in records:
            self.next_id = max(self.next_id, record.id + 1)
            if record.state == VmState.DONE:
                self.finish([record.id])
                continue
            known = self._machines.get(record.id)
            owner = self._ownership.read_owner(record.labels) or (known.owner if known is not None else None)
            if owner is not None and record.id not in self._finished:
                self._apply_record(record, owner, begun)

    def finish(self, ids: Iterable[int]) -> None:
        """Remove machines that no longer exist. Later answers cannot bring them back."""
        for machine_id in ids:
            if self.is_own(machine_id):
                self._finished[machine_id] = None
            self.duplicates.discard(machine_id)
            self._drop(machine_id)
        while len(self._finished) > _REMEMBERED:
            del self._finished[next(iter(self._finished))]

    def _apply_record(self, record: VmRecord, owner: Owner, begun: int) -> None:
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
        if before is None and get_machine_state(state) in STARTING:
            self._seen_starting.add(record.id)
        machine = read_machine(record, owner, before, self._now(), seen_starting=record.id in self._seen_starting)
        self._begun[record.id] = begun
        if machine != before:
            self._machines[record.id] = machine
            self._notify(record.id, machine.name)
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
        self._notify(machine_id, machine.name)

    def _notify(self, machine_id: int, name: str) -> None:
        for listener in self._listeners:
            listener.waiting[machine_id] = name
            listener.news.set()


def is_ending(machine: Machine | None) -> bool:
    """Return True if the machine is gone or is ending."""
    return machine is None or machine.state is MachineState.TERMINATING
