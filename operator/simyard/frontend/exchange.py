"""A request and its response, whichever transport carries them. Plain data.

Nobody changes them; they are not frozen because every request makes two, and that would cost four times as much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from importlib.metadata import version
from types import MappingProxyType
from urllib.parse import parse_qsl, unquote

from simyard.apiserver.frontproxy import Identity
from simyard.occi.errors import OcciError, shown
from simyard.occi.negotiation import ACCEPTED

__all__ = [
    "ALLOW",
    "COMMON_HEADERS",
    "METHODS",
    "MOST_BODY_BYTES",
    "PHRASES",
    "Identity",
    "OcciRequest",
    "OcciResponse",
    "path_and_query",
]

COMMON_HEADERS = (("Server", f"simyard/{version('simyard')} OCCI/1.2 OCCI/1.1"), ("Accept", ACCEPTED))
"""What every response has, beside Content-Type."""
MOST_BODY_BYTES = 1024 * 1024
PHRASES = {status.value: status.phrase for status in HTTPStatus} | {
    413: "Content Too Large",
    422: "Unprocessable Content",
}
"""Reason phrases, as RFC 9110 has them."""
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS")
ALLOW = ("Allow", ", ".join(METHODS))
MOST_QUERY_FIELDS = 200
_NO_QUERY: Mapping[str, str] = MappingProxyType({})

Headers = Sequence[tuple[str, str]]


@dataclass(slots=True)
class OcciRequest:
    """Attributes:
    method: in capitals.
    path: decoded, without the query: ``/compute/``.
    query: decoded.
    headers: names in lower case (``x-occi-attribute``), in the order of arrival; repeated ones stay apart.
    body: all of it.
    identity: who asks; authenticated by the transport.
    base: what absolute URIs begin with, without a trailing slash: ``https://host:port``.
    key: the same for every delivery of one request, where the transport has such (AMQP: user and message id), else "".
    first: the first header of each name, where the transport knows them already.
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

    def header(self, name: str) -> str | None:
        """The first header of a name, which is given in lower case."""
        if self.first is not None:
            return self.first.get(name)
        for known, value in self.headers:
            if known == name:
                return value
        return None


@dataclass(slots=True)
class OcciResponse:
    """Attributes:
    status: of HTTP.
    body: all of it; also that of a HEAD, which the transport leaves away.
    content_type: always set, charset included where there is one.
    headers: beside Content-Type and ``COMMON_HEADERS``.
    """

    status: int
    body: bytes
    content_type: str
    headers: tuple[tuple[str, str], ...] = ()


def path_and_query(target: str, where: str) -> tuple[str, Mapping[str, str]]:
    """A request's target (``/compute/?page=1``), decoded.

    Raises:
        OcciError: 400, it is no path, or not percent-encoded UTF-8, or the query has a name twice; ``where`` names the
            place.
    """
    encoded, _, text = target.partition("?")
    try:
        path = unquote(encoded, errors="strict") if "%" in encoded else encoded
        pairs = parse_qsl(text, True, errors="strict", max_num_fields=MOST_QUERY_FIELDS) if text else ()
    except ValueError:
        raise OcciError(400, f"{where}: {shown(target)} is not percent-encoded UTF-8, or has too many fields") from None
    if not path.startswith("/") or not path.isprintable():
        raise OcciError(400, f"{where}: {shown(path)} is no path such as /compute/")
    if not pairs:
        return path, _NO_QUERY
    query: dict[str, str] = {}
    for name, value in pairs:
        if name in query:
            raise OcciError(400, f"{where}: {shown(name)} is twice in the query")
        query[name] = value
    return path, query
