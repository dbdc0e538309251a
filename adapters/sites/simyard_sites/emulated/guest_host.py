# SPDX-License-Identifier: Apache-2.0
"""Runs many service adapters in one process (see :class:`simyard_sites.emulated.shared_guests.SharedGuests`)."""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import socket
import sys
import weakref
from pathlib import Path

from simyard_adapter.adapter import Adapter
from simyard_adapter.bootstrap import Bootstrap, BrokerAddress
from simyard_adapter.errors import StartError
from simyard_adapter.logs import LOGGER, configure
from simyard_adapter.transport import Connections
from simyard_sites.emulated.guests import BOOTSTRAP_FILE
from simyard_sites.emulated.service import UnusableError, keep_running

_CHANNELS_PER_CONNECTION = 200


class GuestHost:
    """The service adapters of one process, by their directories. Adapters of one broker user share connections."""

    def __init__(self, writer: asyncio.StreamWriter, tasks: asyncio.TaskGroup) -> None:
        self._writer = writer
        self._tasks = tasks
        self._guests: dict[str, _Guest] = {}
        self._connections: weakref.WeakValueDictionary[BrokerAddress, Connections] = weakref.WeakValueDictionary()

    def run(self, directory: str) -> None:
        """Start an adapter. If it is just ending, start it again when it has ended."""
        guest = self._guests.get(directory)
        if guest:
            guest.again = guest.ending.is_set()
        else:
            guest = self._guests[directory] = _Guest(Path(directory), self)
            self._tasks.create_task(self._keep(directory, guest))

    def end(self, directory: str) -> None:
        """End an adapter, and send the answer when it has ended."""
        guest = self._guests.get(directory)
        if guest:
            guest.answers += 1
            guest.again = False
            guest.end()
        else:
            self._send(ended=directory)

    def end_all(self) -> None:
        """End all adapters."""
        for directory in list(self._guests):
            self.end(directory)

    def open_connections(self, broker: BrokerAddress) -> Connections:
        """Return the connections of a broker user."""
        shared = self._connections.get(broker)
        if shared is None:
            shared = Connections(broker, "emulated machines", channels_per_connection=_CHANNELS_PER_CONNECTION)
            self._connections[broker] = shared
        return shared

    async def _keep(self, directory: str, guest: _Guest) -> None:
        try:
            await keep_running(guest.run, guest.ending, guest.report)
        except UnusableError as error:
            self._send(failed=directory, message=str(error))
        del self._guests[directory]
        for _ in range(guest.answers):
            self._send(ended=directory)
        if guest.again:
            self.run(directory)

    def _send(self, **message: str) -> None:
        if not self._writer.is_closing():
            self._writer.write(json.dumps(message).encode() + b"\n")


class _Guest:
    def __init__(self, directory: Path, host: GuestHost) -> None:
        self.ending = asyncio.Event()
        self.answers = 0
        self.again = False
        self._directory = directory
        self._host = host
        self._adapter: Adapter | None = None

    def end(self) -> None:
        self.ending.set()
        if self._adapter:
            self._adapter.stop()

    def report(self, line: str) -> None:
        LOGGER.warning("machine %s: %s", self._directory.name, line)

    async def run(self) -> str:
        try:
            bootstrap = Bootstrap.from_bytes((self._directory / BOOTSTRAP_FILE).read_bytes())
            self._adapter = Adapter(
                bootstrap, self._directory, connections=self._host.open_connections(bootstrap.broker)
            )
            await self._adapter.run()
        except (StartError, ValueError) as error:
            raise UnusableError(str(error)) from error
        except Exception as error:  # noqa: BLE001 - the failure of one adapter, whatever it is, leaves the others alone
            return f"{type(error).__name__}: {error}"
        return "it gave no reason"


async def serve(connection: socket.socket) -> None:
    """Run the adapters that the cloud requests. When it closes the connection or SIGTERM arrives, end all of them."""
    reader, writer = await asyncio.open_connection(sock=connection)
    async with asyncio.TaskGroup() as tasks:
        host = GuestHost(writer, tasks)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, reader.feed_eof)
        async for line in reader:
            [(what, directory)] = json.loads(line).items()
            {"run": host.run, "end": host.end}[what](directory)
        host.end_all()
    writer.close()


if __name__ == "__main__":
    configure("text")
    # Thousands of channels live long: frequent collections would take a third of the CPU time.
    gc.set_threshold(50_000, 20, 20)
    asyncio.run(serve(socket.socket(fileno=sys.stdin.fileno())))
