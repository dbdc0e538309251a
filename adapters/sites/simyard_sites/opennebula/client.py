# SPDX-License-Identifier: Apache-2.0
"""Calls oned, as pyone does, but asynchronously, with deadlines, and with ``system.multicall``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TypeVar

from pyone import OneAuthenticationException, OneAuthorizationException, OneNoExistsException

from simyard_sites.base import UnavailableError, UnknownOutcomeError
from simyard_sites.opennebula.errors import make_call_error
from simyard_sites.opennebula.records import VmRecord, read_machine, read_pool
from simyard_sites.opennebula.session import Session
from simyard_sites.opennebula.settings import Settings
from simyard_sites.opennebula.states import SWEPT, VmState
from simyard_sites.opennebula.transport import Transport, make_endpoint_error
from simyard_sites.opennebula.wire import (
    Answer,
    MalformedAnswerError,
    RpcCall,
    decode,
    decode_all,
    encode,
    encode_all,
)

SET_IDS = 500
"""Maximum number of machines in one ``one.vmpool.infoset``, whose answer then has about 1 MB."""
MULTICALL = 50
"""Maximum number of calls in one ``system.multicall``. oned executes them one after the other."""
MINE = -3
_TO_THE_END = -1
_LARGE = 2_000_000
_Read = TypeVar("_Read")


class Oned:
    """A client of one oned. Each call returns a value, or pyone's exception that explains the failure.

    If a call that only reads gets no answer, the client repeats it once. It never repeats a call that changes
    something.
    """

    def __init__(self, settings: Settings) -> None:
        self._transport = Transport(settings)
        self._session = Session(settings, self._ask_with)

    def get_time(self) -> float:
        """Return the time in seconds since the epoch by the clock of the site."""
        return self._transport.get_time()

    async def read(self, call: RpcCall, right: str) -> str | int | bool:
        """Return the value of one call that changes nothing.

        Raises:
            SiteError: The call was refused or not answered; ``right`` is the right that it needs.
        """
        [answer] = await self.ask([call], changes=False)
        if isinstance(answer, Exception):
            raise make_call_error(answer, right) from answer
        return answer

    async def ask(self, calls: Sequence[RpcCall], *, changes: bool) -> list[Answer]:
        """Send the calls, several in one ``system.multicall``, and return their answers in the same order.

        If oned refuses the session, the client gets a new session and repeats the call: oned has done nothing for a
        refused call.

        Raises:
            SiteError: As :meth:`Transport.post`.
        """
        session = await self._session.get_current()
        answers = await self._ask(calls, session, changes=changes)
        refused = [at for at, answer in enumerate(answers) if isinstance(answer, OneAuthenticationException)]
        if refused and self._session.discard_session(session):
            session = await self._session.get_current()
            again = await self._ask([calls[at] for at in refused], session, changes=changes)
            for at, answer in zip(refused, again, strict=True):
                answers[at] = answer
        return answers

    async def get_machines(self, ids: Sequence[int]) -> list[VmRecord]:
        """Return the records of the machines with these ids (at most :data:`SET_IDS`), including finished machines."""
        call = RpcCall("one.vmpool.infoset", (",".join(map(str, ids)), False))
        pool = str(await self.read(call, "USE its VMs"))
        return await _aside(partial(read_pool, pool), len(pool))

    async def get_machines_singly(self, ids: Sequence[int]) -> dict[int, VmRecord | None]:
        """Return the machines with these ids (at most :data:`MULTICALL`), with a separate call for each.

        The value is None if a machine does not exist. The result omits a machine that the account may no longer see.
        """
        answers = await self.ask([RpcCall("one.vm.info", (machine_id, False)) for machine_id in ids], changes=False)
        found: dict[int, VmRecord | None] = {}
        for machine_id, answer in zip(ids, answers, strict=True):
            if isinstance(answer, OneNoExistsException):
                found[machine_id] = None
            elif not isinstance(answer, Exception):
                found[machine_id] = read_machine(str(answer))
            elif not isinstance(answer, OneAuthorizationException):
                raise make_call_error(answer, "USE its VMs") from answer
        return found

    async def list_unfinished(self, first: int, states: Sequence[VmState] = SWEPT) -> list[VmRecord]:
        """Return all machines of the account with this or a higher id, in these states.

        The client sends one query for each state, because for a query for all states except DONE, oned would read the
        whole table.
        """
        calls = [RpcCall("one.vmpool.info", (MINE, first, _TO_THE_END, int(state))) for state in states]
        found: list[VmRecord] = []
        for answer in await self.ask(calls, changes=False):
            if isinstance(answer, Exception):
                raise make_call_error(answer, "USE its VMs") from answer
            pool = str(answer)
            found += await _aside(partial(read_pool, pool), len(pool))
        return found

    async def aclose(self) -> None:
        """Return the login token and close the connections."""
        try:
            await self._session.aclose()
        finally:
            await self._transport.aclose()

    async def _ask(self, calls: Sequence[RpcCall], session: str, *, changes: bool) -> list[Answer]:
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
            raise make_endpoint_error(str(error)) from error

    async def _ask_with(self, call: RpcCall, session: str) -> Answer:
        [answer] = await self._ask([call], session, changes=False)
        return answer

    async def _post(self, body: bytes, *, changes: bool) -> bytes:
        try:
            return await self._transport.post(body, changes=changes)
        except UnavailableError as error:
            if changes or isinstance(error.__cause__, TimeoutError):
                raise
        return await self._transport.post(body, changes=False)


def split(items: Iterable[int], size: int) -> Iterator[Sequence[int]]:
    """Yield the items in parts of this size."""
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part


async def _aside(read: Callable[[], _Read], size: int) -> _Read:
    """Parse an answer. Parse a large answer in a thread, so that the event loop is not blocked."""
    return await asyncio.to_thread(read) if size > _LARGE else read()
