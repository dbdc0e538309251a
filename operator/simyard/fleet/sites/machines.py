# SPDX-License-Identifier: Apache-2.0
"""Index of the machines of one site."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from simyard_sites.base import Machine, MachineState


class MachineTable:
    """Table of machines by id and by Worker, with their numbers by pool and by state."""

    def __init__(self) -> None:
        self._machines: dict[str, Machine] = {}
        self._of_worker: dict[str, dict[str, Machine]] = {}
        self._of_pool: Counter[tuple[str, str]] = Counter()
        self._states: Counter[MachineState] = Counter()

    def __len__(self) -> int:
        return len(self._machines)

    def __iter__(self) -> Iterator[Machine]:
        return iter(list(self._machines.values()))

    @property
    def states(self) -> Mapping[MachineState, int]:
        """The number of machines in each state."""
        return self._states

    def list_of_worker(self, uid: str) -> list[Machine]:
        """Return the machines of a Worker, the machine to keep first. Few Workers have more than one machine."""
        machines = list(self._of_worker.get(uid, {}).values())
        if len(machines) > 1:
            machines.sort(key=lambda item: (item.state is MachineState.FAILED, item.id))
        return machines

    def count_of_pool(self, namespace: str, pool: str) -> int:
        """Return the number of machines of a pool."""
        return self._of_pool[namespace, pool]

    def get(self, machine_id: str) -> Machine | None:
        """Return the machine with an id; None if the table does not have it."""
        return self._machines.get(machine_id)

    def put(self, machine: Machine) -> Machine | None:
        """Add or replace a machine; return the machine in its former state, or None."""
        old = self._machines.get(machine.id)
        if old is not None and old.owner == machine.owner:
            self._machines[machine.id] = self._of_worker[machine.owner.worker_uid][machine.id] = machine
            self._states[old.state] -= 1
            self._states[machine.state] += 1
            return old
        self.remove(machine.id)
        self._machines[machine.id] = machine
        self._of_worker.setdefault(machine.owner.worker_uid, {})[machine.id] = machine
        self._of_pool[machine.owner.namespace, machine.owner.pool] += 1
        self._states[machine.state] += 1
        return old

    def remove(self, machine_id: str) -> Machine | None:
        """Remove a machine; return the machine in its last state, or None."""
        old = self._machines.pop(machine_id, None)
        if old is None:
            return None
        of_worker = self._of_worker[old.owner.worker_uid]
        del of_worker[machine_id]
        if not of_worker:
            del self._of_worker[old.owner.worker_uid]
        pool = (old.owner.namespace, old.owner.pool)
        self._of_pool[pool] -= 1
        if not self._of_pool[pool]:
            del self._of_pool[pool]
        self._states[old.state] -= 1
        return old

    def find_absent(self, machines: Iterable[Machine]) -> list[Machine]:
        """Return the machines of the table that are not in the given list."""
        there = {machine.id for machine in machines}
        return [machine for machine in self._machines.values() if machine.id not in there]
