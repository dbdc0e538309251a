# SPDX-License-Identifier: Apache-2.0
"""Machines of one site as its events report them, and whether all of them are known."""

from __future__ import annotations

from collections.abc import Sequence

from simyard.fleet.metering import SiteMeter
from simyard.fleet.sites.machines import MachineTable
from simyard_sites.base import Machine


class Inventory:
    """The machines of one site; keeps the site's meter informed.

    Events of a site can be lost. After the stream of events breaks, it begins again with a list of all machines. A
    machine that the new list does not contain may be gone, or the list may lag behind. This machine is a *suspect*
    until the site has been asked for it, and until then the meter counts nothing.

    Attributes:
        machines: the known machines.
        complete: whether all machines of the site are known.
        suspects: ids of machines that the last list did not contain.
    """

    def __init__(self, meter: SiteMeter) -> None:
        self.machines = MachineTable()
        self.complete = False
        self.suspects: set[str] = set()
        self._meter = meter

    def mark_incomplete(self) -> None:
        """Note that events may be lost from now on."""
        self.complete = False
        self._inform_meter()

    def suspect_absent(self, listed: Sequence[Machine]) -> None:
        """Suspect the machines that a list of the site does not contain."""
        self.suspects.update(machine.id for machine in self.machines.find_absent(listed))

    def mark_complete(self) -> None:
        """Note that the inventory now contains all machines of a list."""
        self.complete = True
        self._inform_meter()

    def put(self, machine: Machine) -> Machine | None:
        """Add or replace a machine; return its former state."""
        self.suspects.discard(machine.id)
        old = self.machines.put(machine)
        self._meter.machine_seen(machine)
        self._inform_meter()
        return old

    def remove(self, machine_id: str) -> Machine | None:
        """Remove a machine that the site does not have any more; return its last state."""
        self.suspects.discard(machine_id)
        machine = self.machines.remove(machine_id)
        if machine is not None:
            self._meter.machine_gone(machine)
        self._inform_meter()
        return machine

    def _inform_meter(self) -> None:
        self._meter.set_inventory(self.machines if self.complete and not self.suspects else None)
