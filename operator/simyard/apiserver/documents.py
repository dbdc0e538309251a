"""The documents that are the same for everybody, rendered once, with an ETag. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import orjson

from simyard.api.base import Json
from simyard.apiserver import discovery, openapi
from simyard.apiserver.routes import Document


@dataclass(frozen=True, slots=True)
class Rendered:
    """A JSON document and its ETag (RFC 9110 8.8.3, quotes included)."""

    body: bytes
    etag: str

    @classmethod
    def of(cls, document: Json) -> Rendered:
        """Render a document."""
        body = orjson.dumps(document)
        return cls(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')

    def is_known(self, if_none_match: str) -> bool:
        """Whether a client has it already, by its ``If-None-Match`` (RFC 9110 13.1.2)."""
        tags = (tag.strip().removeprefix("W/") for tag in if_none_match.split(","))
        return any(tag in ("*", self.etag) for tag in tags)


def render() -> dict[Document, Rendered]:
    """Discovery and OpenAPI."""
    version_3 = Rendered.of(openapi.version_3())
    return {
        Document.GROUPS: Rendered.of(discovery.group_list()),
        Document.GROUP: Rendered.of(discovery.group()),
        Document.RESOURCES: Rendered.of(discovery.resource_list()),
        Document.OPENAPI_V2: Rendered.of(openapi.version_2()),
        Document.OPENAPI_V3: Rendered.of(openapi.version_3_root(version_3.etag.strip('"'))),
        Document.OPENAPI_V3_GROUP: version_3,
    }


def accepts_json(accept: str) -> bool:
    """Whether an ``Accept`` header permits JSON; kube-apiserver may ask for protobuf first and JSON after."""
    ranges = (item.partition(";")[0].strip().lower() for item in accept.split(","))
    return not accept.strip() or any(item in ("*/*", "application/*", "application/json") for item in ranges)
