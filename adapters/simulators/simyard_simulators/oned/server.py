# SPDX-License-Identifier: Apache-2.0
"""Serves HTTP as oned's server library (abyss) does: 15 connections at a time, with one request each."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from simyard_simulators.oned.cloud import Clock, Cloud
from simyard_simulators.oned.faults import Counters, Faults, HttpAnswer
from simyard_simulators.oned.lifecycle import LifeCycle
from simyard_simulators.oned.methods import NO_REPLICATION, Methods
from simyard_simulators.oned.settings import Settings
from simyard_simulators.oned.wire import (
    Answer,
    FaultError,
    Long,
    Parameter,
    fault_response,
    fault_value,
    parse_call,
    response,
)

_MAX_HEAD = 65_536
_BAD_REQUEST = HttpAnswer(400, "Bad Request", b"Bad Request")
_NOT_FOUND = HttpAnswer(404, "Not Found", b"Not Found")
_BAD_METHOD = HttpAnswer(405, "Method Not Allowed", b"POST is the only HTTP method this server understands")
_LENGTH_REQUIRED = HttpAnswer(411, "Length Required", b"You must send a content-length HTTP header.")


class Oned:
    """A simulated oned that serves on a socket; an asynchronous context manager.

    Attributes:
        cloud: Its objects; users, templates, quotas and failures can be changed there.
        life: The mover of its VMs.
        faults: The switches for the faults of its answers.
        counters: The counters of its requests.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        clock: Clock = time.time,
    ) -> None:
        self.settings = settings or Settings()
        self.cloud = Cloud(self.settings, clock)
        self.life = LifeCycle(self.cloud)
        self.faults = Faults()
        self.counters = Counters()
        self.tls = tls
        self._methods = Methods(self.cloud, self.life)
        self._address = (host, port)
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(self.settings.max_connections)
        self._writing = asyncio.Lock()
        self._writers = 0

    @property
    def url(self) -> str:
        """The endpoint; ``RPC2`` is the only path."""
        assert self._listener is not None, "not started"
        host, port = self._listener.getsockname()[:2]
        return f"{'https' if self.tls else 'http'}://{host}:{port}/RPC2"

    async def start(self) -> None:
        """Listen."""
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setblocking(False)
        listener.bind(self._address)
        listener.listen(self.settings.backlog)
        self._listener = listener
        self._accepting = asyncio.create_task(self._accept(listener))

    async def aclose(self) -> None:
        """Stop listening and cut the connections."""
        tasks = [task for task in (self._accepting, *self._connections) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._slots = asyncio.Semaphore(self.settings.max_connections)
        if self._listener is not None:
            self._listener.close()

    async def __aenter__(self) -> Oned:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @contextlib.asynccontextmanager
    async def unreachable(self) -> AsyncIterator[None]:
        """Stop listening and cut the connections while the block runs."""
        assert self._listener is not None, "not started"
        self._address = self._listener.getsockname()[:2]
        await self.aclose()
        try:
            yield
        finally:
            await self.start()

    def fill(self, finished: int = 0, running: int = 0) -> range:
        """Add many VMs at once (see :meth:`Cloud.fill`)."""
        return self.cloud.fill(finished, running)

    def owns(self, task: asyncio.Task[Any]) -> bool:
        """Return True if a task belongs to this server."""
        return task is self._accepting or task in self._connections

    # Connections

    async def _accept(self, listener: socket.socket) -> None:
        """Accept a connection only when a slot is free. Further connections wait in the kernel's backlog."""
        loop = asyncio.get_running_loop()
        while True:
            await self._slots.acquire()
            connection, _ = await loop.sock_accept(listener)
            task = asyncio.create_task(self._serve(connection))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

    async def _serve(self, connection: socket.socket) -> None:
        counters = self.counters
        counters.connections += 1
        counters.open_connections += 1
        counters.most_connections = max(counters.most_connections, counters.open_connections)
        writer: asyncio.StreamWriter | None = None
        try:
            if self.faults.tls_broken:
                return
            reader, writer = await self._streams(connection)
            async with asyncio.timeout(self.settings.idle_seconds):
                request = await self._request(reader)
            answer = await self._answer(request) if isinstance(request, bytes) else request
            if answer is not None:
                if self.settings.answer_seconds:
                    await asyncio.sleep(self.settings.answer_seconds)
                async with asyncio.timeout(self.settings.idle_seconds):
                    await self._send(writer, answer)
                    if isinstance(answer, HttpAnswer):
                        await self._linger(reader)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # The client is gone or silent, so no answer is possible.
        finally:
            counters.open_connections -= 1
            self._slots.release()
            if writer is not None:
                writer.transport.abort()
            else:
                connection.close()

    async def _streams(self, connection: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_MAX_HEAD, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        limits = {"ssl_handshake_timeout": self.settings.idle_seconds, "ssl_shutdown_timeout": 1.0} if self.tls else {}
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, connection, ssl=self.tls, **limits)
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    async def _request(self, reader: asyncio.StreamReader) -> bytes | HttpAnswer:
        """Return the body of a request, or its refusal."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *lines = head.split("\r\n")
        words = line.split(" ")
        if len(words) != 3:
            return _BAD_REQUEST
        headers = {name.strip().lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)}
        if words[1].partition("?")[0] != "/RPC2":
            return _NOT_FOUND
        if words[0] != "POST":
            return _BAD_METHOD
        if headers.get("content-type", "text/xml").partition(";")[0].strip() != "text/xml":
            return _BAD_REQUEST
        length = headers.get("content-length", "")
        if not length.isdecimal():
            return _LENGTH_REQUIRED
        if int(length) > self.settings.max_request_bytes:
            return HttpAnswer(500, "Internal Server Error", f"XML-RPC request too large ({length} bytes)".encode())
        return await reader.readexactly(int(length))

    async def _send(self, writer: asyncio.StreamWriter, answer: bytes | HttpAnswer) -> None:
        plain = isinstance(answer, bytes)
        body = answer if isinstance(answer, bytes) else answer.body
        status = "200 OK" if isinstance(answer, bytes) else f"{answer.status} {answer.reason}"
        extra = () if isinstance(answer, bytes) else answer.headers
        head = [f"HTTP/1.1 {status}", "Connection: close"]
        head += [f"Content-Type: {'text/xml; charset=utf-8' if plain else 'text/html'}"]
        head += [f"{name}: {value}" for name, value in extra]
        head += [f"Content-Length: {len(body)}", "Server: Xmlrpc-c_Abyss/1.40.0", "", ""]
        writer.write("\r\n".join(head).encode())
        writer.write(body)
        self.counters.bytes_out += len(body)
        await writer.drain()
        if plain or not writer.can_write_eof():
            writer.close()
            await writer.wait_closed()
        else:
            writer.write_eof()

    @staticmethod
    async def _linger(reader: asyncio.StreamReader) -> None:
        """Read the rest of a request, because unread bytes would reset the connection and lose the refusal."""
        while await reader.read(_MAX_HEAD):
            pass

    # Calls

    async def _answer(self, body: bytes) -> bytes | HttpAnswer | None:
        """Execute a request and return its answer; None closes the connection without an answer."""
        self.counters.requests += 1
        await self.faults.running()
        try:
            name, parameters = parse_call(body)
            calls = self._calls(name, parameters)
        except FaultError as fault:
            return fault_response(fault)
        names = [name, *(call[0] for call in calls if not isinstance(call, FaultError))]
        refused, other = self.faults.refuses(names)
        if refused:
            return other
        await self._spend(self.settings.costs.request, name)
        if name == "system.multicall":
            self.counters.calls[name] += 1
        try:
            document = await self._documents(name, calls)
        except FaultError as fault:
            document = fault_response(fault)
        return None if document is None or self.faults.loses(names) else document

    def _calls(self, name: str, parameters: list[Parameter]) -> list[tuple[str, list[Parameter]] | FaultError]:
        if name != "system.multicall":
            return [(name, parameters)]
        calls: list[tuple[str, list[Parameter]] | FaultError] = []
        for part in self._methods.parts(parameters):
            try:
                calls.append(self._methods.part(part))
            except FaultError as fault:
                calls.append(fault)
        return calls

    async def _documents(self, name: str, calls: Sequence[tuple[str, list[Parameter]] | FaultError]) -> bytes | None:
        if name != "system.multicall":
            call = calls[0]
            assert not isinstance(call, FaultError)
            answer, _ = await self._call(*call, wrote=False)
            return response(answer)
        crash = self.faults.crash_after()
        answers: list[Answer] = []
        wrote = False
        for position, part in enumerate(calls):
            if position == crash:
                return None
            try:
                if isinstance(part, FaultError):
                    raise part
                answer, wrote = await self._call(*part, wrote=wrote)
                answers.append([answer])
            except FaultError as fault:
                answers.append(fault_value(fault))
        return response(answers)

    async def _call(self, name: str, parameters: list[Parameter], wrote: bool) -> tuple[Answer, bool]:
        """Execute one call, alone or in a multicall.

        A request has the cost of a write once; ``wrote``: it had it already.
        """
        self.counters.calls[name] += 1
        denial = self.faults.denial(name)
        if denial is not None:
            return [False, f"[{name}] {denial.message}", int(denial.code), -1, Long(NO_REPLICATION)], wrote
        self.cloud.advance()
        done = self._methods.call(name, parameters)
        self.counters.scanned_rows += done.scanned
        if not done.writes:
            await self._spend(done.cost, name)
            return done.answer, wrote
        if not wrote:
            await self._spend(self.settings.costs.write_request, name)
        self._writers += 1
        self.counters.most_writers = max(self.counters.most_writers, self._writers)
        try:
            async with self._writing:
                others = self._writers - 1
                await self._spend(done.cost + others * self.settings.costs.contended_write, name)
        finally:
            self._writers -= 1
        return done.answer, True

    async def _spend(self, milliseconds: float, name: str) -> None:
        self.counters.cost_milliseconds[name] += milliseconds
        if self.settings.cost_scale and milliseconds:
            await asyncio.sleep(milliseconds * self.settings.cost_scale / 1000)
