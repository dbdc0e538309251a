# SPDX-License-Identifier: Apache-2.0
"""The platform's own requests to the object store, over the S3 API.

The bytes of files never pass here. Users and workers send and receive them with signed URLs. The platform itself only
looks objects up, lists, marks and deletes them, and begins and ends uploads in parts.
"""

from __future__ import annotations

import asyncio
import ssl
import xml.etree.ElementTree as ElementTree
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

import aiohttp
from yarl import URL

from simyard.files.access import StoreAccess
from simyard.files.signature import sign_url

REQUEST_SECONDS = 15.0
_OWN_SECONDS = 300
"""Life of the signed URL of an own request; it allows for clocks that differ by minutes."""
_MAX_ANSWER_BYTES = 4 * 1024 * 1024
MAX_PARALLEL = 16


class StoreError(Exception):
    """The store does not answer, or refuses a request. A retry later can succeed."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object of the store. ``metadata`` is empty in lists."""

    key: str
    size: int
    modified: datetime
    media_type: str = ""
    metadata: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class StoredUpload:
    """One upload in parts that has not ended."""

    key: str
    upload_id: str
    initiated: datetime


class ObjectStore:
    """A client of one bucket; an asynchronous context manager."""

    def __init__(self, access: StoreAccess, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._access = access
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        self._slots = asyncio.Semaphore(MAX_PARALLEL)

    async def __aenter__(self) -> Self:
        """Open the connections."""
        authority = self._access.ca_certificate
        context = ssl.create_default_context(cadata=authority) if authority else ssl.create_default_context()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, limit=MAX_PARALLEL),
            timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS),
            auto_decompress=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def find_object(self, key: str) -> StoredObject | None:
        """Return an object, or None if there is none with the key.

        Raises:
            StoreError: the store does not answer, or refuses.
        """
        status, headers, _ = await self._request("HEAD", key, expected=(200, 404))
        if status == 404:
            return None
        prefix = "x-amz-meta-"
        return StoredObject(
            key,
            int(headers.get("Content-Length") or 0),
            _read_http_time(headers.get("Last-Modified", "")),
            headers.get("Content-Type", ""),
            {
                name.lower().removeprefix(prefix): value
                for name, value in headers.items()
                if name.lower().startswith(prefix)
            },
        )

    async def put_object(self, key: str) -> None:
        """Write an empty object; its time of change is then now."""
        await self._request("PUT", key, expected=(200,))

    async def delete_object(self, key: str) -> None:
        """Delete an object if it exists."""
        await self._request("DELETE", key, expected=(200, 204, 404))

    async def list_objects(self, prefix: str) -> AsyncIterator[StoredObject]:
        """Yield all objects whose keys begin with the prefix, in the order of their keys."""
        token = ""
        while True:
            page, token = await self.list_object_page(prefix, token)
            for item in page:
                yield item
            if not token:
                return

    async def list_object_page(self, prefix: str, token: str = "", limit: int = 1000) -> tuple[list[StoredObject], str]:
        """Return up to ``limit`` objects whose keys begin with the prefix, and the token of the next page."""
        query = {"list-type": "2", "prefix": prefix, "max-keys": str(limit)}
        if token:
            query["continuation-token"] = token
        tree = await self._read("GET", "", query)
        found = [
            StoredObject(_text(item, "Key"), int(_text(item, "Size") or 0), _read_time(_text(item, "LastModified")))
            for item in _children(tree, "Contents")
        ]
        following = _text(tree, "NextContinuationToken") if _text(tree, "IsTruncated") == "true" else ""
        return found, following

    async def list_prefixes(self) -> list[str]:
        """Return the first parts of all keys, up to the first ``/``."""
        found: list[str] = []
        token = ""
        while True:
            query = {"list-type": "2", "delimiter": "/"} | ({"continuation-token": token} if token else {})
            tree = await self._read("GET", "", query)
            found += [_text(item, "Prefix").rstrip("/") for item in _children(tree, "CommonPrefixes")]
            token = _text(tree, "NextContinuationToken") if _text(tree, "IsTruncated") == "true" else ""
            if not token:
                return found

    async def begin_upload(self, key: str, media_type: str, metadata: Mapping[str, str]) -> str:
        """Begin an upload in parts, and return its id."""
        headers = {
            "content-type": media_type,
            "x-amz-checksum-algorithm": "SHA256",
            "x-amz-checksum-type": "COMPOSITE",
            **{f"x-amz-meta-{name}": value for name, value in metadata.items()},
        }
        tree = await self._read("POST", key, {"uploads": ""}, headers)
        return _text(tree, "UploadId")

    async def list_uploads(self) -> list[StoredUpload]:
        """Return all uploads in parts that have not ended."""
        tree = await self._read("GET", "", {"uploads": ""})
        return [
            StoredUpload(_text(item, "Key"), _text(item, "UploadId"), _read_time(_text(item, "Initiated")))
            for item in _children(tree, "Upload")
        ]

    async def abort_upload(self, key: str, upload_id: str) -> None:
        """End an upload in parts, and delete its parts."""
        await self._request("DELETE", key, {"uploadId": upload_id}, expected=(200, 204, 404))

    async def _read(
        self, method: str, key: str, query: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> ElementTree.Element:
        _, _, body = await self._request(method, key, query, headers, expected=(200,))
        try:
            return ElementTree.fromstring(body)  # noqa: S314 - the platform team's own store; its answers are bounded
        except ElementTree.ParseError as error:
            raise StoreError(f"the file store answered {method} with no readable XML: {error}") from None

    async def _request(
        self,
        method: str,
        key: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        expected: Sequence[int],
    ) -> tuple[int, Mapping[str, str], bytes]:
        assert self._session is not None, "enter the context first"
        url = sign_url(
            self._access.credentials,
            method,
            self._access.url_of(key),
            now=self._clock(),
            expires_seconds=_OWN_SECONDS,
            query=query,
            headers=headers,
        )
        try:
            async with self._slots, self._session.request(method, URL(url, encoded=True), headers=headers) as response:
                body = await _read_body(response)
                if response.status not in expected:
                    raise StoreError(f"the file store refused {method}: {response.status} {_read_code(body)}")
                return response.status, response.headers, body
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = str(error) or f"no answer within {REQUEST_SECONDS:g} s"
            raise StoreError(f"the file store at {self._access.endpoint} does not answer: {reason}") from None


async def _read_body(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for block in response.content.iter_any():
        body += block
        if len(body) > _MAX_ANSWER_BYTES:
            raise StoreError(f"an answer of the file store has more than {_MAX_ANSWER_BYTES} bytes")
    return bytes(body)


def _children(tree: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [item for item in tree if item.tag.rpartition("}")[2] == name]


def _text(tree: ElementTree.Element, name: str) -> str:
    return next((item.text or "" for item in _children(tree, name)), "")


def _read_time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _read_http_time(text: str) -> datetime:
    return datetime.strptime(text, "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC)


def _read_code(body: bytes) -> str:
    """Return the code and the message of an S3 error."""
    try:
        tree = ElementTree.fromstring(body)  # noqa: S314 - as above
    except ElementTree.ParseError:
        return ""
    return f"{_text(tree, 'Code')}: {_text(tree, 'Message')}"
