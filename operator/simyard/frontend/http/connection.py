# SPDX-License-Identifier: Apache-2.0
"""Protects the frontend from clients that do not finish a request, or do not read their response.

aiohttp refuses ambiguous requests (RFC 9112 6.3: Content-Length twice, or together with Transfer-Encoding; Host twice;
bare CR or LF) and closes idle connections. It has no deadline for the head of a request, no limit for all header lines
together, and waits forever for a client that does not read. This module adds these three limits.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from aiohttp import StreamReader, http_exceptions, web

from simyard.frontend.exchange import ALLOW, COMMON_HEADERS, METHODS, PHRASES
from simyard.frontend.http.head import Head
from simyard.frontend.metrics import Transport, count_request
from simyard.occi.errors import OcciError

log = logging.getLogger(__name__)

TEXT = ("Content-Type", "text/plain; charset=utf-8")
_METHOD_UNKNOWN = re.compile(r"b'[A-Za-z-]{1,20} [^ ]{1,8192} HTTP/1\.[01]'")
"""Matches a message of aiohttp's parser about a request line that is HTTP, but has an unknown method."""
MAX_FIELD_BYTES = 64 * 1024
MAX_FIELDS = 1000
KEEPALIVE_SECONDS = 75.0


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a connection.

    Attributes:
        head_seconds: time from the first byte of a request to the end of its headers.
        head_bytes: size of all headers; 64 KiB of text/occi and the other headers must fit. body_seconds: time from the
        end of the headers to the end of the body. write_seconds: time after which a client that reads nothing of its
        response is disconnected. linger_seconds: time for which the connection reads and discards the rest of a refused
        request, so that the client can read the reason.
    """

    head_seconds: float = 10.0
    head_bytes: int = 128 * 1024
    body_seconds: float = 20.0
    write_seconds: float = 60.0
    linger_seconds: float = 2.0


class Listener(web.Server):
    """A factory that creates a :class:`Connection` for each client."""

    def __init__(
        self, handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], limits: Limits | None = None
    ) -> None:
        super().__init__(handler)
        self._limits = limits or Limits()

    def __call__(self) -> Connection:
        """Return the connection of a new client."""
        return Connection(
            self,
            limits=self._limits,
            loop=self._loop,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=KEEPALIVE_SECONDS,
            lingering_time=self._limits.linger_seconds,
            max_line_size=MAX_FIELD_BYTES,
            max_field_size=MAX_FIELD_BYTES,
            max_headers=MAX_FIELDS,
        )


class Connection(web.RequestHandler):
    """The connection of one client.

    ``head`` is the parsed head of the last request, for later requests with the same head.
    """

    __slots__ = ("_head_bytes", "_head_timer", "_limits", "_lost", "_payload", "_write_timer", "head")

    def __init__(self, manager: web.Server, *, limits: Limits, **options: Any) -> None:
        super().__init__(manager, **options)
        self.head: Head | None = None
        self._limits = limits
        self._payload: StreamReader | None = None
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._lost: asyncio.Future[None] | None = None

    def data_received(self, data: bytes) -> None:
        """Parse received bytes and check them against the limits.

        The bytes can belong to a head, a body or several requests.
        """
        before = self._request_count
        # This is read before the parser runs: the last piece of a body ends its payload, and does not begin a head.
        in_body = self._payload is not None and not self._payload.is_eof()
        super().data_received(data)
        if self._request_count != before:
            self._payload = self._messages[-1][1] if self._messages else None
            if self._head_timer is not None:
                self._end_head()
        elif data and not in_body:
            self._head_bytes += len(data)
            if self._head_bytes > self._limits.head_bytes:
                self._refuse(f"the headers are longer than {self._limits.head_bytes} bytes")
            elif self._head_timer is None:
                self._head_timer = self._loop.call_later(self._limits.head_seconds, self._refuse_late_head)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Cancel all timers."""
        self._end_head()
        self._end_write()
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(None)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Start the timer after which the connection of a client that does not read is closed."""
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self._loop.call_later(self._limits.write_seconds, self._abort)

    def resume_writing(self) -> None:
        """Cancel this timer, because the client has read."""
        super().resume_writing()
        self._end_write()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the response to a request that aiohttp refuses (not HTTP, or ambiguous), and close the connection."""
        if isinstance(exc, http_exceptions.LineTooLong):
            error = OcciError(400, f"a header or the request line is longer than {MAX_FIELD_BYTES} bytes")
        elif isinstance(exc, http_exceptions.BadHttpMethod) and _METHOD_UNKNOWN.search(message or ""):
            error = OcciError(405, f"the method is not one of {', '.join(METHODS)}")
        elif status < 500:
            error = OcciError(status, f"not a request of HTTP/1.1: {(message or '').partition(chr(10))[0].rstrip(':')}")
        else:
            log.error("answering failed", exc_info=exc)
            error = OcciError(status, "the frontend failed; its log has the reason")
        count_request(Transport.HTTP, "other", error.status, 0.0)
        return _FinalResponse(self, error)

    async def send_last(self, error: OcciError) -> None:
        """Send the last response, then discard input until the client closes the connection or a short time is over."""
        self._write_refusal(error)
        self._lost = self._loop.create_future()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.linger_seconds):
                await self._lost

    def _end_head(self) -> None:
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse_late_head(self) -> None:
        if self._current_request is not None or self._messages:  # an earlier request is still being answered
            self._head_timer = self._loop.call_later(self._limits.head_seconds, self._refuse_late_head)
            return
        self._head_timer = None
        self._refuse(f"the headers did not end within {self._limits.head_seconds:.0f} s")

    def _refuse(self, message: str) -> None:
        self._end_head()
        if self._current_request is not None:
            self.close()  # after the present request is answered
            return
        error = OcciError(400, message)
        count_request(Transport.HTTP, "other", error.status, 0.0)
        self._write_refusal(error)
        self._loop.call_later(self._limits.linger_seconds, self.force_close)

    def _write_refusal(self, error: OcciError) -> None:
        """Write the last response in HTTP/1.1; the version in the request is unknown."""
        body = f"{error.message}\n".encode()
        headers = [*COMMON_HEADERS, TEXT, ("Content-Length", str(len(body))), ("Connection", "close")]
        if error.status == 405:
            headers.append(ALLOW)
        status = f"HTTP/1.1 {error.status} {PHRASES[error.status]}"
        if self.transport is not None:
            head = "\r\n".join([status, *(f"{name}: {value}" for name, value in headers), "", ""])
            self.transport.write(head.encode() + body)
        self._close = True

    def _end_write(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _abort(self) -> None:
        self._write_timer = None
        if self.transport is not None:
            self.transport.abort()


class _FinalResponse(web.Response):
    """The last response on a connection whose input cannot be parsed any more."""

    def __init__(self, connection: Connection, error: OcciError) -> None:
        super().__init__(status=error.status)
        self.force_close()
        self._connection = connection
        self._error = error

    async def prepare(self, request: web.BaseRequest) -> None:
        """Do nothing, because :class:`Connection` writes the response; aiohttp would write HTTP/1.0."""

    async def write_eof(self, data: bytes = b"") -> None:
        """Send the response, and wait until the client has closed the connection or a short time is over."""
        await self._connection.send_last(self._error)
