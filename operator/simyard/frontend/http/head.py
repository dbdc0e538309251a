# SPDX-License-Identifier: Apache-2.0
"""Parses the headers of HTTP requests, once for all requests of a connection with the same headers."""

from __future__ import annotations

import re

from aiohttp import web

from simyard.frontend.identity import Authorization
from simyard.occi.errors import OcciError, quote_input

MAX_KEPT_HEAD_BYTES = 8 * 1024
"""Maximum size of parsed headers that a connection keeps. To save memory, it parses longer headers for each request."""

_HOST = re.compile(r"(?:[A-Za-z0-9._~-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?", re.ASCII)


class Head:
    """The parsed headers of a request: names in lower case, and the values that the frontend derives from them.

    Clients repeat the same headers over a connection, so a connection keeps the last headers.
    """

    __slots__ = ("authorization", "base", "first", "lines", "raw", "size")

    def __init__(self, request: web.BaseRequest, endpoint: str, max_bytes: int) -> None:
        """Parse the headers.

        ``endpoint`` is the beginning of absolute URIs; if it is "", they begin with the request's Host.

        Raises:
            OcciError: 400, a header is not UTF-8, a unique header occurs twice, or the headers together are too long.
        """
        self.raw = request.raw_headers
        self.lines = [(name.lower(), value) for name, value in request.headers.items()]
        self.first: dict[str, str] = {}
        self.size = 0
        for name, value in self.lines:
            self.size += len(name) + len(value)
            if name not in self.first:
                self.first[name] = value
            elif name == "authorization":
                raise OcciError(400, "Authorization: the header occurs twice; send it once")
            if not value.isascii() and not _is_utf8(value):
                raise OcciError(400, f"{name}: the value is not UTF-8")
        if self.size > max_bytes:
            raise OcciError(400, f"the headers are longer than {max_bytes} bytes")
        self.authorization = Authorization(self.first.get("authorization"))
        self.base = endpoint or _base_of_host(self.first.get("host", ""))


def _base_of_host(host: str) -> str:
    if not _HOST.fullmatch(host):
        raise OcciError(400, f"Host: {quote_input(host)} is not a host with an optional port")
    return f"https://{host}"


def _is_utf8(value: str) -> bool:
    """Return true if a header is valid UTF-8; aiohttp represents all other bytes by surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
