# SPDX-License-Identifier: Apache-2.0
"""Writes a response with its headers and a small body in one write, without aiohttp's dictionaries of headers.

For a response with one entity, aiohttp uses a third of its CPU time to build and serialize headers.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from email.utils import formatdate

from aiohttp import web

from simyard.frontend.budget import SendingBudget
from simyard.frontend.exchange import COMMON_HEADERS, PHRASES

_COMMON = "".join(f"{name}: {value}\r\n" for name, value in COMMON_HEADERS)
_STARTS = {status: f"HTTP/1.1 {status} {phrase}\r\n{_COMMON}" for status, phrase in PHRASES.items()}
_NOT_MODIFIED = 304
_FORBIDDEN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
MAX_JOINED_BYTES = 64 * 1024
_PIECE_BYTES = 256 * 1024
"""Size of the pieces in which a large body is encrypted and sent.

Encryption of the whole body would double its memory.
"""


class Answer(web.StreamResponse):
    """A whole response.

    ``headers`` are the additional headers. The class adds ``Content-Length``, ``Date``, ``Connection`` and the headers
    of every response.

    Raises:
        ValueError: a header has a control character, which could begin another header.
    """

    def __init__(self, status: int, headers: Sequence[tuple[str, str]], body: bytes, budget: SendingBudget) -> None:
        # super().__init__() is not called: the objects that it creates are only needed by aiohttp's own writing of
        # headers.
        for name, value in headers:
            if not value.isprintable() and _FORBIDDEN.search(value):
                raise ValueError(f"the header {name} has a control character in it")
        self._status = status if status in _STARTS else 500
        self._lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
        self._bytes = body
        self._budget = budget
        self._to: web.BaseRequest | None = None

    async def prepare(self, request: web.BaseRequest) -> None:
        """Store the request, so that :meth:`write_eof` can write to its connection."""
        self._to = request
        if self._keep_alive is None:
            self._keep_alive = request.keep_alive

    async def write_eof(self, data: bytes = b"") -> None:
        """Send the response."""
        request = self._to
        assert request is not None, "it is prepared before it is written"
        body = self._bytes
        connection = ""
        if not self._keep_alive:
            connection = "Connection: close\r\n"
        elif request.version != (1, 1):
            connection = "Connection: keep-alive\r\n"
        length = "" if self._status == _NOT_MODIFIED else f"Content-Length: {len(body)}\r\n"  # RFC 9110, 8.6
        head = f"{_STARTS[self._status]}{self._lines}{length}{connection}{_date_line()}\r\n".encode("utf-8", "replace")
        if request.method == "HEAD":
            await request.writer.write_eof(head)
        elif len(body) <= MAX_JOINED_BYTES:
            await request.writer.write_eof(head + body)
        else:
            writer, view = request.writer, memoryview(body)
            with self._budget.sending(body):
                await writer.write(head)
                for start in range(0, len(body), _PIECE_BYTES):
                    await writer.write(view[start : start + _PIECE_BYTES])
                await writer.write_eof()


class _Date:
    second = 0
    line = ""


def _date_line() -> str:
    """Return the line with the Date header, which this function builds at most once a second."""
    now = int(time.time())
    if now != _Date.second:
        _Date.second, _Date.line = now, f"Date: {formatdate(now, usegmt=True)}\r\n"
    return _Date.line
