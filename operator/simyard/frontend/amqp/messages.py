# SPDX-License-Identifier: Apache-2.0
"""Converts messages of the Cloud4E binding into requests, and responses into messages. Pure.

A request has the properties ``type`` (the HTTP method in lower case), ``content_type``, ``reply_to``, ``message_id``,
and the headers ``path_info`` (path and query), ``accept``, ``auth`` (a table: ``type`` basic, ``username``,
``password``) or ``X-AUTH-TOKEN``. The HTTP headers of text/occi are headers of the message: ``CATEGORY``, ``LINK``,
``X_OCCI_ATTRIBUTE``, ``X_OCCI_LOCATION``. A response has ``correlation_id`` (the request's ``message_id``) and the
headers ``status_code``, ``path_info`` and, for an error, ``is_error``; the headers of text/occi have the same names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from aiormq import spec
from pamqp.common import FieldTable

from simyard.frontend.exchange import Identity, OcciRequest, OcciResponse, parse_target
from simyard.occi.errors import OcciError, quote_input

Properties = spec.Basic.Properties
TRANSIENT = 1  # AMQP 0-9-1, delivery-mode
METHODS = ("get", "post", "put", "delete")
MAX_BODY_BYTES = 1024 * 1024
MAX_PATH_CHARACTERS = 8192
MAX_HEADER_BYTES = 64 * 1024
"""Limit for the headers of a request or a response: all headers of a message must fit into one frame of at most 128
KiB."""
UNIQUE_ID_CHARACTERS = 16
"""Minimum length of a message id that identifies a request alone.

A shorter id is a counter: it identifies a request only together with the reply queue and the timestamp.
"""
PASSED = frozenset(
    {
        *("accept", "cache-control", "category", "if-match", "if-none-match", "link", "user-agent"),
        *("x-occi-attribute", "x-occi-location"),
    }
)
"""The headers of a request that reach the handlers, with their HTTP names."""
RETURNED = {
    "category": "CATEGORY",
    "link": "LINK",
    "x-occi-attribute": "X_OCCI_ATTRIBUTE",
    "x-occi-location": "X_OCCI_LOCATION",
    "location": "location",
    "age": "age",
    "etag": "etag",
    "allow": "allow",
    "retry-after": "retry_after",
}


@dataclass(frozen=True, slots=True)
class Envelope:
    """The properties of a request that its response needs.

    They can be read even if the rest of the request is malformed.
    """

    reply_to: str
    correlation_id: str
    path: str
    accept: str

    @classmethod
    def of(cls, properties: Properties) -> Envelope:
        """Return the envelope of a message, with "" in place of each part that cannot be read."""
        headers = properties.headers or {}
        accept = next((value for name, value in headers.items() if name.lower() == "accept"), "")
        path = headers.get("path_info")
        return cls(
            reply_to=properties.reply_to or "",
            correlation_id=properties.message_id or properties.correlation_id or "",
            path=path.partition("?")[0][:MAX_PATH_CHARACTERS] if isinstance(path, str) else "",
            accept=accept if isinstance(accept, str) else "",
        )


@dataclass(frozen=True, slots=True)
class UnauthenticatedRequest:
    """A request whose sender is not known yet.

    Attributes:
        method: the HTTP method in capitals.
        path: the decoded path.
        query: the decoded query.
        headers: names in lower case, and values.
        body: the whole body.
        token: the credentials of the sender; "" if there are none.
        fingerprint: a digest that is the same for every delivery of this request, also if the client sends it again; ""
            without a message id.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: tuple[tuple[str, str], ...]
    body: bytes
    token: str
    fingerprint: str

    @property
    def changes(self) -> bool:
        """True if the request may change something."""
        return self.method != "GET"

    def authenticate(self, identity: Identity, base: str) -> OcciRequest:
        """Return this request as an OcciRequest of the user ``identity``, with absolute URIs below ``base``."""
        key = _digest(identity.user, self.fingerprint) if self.fingerprint and self.changes else ""
        return OcciRequest(self.method, self.path, self.query, self.headers, self.body, identity, base, key)


def read_request(properties: Properties, body: bytes, base: str) -> UnauthenticatedRequest:
    """Return the request in a message.

    Args:
        properties: the properties of the message, as the client has set them.
        body: the body of the message.
        base: the beginning of absolute URIs of this frontend.

    Raises:
        OcciError: 400 or 413, with the part of the message that is wrong.
    """
    method = (properties.message_type or "").lower()
    if method not in METHODS:
        raise OcciError(400, f"property type: {quote_input(method)} is not one of {', '.join(METHODS)}")
    if len(body) > MAX_BODY_BYTES:
        raise OcciError(413, f"the body has {len(body)} bytes; at most {MAX_BODY_BYTES} are possible")
    table = properties.headers or {}
    path, query = _read_target(table.get("path_info"), base)
    headers = _read_headers(table)
    if properties.content_type:
        headers.append(("content-type", properties.content_type))
    return UnauthenticatedRequest(
        method=method.upper(),
        path=path,
        query=query,
        headers=tuple(headers),
        body=body,
        token=_read_token(table),
        fingerprint=_fingerprint(properties, headers, body),
    )


def build_message(envelope: Envelope, response: OcciResponse) -> tuple[bytes, Properties]:
    """Return the body and the properties of the message for a response."""
    values: dict[str, list[str]] = {}
    for name, value in response.headers:
        if (returned := RETURNED.get(name.lower())) is not None:
            values.setdefault(returned, []).append(value)
    if sum(len(value.encode()) for items in values.values() for value in items) > MAX_HEADER_BYTES:
        text = f"the headers of a message hold at most {MAX_HEADER_BYTES} bytes: ask for text/plain or text/uri-list"
        return build_message(envelope, OcciResponse(413, text.encode(), "text/plain"))
    headers: FieldTable = {"status_code": response.status, "path_info": envelope.path}
    if response.status >= 400:
        headers["is_error"] = True
    headers |= {name: ", ".join(items) for name, items in values.items()}
    properties = Properties(
        content_type=response.content_type.partition(";")[0].strip(),
        correlation_id=envelope.correlation_id or None,
        delivery_mode=TRANSIENT,
        headers=headers,
    )
    # Cloud4E's client takes a list with a single URI as the URI itself, so the list must not end with a line feed.
    body = response.body.removesuffix(b"\n") if properties.content_type == "text/uri-list" else response.body
    return body, properties


def _read_target(path_info: object, base: str) -> tuple[str, Mapping[str, str]]:
    if not isinstance(path_info, str) or not path_info:
        raise OcciError(400, "header path_info: it is missing; send a path such as /compute/")
    if len(path_info) > MAX_PATH_CHARACTERS:
        raise OcciError(400, f"header path_info: it has more than {MAX_PATH_CHARACTERS} characters")
    target = path_info.removeprefix(base)
    return parse_target(target if target.startswith("/") else f"/{target}", "header path_info")


def _read_headers(table: Mapping[str, object]) -> list[tuple[str, str]]:
    headers: list[tuple[str, str]] = []
    for given, value in table.items():
        name = given.lower().replace("_", "-").removeprefix("http-")
        if name not in PASSED or value is None:
            continue
        for item in value if isinstance(value, list) else [value]:
            if not isinstance(item, str) or any(c in item for c in "\r\n\0"):
                raise OcciError(400, f"header {quote_input(given)}: the value is not one line of text")
            headers.append((name, item))
    if sum(len(value) for _, value in headers) > MAX_HEADER_BYTES:
        raise OcciError(413, f"the headers have more than {MAX_HEADER_BYTES} bytes: send text/plain in the body")
    return headers


def _read_token(table: Mapping[str, object]) -> str:
    """Return the token from the table ``auth``, whose ``password`` is the token; as in ``Authorization: Basic``."""
    auth = table.get("auth")
    if isinstance(auth, Mapping):
        if str(auth.get("type")).lower() != "basic":
            raise OcciError(400, 'header auth: its type must be "basic"')
        password = auth.get("password")
        return password if isinstance(password, str) else ""
    token = next((value for name, value in table.items() if name.lower().replace("_", "-") == "x-auth-token"), "")
    return token if isinstance(token, str) else ""


def _fingerprint(properties: Properties, headers: list[tuple[str, str]], body: bytes) -> str:
    message_id = properties.message_id or ""
    if not message_id:
        return ""
    identifying_parts: list[object] = [message_id]
    if len(message_id) < UNIQUE_ID_CHARACTERS:
        identifying_parts += [properties.reply_to, properties.timestamp]
    path_info = (properties.headers or {}).get("path_info")
    content = hashlib.sha256(body).hexdigest()
    return _digest(*map(repr, (*identifying_parts, properties.message_type, path_info, headers, content)))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
