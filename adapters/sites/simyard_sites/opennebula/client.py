"""A client of oned: what pyone does, but asynchronous, with deadlines, and with ``system.multicall``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TypeVar

from pyone import OneAuthenticationException, OneAuthorizationException, OneNoExistsException

from simyard_sites.base import UnavailableError, UnknownOutcomeError
from simyard_sites.opennebula.errors import refusal
from simyard_sites.opennebula.records import VmRecord, read_machine, read_pool
from simyard_sites.opennebula.session import Session
from simyard_sites.opennebula.settings import Settings
from simyard_sites.opennebula.states import SWEPT, VmState
from simyard_sites.opennebula.transport import Transport, not_opennebula
from simyard_sites.opennebula.wire import (
    Answer,
    Call,
    MalformedAnswerError,
    decode,
    decode_all,
    encode,
    encode_all,
)

SET_IDS = 500
"""Machines of one ``one.vmpool.infoset``: about 1 MB."""
MULTICALL = 50
"""Calls of one ``system.multicall``: oned carries them out one after the other."""
MINE = -3
_TO_THE_END = -1
_LARGE = 2_000_000
_Read = TypeVar("_Read")


class Oned:
    """Calls, and what comes back: a value, or the exception of pyone that says why there is none.

    What reads is asked again once when it is not answered; what changes something never is.
    """

    def __init__(self, settings: Settings) -> None:
        self._transport = Transport(settings)
        self._session = Session(settings, self._ask_with)

    def now(self) -> float:
        """Seconds since the epoch by the clock of the site."""
        return self._transport.now()

    async def read(self, call: Call, right: str) -> str | int | bool:
        """The value of one call that changes nothing.

        Raises:
            SiteError: it was refused (``right`` is what it takes), or not answered.
        """
        [answer] = await self.ask([call], changes=False)
        if isinstance(answer, Exception):
            raise refusal(answer, right) from answer
        return answer

    async def ask(self, calls: Sequence[Call], *, changes: bool) -> list[Answer]:
        """The answers in order; several calls go in one ``system.multicall``.

        A session that is not good any more is replaced: nothing was done for a call that was refused for it.

        Raises:
            SiteError: as :meth:`Transport.post`.
        """
        session = await self._session.current()
        answers = await self._ask(calls, session, changes=changes)
        refused = [at for at, answer in enumerate(answers) if isinstance(answer, OneAuthenticationException)]
        if refused and self._session.refused(session):
            session = await self._session.current()
            again = await self._ask([calls[at] for at in refused], session, changes=changes)
            for at, answer in zip(refused, again, strict=True):
                answers[at] = answer
        return answers

    async def machines(self, ids: Sequence[int]) -> list[VmRecord]:
        """What is there of the machines of these ids, :data:`SET_IDS` at most; finished ones as well."""
        call = Call("one.vmpool.infoset", (",".join(map(str, ids)), False))
        pool = str(await self.read(call, "USE its VMs"))
        return await _aside(partial(read_pool, pool), len(pool))

    async def each_machine(self, ids: Sequence[int]) -> dict[int, VmRecord | None]:
        """The machines of these ids, :data:`MULTICALL` at most, asked for one by one; None: there is no such one.

        Of one that the account may not see any more nothing is said.
        """
        answers = await self.ask([Call("one.vm.info", (machine_id, False)) for machine_id in ids], changes=False)
        found: dict[int, VmRecord | None] = {}
        for machine_id, answer in zip(ids, answers, strict=True):
            if isinstance(answer, OneNoExistsException):
                found[machine_id] = None
            elif not isinstance(answer, Exception):
                found[machine_id] = read_machine(str(answer))
            elif not isinstance(answer, OneAuthorizationException):
                raise refusal(answer, "USE its VMs") from answer
        return found

    async def unfinished(self, first: int, states: Sequence[VmState] = SWEPT) -> list[VmRecord]:
        """All machines of the account with that id or a later one, in these states.

        Each state is asked for by itself: a query for "all but DONE" goes through the whole table.
        """
        calls = [Call("one.vmpool.info", (MINE, first, _TO_THE_END, int(state))) for state in states]
        found: list[VmRecord] = []
        for answer in await self.ask(calls, changes=False):
            if isinstance(answer, Exception):
                raise refusal(answer, "USE its VMs") from answer
            pool = str(answer)
            found += await _aside(partial(read_pool, pool), len(pool))
        return found

    async def aclose(self) -> None:
        """Give back what was taken: a token, the connections."""
        try:
            await self._session.aclose()
        finally:
            await self._transport.aclose()

    async def _ask(self, calls: Sequence[Call], session: str, *, changes: bool) -> list[Answer]:
        if len(calls) == 1:
            body = await self._post(encode(calls[0], session), changes=changes)
        else:
            body = await self._post(encode_all(calls, session), changes=changes)
        try:
            if len(calls) == 1:
                return [await _aside(lambda: decode(body), len(body))]
            return await _aside(lambda: decode_all(body, len(calls)), len(body))
        except MalformedAnswerError as error:
            if changes:
                raise UnknownOutcomeError(f"OpenNebula's answer cannot be read: {error}") from error
            raise not_opennebula(str(error)) from error

    async def _ask_with(self, call: Call, session: str) -> Answer:
        [answer] = await self._ask([call], session, changes=False)
        return answer

    async def _post(self, body: bytes, *, changes: bool) -> bytes:
        try:
            return await self._transport.post(body, changes=changes)
        except UnavailableError as error:
            if changes or isinstance(error.__cause__, TimeoutError):
                raise
        return await self._transport.post(body, changes=False)


def parts(items: Iterable[int], size: int) -> Iterator[Sequence[int]]:
    """The items, so many at a time."""
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part


async def _aside(read: Callable[[], _Read], size: int) -> _Read:
    """Read an answer; a large one in a thread, so that others can go on."""
    return await asyncio.to_thread(read) if size > _LARGE else read()
