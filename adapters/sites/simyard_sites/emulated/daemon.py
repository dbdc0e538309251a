# SPDX-License-Identifier: Apache-2.0
"""The process of an emulated cloud, from its start to its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import logging.handlers
import os
import resource
import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from simyard_sites.emulated import protocol
from simyard_sites.emulated.child import end_leftovers
from simyard_sites.emulated.files import CloudFiles
from simyard_sites.emulated.guests import Disks, GuestListener, Guests, ProcessGuests
from simyard_sites.emulated.server import CloudServer
from simyard_sites.emulated.settings import GuestKind
from simyard_sites.emulated.shared_guests import SharedGuests

IDLE_SECONDS = 5.0
_LOG = logging.getLogger(__name__)
_LOG_BYTES = 2**20
_BACKLOG = 128
_LOCK_SECONDS = 10.0


async def run(files: CloudFiles, ready: int, lock: int, guest_command: Sequence[str]) -> None:
    """Run the cloud until SIGTERM or ``ShutDown`` arrives, or until it has had no clients and machines for some time.

    Args:
        files: The directory of the cloud.
        ready: A file descriptor. The cloud writes to it and closes it when clients can connect.
        lock: The result of :meth:`CloudFiles.lock` in the starter; it is closed at the same time.
        guest_command: The command of a process guest.
    """
    _begin(files)
    stopping = asyncio.Event()
    locks: list[int] = []

    def stop_if_nobody_comes() -> None:
        try:
            held = files.lock()
        except FileNotFoundError:  # The directory was deleted: no client can connect any more.
            stopping.set()
            return
        if held is not None:
            locks.append(held)
            stopping.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with asyncio.TaskGroup() as tasks:

        def make_guests(disks: Disks, listener: GuestListener) -> Mapping[GuestKind, Guests]:
            return {
                GuestKind.PROCESS: ProcessGuests(disks, tasks, listener, guest_command),
                GuestKind.SHARED: SharedGuests(disks, tasks, listener),
            }

        server = CloudServer(files, tasks, make_guests, stopping.set, stop_if_nobody_comes, IDLE_SECONDS)
        with _listening_socket(files) as listener:
            clients = await asyncio.start_unix_server(server.serve, sock=listener, limit=protocol.LINE_BYTES)
            files.process_id.write_text(str(os.getpid()))
            files.identity.write_text(f"{os.getpid()} {_start_time()}\n")
            with contextlib.suppress(BrokenPipeError):  # The starter may have been killed.
                os.write(ready, b"\n")
            os.close(ready)
            os.close(lock)
            _LOG.info("%s is listening in %s", protocol.VERSION, files.directory)
            await stopping.wait()
            if not locks:  # No process may start the cloud again before this one has ended.
                with contextlib.suppress(TimeoutError, FileNotFoundError):
                    async with asyncio.timeout(_LOCK_SECONDS):
                        locks.append(await files.lock_when_free())
            clients.close()
        _LOG.info("the emulated cloud is ending")
        await server.aclose()
        files.process_id.unlink(missing_ok=True)
        files.identity.unlink(missing_ok=True)


def _begin(files: CloudFiles) -> None:
    handler = logging.handlers.RotatingFileHandler(files.log, maxBytes=_LOG_BYTES, backupCount=1)
    logging.basicConfig(handlers=[handler], level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if leftovers := end_leftovers(files.machines):
        _LOG.warning("an earlier cloud in this directory crashed: killed %d processes of its machines", leftovers)


def _start_time() -> str:
    return Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]


def _listening_socket(files: CloudFiles) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    (files.directory / "socket").unlink(missing_ok=True)
    with files.open_socket_path() as path:
        listener.bind(path)
    (files.directory / "socket").chmod(0o600)
    listener.listen(_BACKLOG)
    return listener
