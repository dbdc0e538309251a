# SPDX-License-Identifier: Apache-2.0
"""Connects a client to an emulated cloud, and starts the cloud if it does not run."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence

from simyard_sites.base import UnavailableError
from simyard_sites.emulated import protocol
from simyard_sites.emulated.child import copy_environment
from simyard_sites.emulated.files import CloudFiles
from simyard_sites.emulated.protocol import (
    Call,
    Configure,
    Disturb,
    Forget,
    Outcomes,
    Reply,
    Resurrect,
    ShutDown,
    Welcome,
)
from simyard_sites.emulated.settings import Settings

START_SECONDS = 30.0
SHUT_DOWN_SECONDS = 30.0
_RETRY_SECONDS = 0.05
_NOBODY_LISTENS = (FileNotFoundError, ConnectionRefusedError)


class Connection:
    """A connection to an emulated cloud.

    All methods raise ConnectionError when it breaks; the caller sets deadlines.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @property
    def is_broken(self) -> bool:
        """True if the cloud has closed the connection."""
        return self._reader.at_eof()

    async def send(self, call: Call) -> None:
        """Send a call."""
        self._writer.write(protocol.encode(call))
        await self._writer.drain()

    async def receive(self) -> Reply:
        """Return the next answer."""
        try:
            line = await self._reader.readline()
            if not line.endswith(b"\n"):
                raise ConnectionResetError("the emulated cloud closed the connection")
            return protocol.decode_reply(line)
        except ValueError as error:
            raise ConnectionAbortedError(f"the emulated cloud uses another protocol version: {error}") from error

    def close(self) -> None:
        """Close the connection without waiting."""
        self._writer.close()


async def connect(files: CloudFiles, settings: Settings, guest_command: Sequence[str]) -> tuple[Connection, Welcome]:
    """Connect to the cloud and configure it; start it first if it does not run.

    Raises:
        UnavailableError: The cloud cannot be started, or does not answer.
    """
    try:
        async with asyncio.timeout(START_SECONDS):
            while True:
                with contextlib.suppress(ConnectionError, FileNotFoundError):
                    return await _greet(files, settings)
                await _start_unless_running(files, guest_command)
    except TimeoutError:
        raise UnavailableError(f"the emulated cloud in {files.directory} did not answer in time") from None
    except OSError as error:
        raise UnavailableError(f"cannot reach the emulated cloud in {files.directory}: {error}") from error


async def inject(files: CloudFiles, fault: Forget | Resurrect | Disturb) -> None:
    """Inject a fault into a running cloud, for tests: forget or resurrect machines, or disturb its clients.

    Raises:
        OSError: The cloud does not run, or ends meanwhile.
        SiteError: The fault is not possible for one of the machines; it was injected into the others.
    """
    async with asyncio.timeout(START_SECONDS):
        with contextlib.closing(await _open(files)) as connection:
            await connection.send(fault)
            reply = await connection.receive()
    if not isinstance(reply, Outcomes):
        raise ConnectionResetError(f"the emulated cloud answered {type(reply).__name__}")
    for outcome in reply.items:
        if outcome.error:
            raise outcome.error


async def shut_down(files: CloudFiles) -> bool:
    """End the cloud with all its machines and wait for its process; return False if no cloud runs.

    Raises:
        TimeoutError: The cloud has not ended in time.
    """
    async with asyncio.timeout(SHUT_DOWN_SECONDS):
        try:
            connection = await _open(files)
        except _NOBODY_LISTENS:
            return False
        with contextlib.closing(connection), contextlib.suppress(ConnectionError):
            await connection.send(ShutDown())
            await connection.receive()
        os.close(await files.lock_when_free())
        return True


async def _open(files: CloudFiles) -> Connection:
    with files.open_socket_path() as path:
        return Connection(*await asyncio.open_unix_connection(path, limit=protocol.LINE_BYTES))


async def _greet(files: CloudFiles, settings: Settings) -> tuple[Connection, Welcome]:
    connection = await _open(files)
    try:
        await connection.send(Configure(settings))
        welcome = await connection.receive()
        if not isinstance(welcome, Welcome):
            raise ConnectionResetError("the emulated cloud sent no welcome message")
    except BaseException:
        connection.close()
        raise
    return connection, welcome


async def _start_unless_running(files: CloudFiles, guest_command: Sequence[str]) -> None:
    """Start the cloud. If it runs, or another process holds the lock to start it, wait for a moment instead."""
    lock = files.lock()
    if lock is not None:
        try:
            if not _somebody_listens(files):
                return await _start(files, lock, guest_command)
        finally:
            os.close(lock)
    await asyncio.sleep(_RETRY_SECONDS)


def _somebody_listens(files: CloudFiles) -> bool:
    with socket.socket(socket.AF_UNIX) as probe, files.open_socket_path() as path:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except _NOBODY_LISTENS:
            return False
        except BlockingIOError:
            pass  # The queue of the socket is full, so the cloud is running.
        return True


async def _start(files: CloudFiles, lock: int, guest_command: Sequence[str]) -> None:
    ours, theirs = socket.socketpair()
    try:
        reader, writer = await asyncio.open_connection(sock=ours)
    except BaseException:
        theirs.close()
        raise
    arguments = ("--directory", str(files.directory), "--ready", str(theirs.fileno()), "--lock", str(lock))
    try:
        with theirs, files.start_log.open("wb") as log:
            starter = subprocess.Popen(  # noqa: ASYNC220 - it returns as soon as the program is loaded
                [sys.executable, "-m", __package__, "serve", *arguments, "--guest-command", json.dumps(guest_command)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=files.directory,
                env=copy_environment(),
                pass_fds=(theirs.fileno(), lock),
            )
        try:
            is_ready = await reader.read(1)
        finally:
            starter.kill()  # The starter has forked and ended by now, unless the start was cancelled.
            starter.wait()
    finally:
        writer.close()
    if not is_ready:
        reason = files.start_log.read_text(errors="replace").strip().rpartition("\n")[2]
        raise OSError(f"the emulated cloud did not start: {reason or 'it gave no reason'}")
