# SPDX-License-Identifier: Apache-2.0
"""The provider ``emulated``: a site whose cloud is a separate process that emulates machines."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence

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
from simyard_sites.emulated.files import get_cloud_files
from simyard_sites.emulated.guests import ADAPTER
from simyard_sites.emulated.protocol import (
    Act,
    Batch,
    BatchKind,
    Create,
    Delete,
    Get,
    Outcomes,
    Refused,
    Watch,
    Welcome,
)
from simyard_sites.emulated.settings import Settings

_SILENCE_SECONDS = 3 * protocol.HEARTBEAT_SECONDS


class EmulatedSite:
    """A site at an emulated cloud.

    A request's image, size, options, host name, user data and keys have no effect; for a worker without a pool, a file
    in the directory of the machine shows them. The first call starts the cloud, a separate process that continues when
    this process ends. ``guest_command`` is the command of guests that are processes. Each running call has a separate
    connection.

    Raises:
        InvalidSpecError: The provider's settings cannot be used.
    """

    def __init__(self, config: SiteConfig, guest_command: Sequence[str] = ADAPTER) -> None:
        self._settings = Settings.from_provider(config.provider)
        self._config = config
        self._guest_command = guest_command
        self._idle: list[Connection] = []

    async def probe(self) -> SiteInfo:
        """Return the version, which contains the word "emulated" and the name of the profile."""
        connection, welcome = await self._connect()
        connection.close()
        return SiteInfo(version=welcome.version)

    def create(self, requests: Sequence[MachineRequest]) -> AsyncIterator[Outcome]:
        """Create machines."""
        return self._ask(Create(part) for part in _parts_by_size(requests))

    def delete(self, ids: Sequence[str]) -> AsyncIterator[Outcome]:
        """Delete machines."""
        return self._ask(Delete(part) for part in _parts(ids))

    def get(self, ids: Sequence[str]) -> AsyncIterator[Outcome]:
        """Yield the present state of machines."""
        return self._ask(Get(part) for part in _parts(ids))

    def act(self, ids: Sequence[str], action: PowerAction) -> AsyncIterator[Outcome]:
        """Apply a power action to machines."""
        return self._ask(Act(part, action) for part in _parts(ids))

    async def list_owned(self) -> Sequence[Machine]:
        """Return all machines of this site."""
        async with contextlib.aclosing(self.events()) as events:
            async for event in events:
                if isinstance(event, Snapshot):
                    return event.machines
        raise UnavailableError("the emulated cloud did not list its machines")

    async def events(self) -> AsyncGenerator[SiteEvent, None]:
        """Yield the events that the cloud sends, which may omit a state of short duration.

        If the cloud has lost events, it sends a new snapshot some time later.
        """
        connection, _ = await self._connect()
        try:
            await connection.send(Watch())
            snapshot: list[Machine] | None = None
            while True:
                batch = await _next_batch(connection)
                if batch.kind is BatchKind.SNAPSHOT:
                    snapshot = snapshot or []
                    snapshot += batch.machines
                    continue
                if snapshot is not None:
                    yield Snapshot(snapshot)
                    snapshot = None
                for machine in batch.machines:
                    yield Changed(machine)
                for gone in batch.gone:
                    yield gone
        except (ConnectionError, TimeoutError) as error:
            raise UnavailableError(f"the emulated cloud's events have stopped: {error}") from error
        finally:
            connection.close()

    async def clear(self) -> None:
        """Do nothing: a cloud without machines ends by itself."""

    async def aclose(self) -> None:
        """Close the connections."""
        while self._idle:
            self._idle.pop().close()

    async def _ask(self, calls: Iterable[Create | Delete | Get | Act]) -> AsyncGenerator[Outcome, None]:
        for call in calls:
            async with contextlib.aclosing(self._call(call)) as outcomes:
                async for outcome in outcomes:
                    yield outcome

    async def _call(self, call: Create | Delete | Get | Act) -> AsyncGenerator[Outcome, None]:
        """Make a call over a free or a new connection, and keep the connection for the next call."""
        connection = await self._idle_connection()
        is_answered = False
        try:
            async with asyncio.timeout(_SILENCE_SECONDS):
                await connection.send(call)
            while not is_answered:
                async with asyncio.timeout(_SILENCE_SECONDS):
                    reply = await connection.receive()
                if isinstance(reply, Refused):
                    self._idle.append(connection)
                    is_answered = True
                    raise reply.error
                if not isinstance(reply, Outcomes):
                    raise InternalError(f"the emulated cloud answered {type(reply).__name__}")
                is_answered = not reply.more
                if is_answered:
                    self._idle.append(connection)
                for outcome in reply.items:
                    yield outcome
        except (ConnectionError, TimeoutError) as error:
            if isinstance(call, Get):
                raise UnavailableError(f"the emulated cloud did not answer: {error}") from error
            raise UnknownOutcomeError(f"the emulated cloud's answer was lost: {error}") from error
        finally:
            if not is_answered:
                connection.close()

    async def _idle_connection(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_broken:
                return connection
            connection.close()
        connection, _ = await self._connect()
        return connection

    async def _connect(self) -> tuple[Connection, Welcome]:
        try:
            files = get_cloud_files(self._config.installation, self._config.name)
        except OSError as error:
            raise UnavailableError(f"no directory for the emulated cloud: {error}") from error
        return await client.connect(files, self._settings, self._guest_command)


async def _next_batch(connection: Connection) -> Batch:
    async with asyncio.timeout(_SILENCE_SECONDS):
        reply = await connection.receive()
    if not isinstance(reply, Batch):
        raise ConnectionAbortedError(f"it sent {type(reply).__name__}")
    return reply


def _parts(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), protocol.ITEMS):
        yield ids[start : start + protocol.ITEMS]


def _parts_by_size(requests: Sequence[MachineRequest]) -> Iterator[Sequence[MachineRequest]]:
    part: list[MachineRequest] = []
    size = 0
    for request in requests:
        length = len(request.bootstrap) + len(request.user_data)
        if part and (len(part) == protocol.ITEMS or size + length > protocol.BOOTSTRAP_BYTES):
            yield part
            part, size = [], 0
        part.append(request)
        size += length
    if part:
        yield part
