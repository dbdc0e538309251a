"""Looks at the machines: at those that are known, for those that are not, and at all of them."""

from __future__ import annotations

from collections.abc import Iterable

from simyard_sites.base import PermissionDeniedError
from simyard_sites.opennebula.client import MULTICALL, SET_IDS, Oned, parts
from simyard_sites.opennebula.states import VmState
from simyard_sites.opennebula.table import Table

_NEW = (VmState.CLONING, VmState.PENDING, VmState.HOLD, VmState.ACTIVE)
"""States of machines that were made a moment ago."""


class View:
    """Keeps the table true. None of its looks costs more because machines have finished."""

    def __init__(self, oned: Oned, table: Table) -> None:
        self._oned = oned
        self._table = table
        self.is_complete = False
        self.is_doubtful = False

    async def look(self, ids: Iterable[int]) -> None:
        """Look at machines by their ids. One that a pool does not show is asked for by itself before it is finished:
        a pool shows less when rights were changed, or while oned's database is repaired."""
        for part in parts(ids, SET_IDS):
            begun = self._table.question()
            try:
                records = await self._oned.machines(part)
                missing = sorted(filter(self._table.is_own, set(part).difference(record.id for record in records)))
            except PermissionDeniedError:  # one machine of somebody else's refuses the whole set
                records, missing = [], sorted(part)
            self._table.put(records, begun)
            for few in parts(missing, MULTICALL):
                begun = self._table.question()
                for machine_id, record in (await self._oned.each_machine(few)).items():
                    if record is None:
                        self._table.finish([machine_id])
                    else:
                        self._table.put([record], begun)

    async def look_at_unknown(self, ids: Iterable[int]) -> None:
        """Look at those of which it is not known whether they are machines of this CloudSite."""
        await self.look([machine_id for machine_id in ids if not self._table.is_known(machine_id)])

    async def look_for_new(self) -> None:
        """Look for machines that were made since the last look, by whomever.

        Ids only grow and are given out one at a time: whoever looks after having made a machine sees every machine
        that was made before it.
        """
        doubtful, self.is_doubtful = self.is_doubtful, False
        try:
            begun, first = self._table.question(), self._table.next_id
            self._table.put(await self._oned.unfinished(first, _NEW), begun)
            doubtful = False
        finally:
            self.is_doubtful |= doubtful

    async def sweep(self) -> None:
        """Look for all machines from the lowest id that is there, and at those that it did not show."""
        begun, known = self._table.question(), self._table.ids()
        found = await self._oned.unfinished(self._table.first_id)
        self._table.put(found, begun)
        self.is_complete, self.is_doubtful = True, False
        await self.look(sorted(set(known).union(self._table.duplicates).difference(record.id for record in found)))

    async def learn_names(self) -> None:
        """Know every name that is there: at first, and after an answer to a create was lost."""
        if not self.is_complete:
            await self.sweep()
        elif self.is_doubtful:
            await self.look_for_new()
