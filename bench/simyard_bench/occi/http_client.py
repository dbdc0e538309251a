"""A client over HTTPS that costs little: bytes made beforehand, one protocol object for a connection, on uvloop.

It reads a :class:`~simyard_bench.occi.load.Load` from standard input and writes the outcome to standard output.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import cycle
from typing import cast
from urllib.parse import urlsplit

import uvloop

from simyard_bench.occi.load import Load, Outcome, Request, Tally, measured, pin

_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)
_END = b"\r\n\r\n"


class Connection(asyncio.Protocol):
    """Sends the next request when the one before is answered."""

    def __init__(self, requests: Iterator[bytes], tally: Tally, failed: asyncio.Future[None]) -> None:
        self._requests = requests
        self._tally = tally
        self._failed = failed
        self._head = b""
        self._missing = 0
        self._length = 0
        self._sent = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        """A part of a response: there is never more than one under way."""
        if self._missing:
            self._missing -= len(data)
        else:
            self._head += data
            end = self._head.find(_END)
            if end < 0:
                return
            length = _LENGTH.search(self._head, 0, end)
            if self._head[9:12] != b"200" or length is None:
                self._fail(self._head[:500].decode(errors="replace"))
                return
            self._length = int(length[1])
            self._missing = self._length - (len(self._head) - end - len(_END))
            self._head = b""
        if not self._missing:
            self._tally.answered(time.perf_counter() - self._sent, self._length)
            self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        """It should not be, until the end."""
        self._fail(f"the connection was closed: {exc!r}")

    def _send(self) -> None:
        data = next(self._requests)
        self._sent = time.perf_counter()
        self._transport.write(data)

    def _fail(self, problem: str) -> None:
        if not self._failed.done():
            self._failed.set_exception(RuntimeError(problem))


def head_of(request: Request, host: str, common: str) -> bytes:
    """A request as it is sent."""
    body = request.body.encode()
    own = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    return f"{request.method} {request.target} HTTP/1.1\r\nHost: {host}\r\n{common}{own}{length}\r\n".encode() + body


async def _run(load: Load) -> Outcome:
    loop = asyncio.get_running_loop()
    url = urlsplit(load.url)
    common = "".join(f"{name}: {value}\r\n" for name, value in load.headers.items())
    requests = cycle([head_of(request, url.netloc, common) for request in load.requests])
    tally, failed = Tally(load.servers), loop.create_future()
    context = ssl.create_default_context(cafile=load.ca_file)
    transports = []
    for _ in range(load.connections):
        transport, _ = await loop.create_connection(
            lambda: Connection(requests, tally, failed), str(url.hostname), url.port or 443, ssl=context
        )
        transports.append(transport)
    try:
        return await measured(load, tally, failed)
    finally:
        failed.cancel()
        for transport in transports:
            transport.abort()


def main() -> None:
    """Do what standard input says."""
    load = Load.read()
    pin(0, load.core)
    json.dump(asdict(uvloop.run(_run(load))), sys.stdout)


if __name__ == "__main__":
    main()
