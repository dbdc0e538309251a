"""Messages of the Cloud4E binding as requests, and responses as messages. Pure.

A request has the properties ``type`` (the HTTP method in lower case), ``content_type``, ``reply_to``, ``message_id``,
and the headers ``path_info`` (path and query), ``accept``, ``auth`` (a table: ``type`` basic, ``username``,
``password``) or ``X-AUTH-TOKEN``; what is an HTTP header in text/occi is a header here too: ``CATEGORY``, ``LINK``,
``X_OCCI_ATTRIBUTE``, ``X_OCCI_LOCATION``. A response has ``correlation_id`` (the request's ``message_id``) and the
headers ``status_code``, ``path_info`` and, when it is an error, ``is_error``; those of text/occi under the same names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from aiormq import spec
from pamqp.common import FieldTable

from simyard.frontend.exchange import Identity, OcciRequest, OcciResponse, path_and_query
from simyard.occi.errors import OcciError, shown

Properties = spec.Basic.Properties
TRANSIENT = 1  # AMQP 0-9-1, delivery-mode
METHODS = ("get", "post", "put", "delete")
MOST_BODY_BYTES = 1024 * 1024
MOST_PATH_CHARACTERS = 8192
MOST_HEADER_BYTES = 64 * 1024
"""Of a request or a response: all headers of a message must fit into one frame, 128 KiB at most."""
UNIQUE_ID_CHARACTERS = 16
"""A message id that is shorter is a counter, and means something only together with the queue of the reply."""
PASSED = frozenset(
    {
        *("accept", "cache-control", "category", "if-match", "if-none-match", "link", "user-agent"),
        *("x-occi-attribute", "x-occi-location"),
    }
)
"""The headers that a request may have, as HTTP names them."""
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
    """Where the response goes, and what tells the client which one it is; readable however bad the request is."""

    reply_to: str
    correlation_id: str
    path: str
    accept: str

    @classmethod
    def of(cls, properties: Properties) -> Envelope:
        """Never fails: what cannot be read is empty."""
        headers = properties.headers or {}
        accept = next((value for name, value in headers.items() if name.lower() == "accept"), "")
        path = headers.get("path_info")
        return cls(
            reply_to=properties.reply_to or "",
            correlation_id=properties.message_id or properties.correlation_id or "",
            path=path.partition("?")[0][:MOST_PATH_CHARACTERS] if isinstance(path, str) else "",
            accept=accept if isinstance(accept, str) else "",
        )


@dataclass(frozen=True, slots=True)
class Call:
    """A request whose sender is not known yet.

    Attributes:
        token: what the sender proves its identity with; empty without any.
        fingerprint: the same for every delivery of this request, and for its repetition by the client; empty when
            there is no message id.
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
        """Whether it may change anything."""
        return self.method != "GET"

    def by(self, identity: Identity, base: str) -> OcciRequest:
        """The request, now that its sender is known."""
        key = _digest(identity.user, self.fingerprint) if self.fingerprint and self.changes else ""
        return OcciRequest(self.method, self.path, self.query, self.headers, self.body, identity, base, key)


def read(properties: Properties, body: bytes, base: str) -> Call:
    """Understand a message.

    Args:
        properties: its properties, whatever the client has put there.
        body: its body.
        base: what absolute URIs of ours begin with.

    Raises:
        OcciError: 400 or 413, which says what of the message is wrong.
    """
    method = (properties.message_type or "").lower()
    if method not in METHODS:
        raise OcciError(400, f"property type: {shown(method)} is none of {', '.join(METHODS)}")
    if len(body) > MOST_BODY_BYTES:
        raise OcciError(413, f"the body has {len(body)} bytes; at most {MOST_BODY_BYTES} are read")
    table = properties.headers or {}
    path, query = _path_and_query(table.get("path_info"), base)
    headers = _headers(table)
    if properties.content_type:
        headers.append(("content-type", properties.content_type))
    return Call(
        method=method.upper(),
        path=path,
        query=query,
        headers=tuple(headers),
        body=body,
        token=_token(table),
        fingerprint=_fingerprint(properties, headers, body),
    )


def message(envelope: Envelope, response: OcciResponse) -> tuple[bytes, Properties]:
    """The response as a message's body and properties."""
    values: dict[str, list[str]] = {}
    for name, value in response.headers:
        if (returned := RETURNED.get(name.lower())) is not None:
            values.setdefault(returned, []).append(value)
    if sum(len(value.encode()) for items in values.values() for value in items) > MOST_HEADER_BYTES:
        text = f"the headers of a message hold at most {MOST_HEADER_BYTES} bytes: ask for text/plain or text/uri-list"
        return message(envelope, OcciResponse(413, text.encode(), "text/plain"))
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
    # Cloud4E's client takes a list of one URI for the URI itself, which a line feed is no part of.
    body = response.body.removesuffix(b"\n") if properties.content_type == "text/uri-list" else response.body
    return body, properties


def _path_and_query(path_info: object, base: str) -> tuple[str, Mapping[str, str]]:
    if not isinstance(path_info, str) or not path_info:
        raise OcciError(400, "header path_info: the path that is asked for is missing, such as /compute/")
    if len(path_info) > MOST_PATH_CHARACTERS:
        raise OcciError(400, f"header path_info: more than {MOST_PATH_CHARACTERS} characters")
    target = path_info.removeprefix(base)
    return path_and_query(target if target.startswith("/") else f"/{target}", "header path_info")


def _headers(table: Mapping[str, object]) -> list[tuple[str, str]]:
    headers: list[tuple[str, str]] = []
    for given, value in table.items():
        name = given.lower().replace("_", "-").removeprefix("http-")
        if name not in PASSED or value is None:
            continue
        for item in value if isinstance(value, list) else [value]:
            if not isinstance(item, str) or any(c in item for c in "\r\n\0"):
                raise OcciError(400, f"header {shown(given)}: it is not one line of text")
            headers.append((name, item))
    if sum(len(value) for _, value in headers) > MOST_HEADER_BYTES:
        raise OcciError(413, f"the headers have more than {MOST_HEADER_BYTES} bytes: send text/plain in the body")
    return headers


def _token(table: Mapping[str, object]) -> str:
    """What stands for the password is a token (``Authorization: Basic`` of the HTTP face takes the same)."""
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
    told_apart: list[object] = [message_id]
    if len(message_id) < UNIQUE_ID_CHARACTERS:
        told_apart += [properties.reply_to, properties.timestamp]
    path_info = (properties.headers or {}).get("path_info")
    content = hashlib.sha256(body).hexdigest()
    return _digest(*map(repr, (*told_apart, properties.message_type, path_info, headers, content)))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
