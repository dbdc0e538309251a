# SPDX-License-Identifier: Apache-2.0
"""Runs many service adapters in one process, the guest host, because one process for each takes much memory."""

from __future__ import annotations

import asyncio
import functools
import json
import socket
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from simyard_sites.emulated.child import BoundedLog, Child, end_leftovers
from simyard_sites.emulated.guests import GRACE_SECONDS, Disks, GuestListener
from simyard_sites.emulated.service import keep_running

HOST = (sys.executable, "-m", "simyard_sites.emulated.guest_host")


class SharedGuests:
    """The guests in one process, which starts with the first guest, and starts again whenever it ends by itself.

    Its standard input is a socket with JSON lines. We send ``{"run": directory}`` and ``{"end": directory}``. The host
    answers each ``end`` with ``{"ended": directory}`` when the adapter has ended. It sends ``{"failed": directory,
    "message": why}`` when an adapter has ended with an error that every new start would repeat.
    """

    def __init__(
        self, disks: Disks, tasks: asyncio.TaskGroup, listener: GuestListener, command: Sequence[str] = HOST
    ) -> None:
        self._disks = disks
        self._directory = disks.root / "shared"
        self._tasks = tasks
        self._listener = listener
        self._command = command
        self._wanted: set[str] = set()
        self._unanswered: Counter[str] = Counter()
        self._host: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._child: Child | None = None
        self._closing = asyncio.Event()

    def run(self, machine_id: str) -> None:
        """Start the adapter of a machine."""
        if self._closing.is_set():
            return
        self._wanted.add(machine_id)
        if self._writer:
            self._send_order(self._writer, "run", machine_id)
        if self._host is None:
            self._host = self._tasks.create_task(self._keep_host())

    def freeze(self, machine_id: str) -> None:
        """End the adapter instead of freezing it: SIGSTOP would freeze all adapters of the process."""
        self.end(machine_id)

    def end(self, machine_id: str) -> bool:
        """Start to end the adapter of a machine; return False if there is none."""
        if machine_id in self._wanted:
            self._wanted.remove(machine_id)
            if self._writer:
                self._unanswered[machine_id] += 1
                self._send_order(self._writer, "end", machine_id)
        return machine_id in self._unanswered

    async def aclose(self) -> None:
        """End all adapters and the process."""
        self._closing.set()
        if self._child:
            self._child.terminate(GRACE_SECONDS)
        if self._host:
            await asyncio.wait([self._host])

    async def _keep_host(self) -> None:
        self._directory.mkdir(mode=0o700)
        log = BoundedLog(self._directory / "guest.log")

        def report(line: str) -> None:
            log.write(f"emulated cloud: the guest host {line}\n".encode())

        await keep_running(functools.partial(self._run_host, log), self._closing, report)

    async def _run_host(self, log: BoundedLog) -> str:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._child = Child(self._command, self._directory, log, stdin=theirs.fileno())
        except OSError as error:
            ours.close()
            return str(error)
        await self._talk(ours)
        self._child.terminate(GRACE_SECONDS)
        code = await self._child.exited
        self._child = None
        end_leftovers(self._directory)
        unanswered, self._unanswered = self._unanswered, Counter()
        self._report_ended(unanswered)
        return f"exit code {code}"

    async def _talk(self, connection: socket.socket) -> None:
        """Send orders to the host and read its messages until it closes the connection."""
        reader, writer = await asyncio.open_connection(sock=connection)
        self._writer = writer
        try:
            for machine_id in self._wanted:
                self._send_order(writer, "run", machine_id)
            async for line in reader:
                self._handle_message(json.loads(line))
        except ConnectionError:
            pass  # The host died with unread orders.
        finally:
            self._writer = None
            writer.close()

    def _send_order(self, writer: asyncio.StreamWriter, what: str, machine_id: str) -> None:
        message = {what: str(self._disks.get_path(machine_id))}
        writer.write(json.dumps(message).encode() + b"\n")

    def _handle_message(self, message: dict[str, str]) -> None:
        if "failed" in message:
            machine_id = Path(message["failed"]).name
            if machine_id in self._wanted:
                self._wanted.remove(machine_id)
                self._listener.guest_failed(machine_id, message["message"])
            return
        machine_id = Path(message["ended"]).name
        self._unanswered[machine_id] -= 1
        if not self._unanswered[machine_id]:
            del self._unanswered[machine_id]
            self._report_ended([machine_id])

    def _report_ended(self, machine_ids: Iterable[str]) -> None:
        for machine_id in machine_ids:
            if machine_id not in self._wanted and not self._closing.is_set():
                self._listener.guest_ended(machine_id)
