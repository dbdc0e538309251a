"""The provider ``emulated``: a site whose cloud is emulated by a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence

from simyard_sites.base import (
    Changed,
    InternalError,
    Machine,
    MachineRequest,
    Outcome,
    PowerAction,
    SiteConfig,
    SiteEvent,
    SiteInfo,
    Snapshot,
    UnavailableError,
    UnknownOutcomeError,
)
from simyard_sites.emulated import client, protocol
from simyard_sites.emulated.client import Connection
from simyard_sites.emulated.files import cloud_files
from simyard_sites.emulated.guests import ADAPTER
from simyard_sites.emulated.protocol import Act, Batch, BatchKind, Create, Delete, Get, Outcomes, Watch, Welcome
from simyard_sites.emulated.settings import Settings

_CALL_SECONDS = 30.0
_SILENCE_SECONDS = 3 * protocol.HEARTBEAT_SECONDS


class EmulatedSite:
    """See :class:`simyard_sites.base.Site`. Image, size and options of a request mean nothing here.

    The cloud is started by the first call, lives in a process of its own, and outlives this one; ``guest_command`` is
    what its process guests run.

    Raises:
        InvalidSpecError: the provider's settings cannot be used.
    """

    def __init__(self, config: SiteConfig, guest_command: Sequence[str] = ADAPTER) -> None:
        self._settings = Settings.from_provider(config.provider)
        self._config = config
        self._guest_command = guest_command
        self._connection: Connection | None = None
        self._turn = asyncio.Lock()

    async def probe(self) -> SiteInfo:
        """See :class:`simyard_sites.base.Site`; the version says that it is emulated."""
        connection, welcome = await self._connect()
        connection.close()
        return SiteInfo(version=welcome.version)

    async def create(self, requests: Sequence[MachineRequest]) -> AsyncIterator[Outcome]:
        """See :class:`simyard_sites.base.Site`."""
        for part in _parts_by_size(requests):
            for outcome in await self._call(Create(part)):
                yield outcome

    async def delete(self, ids: Sequence[str]) -> AsyncIterator[Outcome]:
        """See :class:`simyard_sites.base.Site`."""
        for part in _parts(ids):
            for outcome in await self._call(Delete(part)):
                yield outcome

    async def get(self, ids: Sequence[str]) -> AsyncIterator[Outcome]:
        """See :class:`simyard_sites.base.Site`."""
        for part in _parts(ids):
            for outcome in await self._call(Get(part)):
                yield outcome

    async def act(self, ids: Sequence[str], action: PowerAction) -> AsyncIterator[Outcome]:
        """See :class:`simyard_sites.base.Site`."""
        for part in _parts(ids):
            for outcome in await self._call(Act(part, action)):
                yield outcome

    async def list_owned(self) -> Sequence[Machine]:
        """See :class:`simyard_sites.base.Site`."""
        async with contextlib.aclosing(self.events()) as events:
            async for event in events:
                if isinstance(event, Snapshot):
                    return event.machines
        raise UnavailableError("the emulated cloud did not say what it has")

    async def events(self) -> AsyncGenerator[SiteEvent, None]:
        """See :class:`simyard_sites.base.Site`: pushed by the cloud; a state that was passed quickly may be skipped."""
        connection, _ = await self._connect()
        try:
            await connection.send(Watch())
            machines: list[Machine] = []
            while (batch := await _next_batch(connection)).kind is BatchKind.SNAPSHOT:
                machines += batch.machines
            yield Snapshot(machines)
            while True:
                for machine in batch.machines:
                    yield Changed(machine)
                for gone in batch.gone:
                    yield gone
                batch = await _next_batch(connection)
        except (ConnectionError, TimeoutError) as error:
            raise UnavailableError(f"the emulated cloud's events have stopped: {error}") from error
        finally:
            connection.close()

    async def aclose(self) -> None:
        """See :class:`simyard_sites.base.Site`."""
        self._disconnect()

    async def _call(self, call: Create | Delete | Get | Act) -> Sequence[Outcome]:
        async with self._turn:
            if self._connection is None or self._connection.is_broken:
                self._disconnect()
                self._connection, _ = await self._connect()
            is_answered = False
            try:
                async with asyncio.timeout(_CALL_SECONDS):
                    await self._connection.send(call)
                    reply = await self._connection.receive()
                is_answered = True
            except (ConnectionError, TimeoutError) as error:
                if isinstance(call, Get):
                    raise UnavailableError(f"the emulated cloud did not answer: {error}") from error
                raise UnknownOutcomeError(f"the emulated cloud's answer was lost: {error}") from error
            finally:
                if not is_answered:
                    self._disconnect()
        if not isinstance(reply, Outcomes):
            raise InternalError(f"the emulated cloud answered {type(reply).__name__}")
        return reply.items

    async def _connect(self) -> tuple[Connection, Welcome]:
        try:
            files = cloud_files(self._config.installation, self._config.name)
        except OSError as error:
            raise UnavailableError(f"there is no place for the emulated cloud: {error}") from error
        return await client.connect(files, self._settings, self._guest_command)

    def _disconnect(self) -> None:
        if self._connection:
            self._connection.close()
            self._connection = None


async def _next_batch(connection: Connection) -> Batch:
    async with asyncio.timeout(_SILENCE_SECONDS):
        reply = await connection.receive()
    if not isinstance(reply, Batch):
        raise ConnectionAbortedError(f"it said {type(reply).__name__}")
    return reply


def _parts(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), protocol.ITEMS):
        yield ids[start : start + protocol.ITEMS]


def _parts_by_size(requests: Sequence[MachineRequest]) -> Iterator[Sequence[MachineRequest]]:
    part: list[MachineRequest] = []
    size = 0
    for request in requests:
        if part and (len(part) == protocol.ITEMS or size + len(request.bootstrap) > protocol.BOOTSTRAP_BYTES):
            yield part
            part, size = [], 0
        part.append(request)
        size += len(request.bootstrap)
    if part:
        yield part
