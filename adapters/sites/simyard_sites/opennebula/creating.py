# SPDX-License-Identifier: Apache-2.0
"""Creates machines with unique names, although OpenNebula accepts several machines with one name.

OpenNebula has no idempotency keys, so this module compares names before it creates machines. The table of known
machines contains every name, unless an answer was lost. After the creation, one poll reads all new machines. If it
shows that another client created a machine with the same name meanwhile, the machine with the higher id is deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from itertools import islice

from pyone import OneNoExistsException

from simyard_sites.base import (
    ErrorScope,
    InternalError,
    InvalidSpecError,
    Machine,
    MachineRequest,
    Outcome,
    SiteError,
)
from simyard_sites.opennebula.catalog import Catalog
from simyard_sites.opennebula.client import MULTICALL, Oned
from simyard_sites.opennebula.ending import Ending
from simyard_sites.opennebula.errors import make_creation_error
from simyard_sites.opennebula.ownership import Ownership
from simyard_sites.opennebula.requests import build_instantiate
from simyard_sites.opennebula.settings import Settings
from simyard_sites.opennebula.sharing import Sharing
from simyard_sites.opennebula.table import Table
from simyard_sites.opennebula.view import View
from simyard_sites.opennebula.wire import Answer, RpcCall


class Creating:
    """The creator of the machines of a table.

    It sends one request at a time: oned creates machines one after the other, because it locks its table of VMs, and
    requests that wait for this lock slow it down. The check of names and the poll for new machines overlap with the
    next request.
    """

    def __init__(
        self,
        oned: Oned,
        table: Table,
        view: View,
        catalog: Catalog,
        sharing: Sharing,
        ending: Ending,
        settings: Settings,
        ownership: Ownership,
    ) -> None:
        self._oned = oned
        self._table = table
        self._view = view
        self._catalog = catalog
        self._sharing = sharing
        self._ending = ending
        self._settings = settings
        self._ownership = ownership
        self._under_way: dict[str, asyncio.Event] = {}
        self._one_request = asyncio.Lock()

    async def create(self, requests: Sequence[MachineRequest]) -> AsyncIterator[Outcome]:
        """Create machines, or adopt existing ones.

        Raises:
            SiteError: The call failed as a whole.
        """
        rest = iter(requests)
        while part := list(islice(rest, MULTICALL)):
            for outcome in await self._create(part):
                yield outcome

    async def _create(self, requests: Sequence[MachineRequest]) -> list[Outcome]:
        await self._view.read_names()
        while others := [self._under_way[each.name] for each in requests if each.name in self._under_way]:
            await asyncio.gather(*(other.wait() for other in others))
            await self._view.read_names()
        found = {
            each.name: machine for each in requests if (machine := self._table.find_by_name(each.name)) is not None
        }
        outcomes = [_adopted(each, found[each.name]) for each in requests if each.name in found]
        new = {each.name: each for each in requests if each.name not in found}
        if new:
            done = asyncio.Event()
            self._under_way.update(dict.fromkeys(new, done))
            try:
                outcomes += await self._make(list(new.values()))
            finally:
                done.set()
                for name in new:
                    self._under_way.pop(name, None)
        return outcomes

    async def _make(self, requests: Sequence[MachineRequest]) -> list[Outcome]:
        template = await self._catalog.get_template()
        calls: dict[str, RpcCall] = {}
        outcomes = []
        for request in requests:
            try:
                calls[request.name] = build_instantiate(request, template, self._settings, self._ownership)
            except InvalidSpecError as error:
                outcomes.append(Outcome(request.name, error=error))
        if not calls:
            return outcomes
        answers = dict(zip(calls, await self._instantiate(list(calls.values())), strict=True))
        images = {request.name: request.image for request in requests}
        made = {name: answer for name, answer in answers.items() if isinstance(answer, int)}
        await self._note(requests, made)
        for name, answer in answers.items():
            machine = self._table.find_by_name(name) if name in made else None
            outcomes.append(Outcome(name, machine, None if machine else self._error(name, answer, images[name])))
        return outcomes

    async def _instantiate(self, calls: Sequence[RpcCall]) -> list[Answer]:
        try:
            async with self._one_request:
                return await self._oned.ask(calls, changes=True)
        except BaseException:
            self._view.is_doubtful = True
            raise

    async def _note(self, requests: Sequence[MachineRequest], made: dict[str, int]) -> None:
        """Add the created machines to the table, and check if another client created machines with the same names."""
        if not made:
            return
        with contextlib.suppress(SiteError):
            await self._view.read_new()
        for request in requests:
            if request.name in made:
                self._table.add_accepted(made[request.name], request.name, request.owner)
        if self._table.duplicates:
            await self._ending.retry_pending()
        await self._sharing.share({made[each.name]: each for each in requests if each.name in made})

    def _error(self, name: str, answer: Answer, image: str) -> SiteError:
        if isinstance(answer, OneNoExistsException):
            self._catalog.forget()
        if isinstance(answer, Exception):
            return make_creation_error(answer, image)
        return InternalError(f"the machine {name} was created, but ended at once: look at its log in OpenNebula")


def _adopted(request: MachineRequest, machine: Machine) -> Outcome:
    """Return the existing machine with this name, or an error if it belongs to another worker."""
    if machine.owner == request.owner:
        return Outcome(request.name, machine)
    said = f"the VM {machine.id} named {request.name} belongs to another owner: delete it, or correct its LABELS"
    return Outcome(request.name, error=InvalidSpecError(said, scope=ErrorScope.ITEM))
