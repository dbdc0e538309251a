# SPDX-License-Identifier: Apache-2.0
"""The provider ``openNebula``: workers are virtual machines of an OpenNebula cloud."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from simyard_sites.base import (
    Machine,
    MachineNotFoundError,
    MachineRequest,
    Outcome,
    PowerAction,
    SiteConfig,
    SiteEvent,
    SiteInfo,
)
from simyard_sites.opennebula.acting import act
from simyard_sites.opennebula.catalog import Catalog
from simyard_sites.opennebula.client import SET_IDS, Oned, split
from simyard_sites.opennebula.creating import Creating
from simyard_sites.opennebula.ending import Ending
from simyard_sites.opennebula.ownership import Ownership
from simyard_sites.opennebula.probing import probe
from simyard_sites.opennebula.settings import Settings
from simyard_sites.opennebula.sharing import Sharing
from simyard_sites.opennebula.table import Table
from simyard_sites.opennebula.view import View
from simyard_sites.opennebula.watching import Watching


class OpenNebulaSite:
    """A site of virtual machines in one OpenNebula cloud; docs/sites/opennebula.md describes it.

    ``delete`` also accepts a machine in PROLOG or BOOT, which OpenNebula cannot terminate. The task that follows
    ``events`` deletes it as soon as OpenNebula permits it.

    Raises:
        SiteError: The settings or the Secret cannot be used.
    """

    def __init__(self, config: SiteConfig) -> None:
        settings = Settings.from_config(config)
        self._oned = Oned(settings)
        ownership = Ownership(config.installation, config.name)
        self._table = Table(ownership, self._oned.get_time)
        self._view = View(self._oned, self._table)
        self._catalog = Catalog(self._oned, settings)
        self._sharing = Sharing(self._oned, self._catalog, settings)
        self._ending = Ending(self._oned, self._table, self._view)
        self._creating = Creating(
            self._oned,
            self._table,
            self._view,
            self._catalog,
            self._sharing,
            self._ending,
            settings,
            ownership,
        )
        self._watching = Watching(self._table, self._view, self._ending, self._sharing, settings)

    async def probe(self) -> SiteInfo:
        """Return the version, and as the capacity the account's quota of virtual machines."""
        info = await probe(self._oned, self._catalog)
        self._sharing.check()
        return info

    def create(self, requests: Sequence[MachineRequest]) -> AsyncIterator[Outcome]:
        """Create machines."""
        return self._creating.create(requests)

    def delete(self, ids: Sequence[str]) -> AsyncIterator[Outcome]:
        """Delete machines."""
        return self._ending.end([int(machine_id) for machine_id in ids])

    async def get(self, ids: Sequence[str]) -> AsyncIterator[Outcome]:
        """Yield the present state of machines."""
        for part in split(map(int, ids), SET_IDS):
            await self._view.read(part)
            for machine_id in part:
                machine = self._table.get(machine_id)
                absent = (
                    None if machine is not None else MachineNotFoundError(f"the machine {machine_id} does not exist")
                )
                yield Outcome(str(machine_id), machine, absent)

    def act(self, ids: Sequence[str], action: PowerAction) -> AsyncIterator[Outcome]:
        """Apply a power action to machines."""
        return act(self._oned, self._table, self._view, [int(machine_id) for machine_id in ids], action)

    async def list_owned(self) -> Sequence[Machine]:
        """Return all machines of this site."""
        await self._view.read_all()
        await self._ending.retry_pending()
        return self._table.list_machines()

    def events(self) -> AsyncGenerator[SiteEvent, None]:
        """Yield events from polls; a state of short duration may be skipped."""
        return self._watching.events()

    async def clear(self) -> None:
        """Do nothing: except machines, the site stores only a login token, which :meth:`aclose` revokes."""

    async def aclose(self) -> None:
        """Revoke the login token and close the connections."""
        await self._oned.aclose()
