"""The provider ``openNebula``."""

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
from simyard_sites.opennebula.client import SET_IDS, Oned, parts
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
    """See :class:`simyard_sites.base.Site`, and docs/sites/opennebula.md.

    A machine that cannot be ended as it is (it is being placed, or boots) counts as accepted by ``delete``; it is ended
    by the one who follows ``events``, as soon as OpenNebula lets it.

    Raises:
        SiteError: the settings or the Secret cannot be used.
    """

    def __init__(self, config: SiteConfig) -> None:
        settings = Settings.from_config(config)
        self._oned = Oned(settings)
        ownership = Ownership(config.installation, config.name)
        self._table = Table(ownership, self._oned.now)
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
        """See :class:`simyard_sites.base.Site`; the capacity is the account's quota of virtual machines."""
        info = await probe(self._oned, self._catalog)
        self._sharing.check()
        return info

    def create(self, requests: Sequence[MachineRequest]) -> AsyncIterator[Outcome]:
        """See :class:`simyard_sites.base.Site`."""
        return self._creating.create(requests)

    def delete(self, ids: Sequence[str]) -> AsyncIterator[Outcome]:
        """See :class:`simyard_sites.base.Site`."""
        return self._ending.end([int(machine_id) for machine_id in ids])

    async def get(self, ids: Sequence[str]) -> AsyncIterator[Outcome]:
        """See :class:`simyard_sites.base.Site`."""
        for part in parts(map(int, ids), SET_IDS):
            await self._view.look(part)
            for machine_id in part:
                machine = self._table.get(machine_id)
                absent = None if machine is not None else MachineNotFoundError(f"there is no machine {machine_id}")
                yield Outcome(str(machine_id), machine, absent)

    def act(self, ids: Sequence[str], action: PowerAction) -> AsyncIterator[Outcome]:
        """See :class:`simyard_sites.base.Site`."""
        return act(self._oned, self._table, self._view, [int(machine_id) for machine_id in ids], action)

    async def list_owned(self) -> Sequence[Machine]:
        """See :class:`simyard_sites.base.Site`."""
        await self._view.sweep()
        await self._ending.carry_on()
        return self._table.machines()

    def events(self) -> AsyncGenerator[SiteEvent, None]:
        """See :class:`simyard_sites.base.Site`: by polls; a state that was passed quickly may be skipped."""
        return self._watching.events()

    async def clear(self) -> None:
        """See :class:`simyard_sites.base.Site`: nothing is kept there beside machines, but a token until the end."""

    async def aclose(self) -> None:
        """See :class:`simyard_sites.base.Site`."""
        await self._oned.aclose()
