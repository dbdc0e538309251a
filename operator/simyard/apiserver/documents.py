# SPDX-License-Identifier: Apache-2.0
"""Discovery and OpenAPI documents. All callers get the same documents, so they are rendered only once, with ETags."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import orjson

from simyard.api.base import Json
from simyard.apiserver import discovery, openapi
from simyard.apiserver.routes import Document


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered JSON document and its ETag (RFC 9110 8.8.3) with the quotes."""

    body: bytes
    etag: str

    @classmethod
    def of(cls, document: Json) -> Rendered:
        """Render a document and compute its ETag."""
        body = orjson.dumps(document)
        return cls(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')

    def is_known(self, if_none_match: str) -> bool:
        """Return whether a client already has the document, by its ``If-None-Match`` (RFC 9110 13.1.2)."""
        tags = (tag.strip().removeprefix("W/") for tag in if_none_match.split(","))
        return any(tag in ("*", self.etag) for tag in tags)


def render_documents() -> dict[Document, Rendered]:
    """Return all discovery and OpenAPI documents, rendered."""
    version_3 = Rendered.of(openapi.make_version_3())
    return {
        Document.GROUPS: Rendered.of(discovery.make_group_list()),
        Document.GROUP: Rendered.of(discovery.make_group()),
        Document.RESOURCES: Rendered.of(discovery.make_resource_list()),
        Document.OPENAPI_V2: Rendered.of(openapi.make_version_2()),
        Document.OPENAPI_V3: Rendered.of(openapi.make_version_3_root(version_3.etag.strip('"'))),
        Document.OPENAPI_V3_GROUP: version_3,
    }


def accepts_json(accept: str) -> bool:
    """Return whether an ``Accept`` header permits JSON. kube-apiserver prefers protobuf, but also accepts JSON."""
    ranges = (item.partition(";")[0].strip().lower() for item in accept.split(","))
    return not accept.strip() or any(item in ("*/*", "application/*", "application/json") for item in ranges)
