# SPDX-License-Identifier: Apache-2.0
"""Defines a request and its response, independent of the transport. Plain data.

No code changes a request or a response. The classes are nevertheless not frozen, because every request creates both,
and to create a frozen dataclass costs four times as much CPU time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from importlib.metadata import version
from types import MappingProxyType
from urllib.parse import parse_qsl, unquote

from simyard.occi.errors import OcciError, quote_input
from simyard.occi.negotiation import ACCEPTED
from simyard.serving.identity import Identity

__all__ = [
    "ALLOW",
    "COMMON_HEADERS",
    "MAX_BODY_BYTES",
    "METHODS",
    "PHRASES",
    "Identity",
    "OcciRequest",
    "OcciResponse",
    "parse_target",
]

COMMON_HEADERS = (("Server", f"simyard/{version('simyard')} OCCI/1.2 OCCI/1.1"), ("Accept", ACCEPTED))
"""The headers of every response, in addition to Content-Type."""
MAX_BODY_BYTES = 1024 * 1024
PHRASES = {status.value: status.phrase for status in HTTPStatus} | {
    413: "Content Too Large",
    422: "Unprocessable Content",
}
"""Reason phrases, as RFC 9110 has them."""
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS")
ALLOW = ("Allow", ", ".join(METHODS))
MAX_QUERY_FIELDS = 200
_NO_QUERY: Mapping[str, str] = MappingProxyType({})

Headers = Sequence[tuple[str, str]]


@dataclass(slots=True)
class OcciRequest:
    """A request of a user, authenticated by its transport.

    Attributes:
        method: the HTTP method in capitals.
        path: the decoded path without the query: ``/compute/``.
        query: the decoded query.
        headers: names in lower case (``x-occi-attribute``) and values, in the order of arrival; repeated headers are
            separate items.
        body: the whole body.
        identity: the user.
        base: the beginning of absolute URIs, without a trailing slash: ``https://host:port``.
        key: the idempotency key: the same for every delivery of one request. "" if the request has no key.
        first: the first header of each name; None if the transport has not computed this mapping.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Headers
    body: bytes
    identity: Identity
    base: str
    key: str = ""
    first: Mapping[str, str] | None = None

    def get_header(self, name: str) -> str | None:
        """Return the first header with a name (in lower case)."""
        if self.first is not None:
            return self.first.get(name)
        for known, value in self.headers:
            if known == name:
                return value
        return None


@dataclass(slots=True)
class OcciResponse:
    """The response to a request.

    Attributes:
        status: the HTTP status code.
        body: the whole body; the transport omits the body of the response to a HEAD.
        content_type: the media type, with the charset if it has one.
        headers: the headers except Content-Type and ``COMMON_HEADERS``.
    """

    status: int
    body: bytes
    content_type: str
    headers: tuple[tuple[str, str], ...] = ()


def parse_target(target: str, where: str) -> tuple[str, Mapping[str, str]]:
    """Return the decoded path and query of a request's target, such as ``/compute/?page=1``.

    ``where`` is the place of the target, for error messages.

    Raises:
        OcciError: 400, the target is not a path, not percent-encoded UTF-8, or has a name twice in its query.
    """
    encoded, _, text = target.partition("?")
    try:
        path = unquote(encoded, errors="strict") if "%" in encoded else encoded
        pairs = parse_qsl(text, True, errors="strict", max_num_fields=MAX_QUERY_FIELDS) if text else ()
    except ValueError:
        raise OcciError(
            400, f"{where}: {quote_input(target)} is not percent-encoded UTF-8, or has too many fields"
        ) from None
    if not path.startswith("/") or not path.isprintable():
        raise OcciError(400, f"{where}: {quote_input(path)} is not a path; send one such as /compute/")
    if not pairs:
        return path, _NO_QUERY
    query: dict[str, str] = {}
    for name, value in pairs:
        if name in query:
            raise OcciError(400, f"{where}: {quote_input(name)} occurs twice in the query; send it once")
        query[name] = value
    return path, query
