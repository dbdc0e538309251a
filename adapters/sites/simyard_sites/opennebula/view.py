# SPDX-License-Identifier: Apache-2.0
"""Polls the known machines, the new machines, or all machines."""

from __future__ import annotations

from collections.abc import Iterable

from simyard_sites.base import PermissionDeniedError
from simyard_sites.opennebula.client import MULTICALL, SET_IDS, Oned, split
from simyard_sites.opennebula.states import VmState
from simyard_sites.opennebula.table import Table

_NEW = (VmState.CLONING, VmState.PENDING, VmState.HOLD, VmState.ACTIVE)
"""The states of machines that were created a moment ago."""


class View:
    """The reader that keeps a table up to date.

    The cost of a poll does not grow with the number of finished machines.
    """

    def __init__(self, oned: Oned, table: Table) -> None:
        self._oned = oned
        self._table = table
        self.is_complete = False
        self.is_doubtful = False

    async def read(self, ids: Iterable[int]) -> None:
        """Read machines by their ids.

        If an answer about many machines does not contain a machine, the method reads this machine separately before it
        regards it as finished: an answer is incomplete after a change of rights, or while oned's database is repaired.
        """
        for part in split(ids, SET_IDS):
            begun = self._table.begin_query()
            try:
                records = await self._oned.get_machines(part)
                missing = sorted(filter(self._table.is_own, set(part).difference(record.id for record in records)))
            except PermissionDeniedError:  # One machine of another user makes oned refuse the whole set.
                records, missing = [], sorted(part)
            self._table.apply_records(records, begun)
            for few in split(missing, MULTICALL):
                begun = self._table.begin_query()
                for machine_id, record in (await self._oned.get_machines_singly(few)).items():
                    if record is None:
                        self._table.finish([machine_id])
                    else:
                        self._table.apply_records([record], begun)

    async def read_unknown(self, ids: Iterable[int]) -> None:
        """Read the machines for which it is unknown whether they belong to this CloudSite."""
        await self.read([machine_id for machine_id in ids if not self._table.is_known(machine_id)])

    async def read_new(self) -> None:
        """Read the machines that were created since the last poll, by any client.

        Ids only grow and are assigned one at a time. A client that reads after it created a machine therefore sees
        every machine that was created earlier.
        """
        doubtful, self.is_doubtful = self.is_doubtful, False
        try:
            begun, first = self._table.begin_query(), self._table.next_id
            self._table.apply_records(await self._oned.list_unfinished(first, _NEW), begun)
            doubtful = False
        finally:
            self.is_doubtful |= doubtful

    async def read_all(self) -> None:
        """Read all machines from the lowest known id on, then the known machines that the answer lacks, by id."""
        begun, known = self._table.begin_query(), self._table.list_ids()
        found = await self._oned.list_unfinished(self._table.first_id)
        self._table.apply_records(found, begun)
        self.is_complete, self.is_doubtful = True, False
        await self.read(sorted(set(known).union(self._table.duplicates).difference(record.id for record in found)))

    async def read_names(self) -> None:
        """Read all machines if some names may be unknown: before the first creation, and after a lost answer to one."""
        if not self.is_complete:
            await self.read_all()
        elif self.is_doubtful:
            await self.read_new()
