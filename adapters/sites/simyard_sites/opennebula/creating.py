"""Makes machines: one of each name, though OpenNebula would make many."""

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
from simyard_sites.opennebula.errors import refusal_of_create
from simyard_sites.opennebula.ownership import Ownership
from simyard_sites.opennebula.requests import instantiate
from simyard_sites.opennebula.settings import Settings
from simyard_sites.opennebula.sharing import Sharing
from simyard_sites.opennebula.table import Table
from simyard_sites.opennebula.view import View
from simyard_sites.opennebula.wire import Answer, Call


class Creating:
    """Makes the machines of a table.

    There is no token that makes a call safe to repeat, so names are looked for: in the table, which knows them all
    unless an answer was lost, and after the machines were made, by one look at what is new. Another client that made
    one of the same name meanwhile is seen then, and the machine of the higher id is ended.

    One request at a time makes machines: oned makes one after the other under the lock of its pool, and others that
    wait for that lock only slow it down. What surrounds a request (names, the look at what is new) overlaps with the
    next one.
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
        """Make machines, or adopt those that are there.

        Raises:
            SiteError: the call failed.
        """
        rest = iter(requests)
        while part := list(islice(rest, MULTICALL)):
            for outcome in await self._create(part):
                yield outcome

    async def _create(self, requests: Sequence[MachineRequest]) -> list[Outcome]:
        await self._view.learn_names()
        while others := [self._under_way[each.name] for each in requests if each.name in self._under_way]:
            await asyncio.gather(*(other.wait() for other in others))
            await self._view.learn_names()
        found = {each.name: machine for each in requests if (machine := self._table.named(each.name)) is not None}
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
        template = await self._catalog.template()
        calls: dict[str, Call] = {}
        outcomes = []
        for request in requests:
            try:
                calls[request.name] = instantiate(request, template, self._settings, self._ownership)
            except InvalidSpecError as error:
                outcomes.append(Outcome(request.name, error=error))
        if not calls:
            return outcomes
        answers = dict(zip(calls, await self._instantiate(list(calls.values())), strict=True))
        images = {request.name: request.image for request in requests}
        made = {name: answer for name, answer in answers.items() if isinstance(answer, int)}
        await self._note(requests, made)
        for name, answer in answers.items():
            machine = self._table.named(name) if name in made else None
            outcomes.append(Outcome(name, machine, None if machine else self._error(name, answer, images[name])))
        return outcomes

    async def _instantiate(self, calls: Sequence[Call]) -> list[Answer]:
        try:
            async with self._one_request:
                return await self._oned.ask(calls, changes=True)
        except BaseException:
            self._view.is_doubtful = True
            raise

    async def _note(self, requests: Sequence[MachineRequest], made: dict[str, int]) -> None:
        """Have in the table what was made, and see whether somebody else made the same."""
        if not made:
            return
        with contextlib.suppress(SiteError):
            await self._view.look_for_new()
        for request in requests:
            if request.name in made:
                self._table.accepted(made[request.name], request.name, request.owner)
        if self._table.duplicates:
            await self._ending.carry_on()
        await self._sharing.share({made[each.name]: each for each in requests if each.name in made})

    def _error(self, name: str, answer: Answer, image: str) -> SiteError:
        if isinstance(answer, OneNoExistsException):
            self._catalog.forget()
        if isinstance(answer, Exception):
            return refusal_of_create(answer, image)
        return InternalError(f"the machine {name} was made, and ended at once")


def _adopted(request: MachineRequest, machine: Machine) -> Outcome:
    """The machine of that name, if it is the worker's that asks for it."""
    if machine.owner == request.owner:
        return Outcome(request.name, machine)
    said = f"the VM {machine.id} has the name {request.name} and is not of this worker: delete it, or mend its LABELS"
    return Outcome(request.name, error=InvalidSpecError(said, scope=ErrorScope.ITEM))
