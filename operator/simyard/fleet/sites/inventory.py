# SPDX-License-Identifier: Apache-2.0
"""The machines of one site, as its events report them, and whether all machines of the site are known."""

from __future__ import annotations

from collections.abc import Sequence

from simyard.fleet.metering import SiteMeter
from simyard.fleet.sites.machines import MachineTable
from simyard_sites.base import Machine


class Inventory:
    """The known machines of one site. It reports each change to the site's meter.

    Events of a site can be lost when the stream of events breaks. The next stream begins with a list of all machines.
    If a known machine is not in the new list, either the machine is gone or the list is not up to date. This machine is
    a *suspect* until the operator has asked the site for it. While there is a suspect, the meter counts no machine.

    Attributes:
        machines: the known machines.
        complete: True if all machines of the site are known.
        suspects: ids of machines that the last list did not contain.
    """

    def __init__(self, meter: SiteMeter) -> None:
        self.machines = MachineTable()
        self.complete = False
        self.suspects: set[str] = set()
        self._meter = meter

    def mark_incomplete(self) -> None:
        """Record that some machines may be unknown from now on, because events may be lost."""
        self.complete = False
        self._inform_meter()

    def suspect_absent(self, listed: Sequence[Machine]) -> None:
        """Make suspects of the known machines that a list of the site does not contain."""
        self.suspects.update(machine.id for machine in self.machines.find_absent(listed))

    def mark_complete(self) -> None:
        """Record that all machines of the site are known, after the machines of a list were added."""
        self.complete = True
        self._inform_meter()

    def put(self, machine: Machine) -> Machine | None:
        """Add or replace a machine; return the machine in its former state, or None."""
        self.suspects.discard(machine.id)
        old = self.machines.put(machine)
        self._meter.machine_seen(machine)
        self._inform_meter()
        return old

    def remove(self, machine_id: str) -> Machine | None:
        """Remove a machine that the site does not have any more; return the machine in its last state, or None."""
        self.suspects.discard(machine_id)
        machine = self.machines.remove(machine_id)
        if machine is not None:
            self._meter.machine_gone(machine)
        self._inform_meter()
        return machine

    def _inform_meter(self) -> None:
        self._meter.set_inventory(self.machines if self.complete and not self.suspects else None)
