"""What the headers of a request over HTTP say, found once for all requests of a connection that repeat them."""

from __future__ import annotations

import re

from aiohttp import web

from simyard.frontend.identity import Authorization
from simyard.occi.errors import OcciError, shown

MOST_KEPT_HEAD_BYTES = 8 * 1024
"""Longer headers are read anew for each request: every open connection would hold them."""

_HOST = re.compile(r"(?:[A-Za-z0-9._~-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?", re.ASCII)


class Head:
    """The headers of a request with names in lower case, and what they say of every request that repeats them.

    Clients send the same ones again and again over a connection, which keeps the last.
    """

    __slots__ = ("authorization", "base", "first", "lines", "raw", "size")

    def __init__(self, request: web.BaseRequest, endpoint: str, most_bytes: int) -> None:
        """``endpoint``: what absolute URIs begin with; the request's Host decides when it is "".

        Raises:
            OcciError: 400, a header is not UTF-8, or is there twice that must not be, or all are too long.
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
                raise OcciError(400, "Authorization: it is there twice")
            if not value.isascii() and not _is_utf8(value):
                raise OcciError(400, f"{name}: the value is not UTF-8")
        if self.size > most_bytes:
            raise OcciError(400, f"the headers are longer than {most_bytes} bytes")
        self.authorization = Authorization(self.first.get("authorization"))
        self.base = endpoint or _base(self.first.get("host", ""))


def _base(host: str) -> str:
    if not _HOST.fullmatch(host):
        raise OcciError(400, f"Host: {shown(host)} is no host and port")
    return f"https://{host}"


def _is_utf8(value: str) -> bool:
    """Whether aiohttp, which lets other bytes through as surrogates, had to."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
