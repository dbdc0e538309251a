# SPDX-License-Identifier: Apache-2.0
"""Load frontends over HTTPS at little cost: prepared bytes, one protocol object per connection, uvloop.

The process reads a :class:`~simyard_bench.occi.load.Load` from standard input and writes the outcome to standard
output.
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

from simyard_bench.occi.load import Load, Outcome, Request, Tally, measure, pin

_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)
_END = b"\r\n\r\n"


class Connection(asyncio.Protocol):
    """A connection that sends the next request when the previous one is answered."""

    def __init__(self, requests: Iterator[bytes], tally: Tally, failed: asyncio.Future[None]) -> None:
        self._requests = requests
        self._tally = tally
        self._failed = failed
        self._head = b""
        self._missing = 0
        self._length = 0
        self._sent = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        """Read a part of a response; there is never more than one pending response."""
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
            self._tally.count(time.perf_counter() - self._sent, self._length)
            self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the loss of the connection, which is expected only at the end."""
        self._fail(f"the connection was closed: {exc!r}")

    def _send(self) -> None:
        data = next(self._requests)
        self._sent = time.perf_counter()
        self._transport.write(data)

    def _fail(self, problem: str) -> None:
        if not self._failed.done():
            self._failed.set_exception(RuntimeError(problem))


def encode_request(request: Request, host: str, common: str) -> bytes:
    """Return the bytes of a request."""
    body = request.body.encode()
    own = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    return f"{request.method} {request.target} HTTP/1.1\r\nHost: {host}\r\n{common}{own}{length}\r\n".encode() + body


async def _run(load: Load) -> Outcome:
    loop = asyncio.get_running_loop()
    url = urlsplit(load.url)
    common = "".join(f"{name}: {value}\r\n" for name, value in load.headers.items())
    requests = cycle([encode_request(request, url.netloc, common) for request in load.requests])
    tally, failed = Tally(load.servers), loop.create_future()
    context = ssl.create_default_context(cafile=load.ca_file)
    transports = []
    for _ in range(load.connections):
        transport, _ = await loop.create_connection(
            lambda: Connection(requests, tally, failed), str(url.hostname), url.port or 443, ssl=context
        )
        transports.append(transport)
    try:
        return await measure(load, tally, failed)
    finally:
        failed.cancel()
        for transport in transports:
            transport.abort()


def main() -> None:
    """Run the load that standard input describes."""
    load = Load.read()
    pin(0, load.core)
    json.dump(asdict(uvloop.run(_run(load))), sys.stdout)


if __name__ == "__main__":
    main()
