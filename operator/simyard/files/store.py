# SPDX-License-Identifier: Apache-2.0
"""The platform's own requests to the object store, over the S3 API.

The bytes of files never pass here. Users and workers send and receive them with signed URLs. The platform itself finds,
lists and deletes objects, writes small records, and begins and aborts uploads in parts.
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
from simyard.files.metrics import DURATION, ERRORS
from simyard.files.signature import sign_url

REQUEST_SECONDS = 15.0
_OWN_SECONDS = 300
"""Life of the signed URL of an own request; it allows for clocks that differ by minutes."""
_MAX_ANSWER_BYTES = 4 * 1024 * 1024
MAX_PARALLEL = 16
MAX_PAGE = 1000
"""The largest number of items in one answer of a list (S3)."""


class StoreError(Exception):
    """A request to the store that got no answer, or was refused. A retry can succeed if ``retryable`` is true."""

    retryable = True


class EncryptionError(StoreError):
    """A store that does not encrypt objects, although the platform team requires it."""

    retryable = False

    def __init__(self, bucket: str) -> None:
        super().__init__(
            f"the file store does not encrypt the objects of the bucket {bucket}, but its Secret has "
            "encryption: Required. The platform team enables default encryption of the bucket (PutBucketEncryption), "
            "or sets encryption: Optional if the server's disk is encrypted"
        )


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object of the store. ``metadata`` is empty in lists."""

    key: str
    size: int
    modified: datetime
    media_type: str = ""
    metadata: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class OpenUpload:
    """An upload in parts that has not ended."""

    key: str
    upload_id: str
    initiated: datetime


@dataclass(frozen=True, slots=True)
class StoredPart:
    """A part of an open upload that the store has. ``checksum`` is the base64 form of its SHA-256."""

    number: int
    etag: str
    size: int
    checksum: str


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
        status, headers, _ = await self._request("find object", "HEAD", key, expected=(200, 404))
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

    async def get_object(self, key: str) -> bytes | None:
        """Return the content of a small object, or None if there is none with the key."""
        status, _, body = await self._request("get object", "GET", key, expected=(200, 404))
        return body if status == 200 else None

    async def put_object(self, key: str, content: bytes = b"") -> None:
        """Write a small object; its time of change is then now.

        Raises:
            EncryptionError: the store does not encrypt objects, but must.
            StoreError: the store does not answer, or refuses.
        """
        _, headers, _ = await self._request("put object", "PUT", key, expected=(200,), content=content)
        self._check_encryption(headers)

    async def delete_object(self, key: str) -> None:
        """Delete an object if it exists."""
        await self._request("delete object", "DELETE", key, expected=(200, 204, 404))

    async def list_objects(self, prefix: str) -> AsyncIterator[StoredObject]:
        """Yield all objects whose keys begin with the prefix, in the order of their keys."""
        token = ""
        while True:
            page, token = await self.list_object_page(prefix, token)
            for item in page:
                yield item
            if not token:
                return

    async def list_object_page(
        self, prefix: str, token: str = "", limit: int = MAX_PAGE, *, start_after: str = ""
    ) -> tuple[list[StoredObject], str]:
        """Return up to ``limit`` objects whose keys begin with the prefix, and the token of the next page.

        Without a token, the page begins after the key ``start_after``.
        """
        query = {"list-type": "2", "prefix": prefix, "max-keys": str(limit)}
        if token:
            query["continuation-token"] = token
        elif start_after:
            query["start-after"] = start_after
        tree = await self._read("list objects", "GET", "", query)
        found = [
            StoredObject(_text(item, "Key"), int(_text(item, "Size") or 0), _read_time(_text(item, "LastModified")))
            for item in _children(tree, "Contents")
        ]
        return found, _read_next(tree, "NextContinuationToken")

    async def list_prefixes(self) -> list[str]:
        """Return the first words of all keys that have several words."""
        found: list[str] = []
        token = ""
        while True:
            query = {"list-type": "2", "delimiter": "/"} | ({"continuation-token": token} if token else {})
            tree = await self._read("list objects", "GET", "", query)
            found += [_text(item, "Prefix").rstrip("/") for item in _children(tree, "CommonPrefixes")]
            token = _read_next(tree, "NextContinuationToken")
            if not token:
                return found

    async def begin_upload(self, key: str, media_type: str, metadata: Mapping[str, str]) -> str:
        """Begin an upload in parts, and return its id.

        Raises:
            EncryptionError: the store does not encrypt objects, but must.
            StoreError: the store does not answer, or refuses.
        """
        headers = {
            "content-type": media_type,
            "x-amz-checksum-algorithm": "SHA256",
            "x-amz-checksum-type": "COMPOSITE",
            **{f"x-amz-meta-{name}": value for name, value in metadata.items()},
        }
        _, answered, body = await self._request(
            "begin upload", "POST", key, {"uploads": ""}, headers, expected=(200,), content=b""
        )
        upload_id = _text(_parse(body), "UploadId")
        try:
            self._check_encryption(answered)
        except EncryptionError:
            await self.abort_upload(key, upload_id)
            raise
        return upload_id

    async def list_parts(self, key: str, upload_id: str) -> list[StoredPart] | None:
        """Return the parts of an open upload that the store has; None if the upload has ended."""
        found: list[StoredPart] = []
        marker = ""
        while True:
            query = {"uploadId": upload_id} | ({"part-number-marker": marker} if marker else {})
            status, _, body = await self._request("list parts", "GET", key, query, expected=(200, 404))
            if status == 404:
                return None
            tree = _parse(body)
            found += [
                StoredPart(
                    int(_text(item, "PartNumber")),
                    _text(item, "ETag"),
                    int(_text(item, "Size") or 0),
                    _text(item, "ChecksumSHA256"),
                )
                for item in _children(tree, "Part")
            ]
            marker = _read_next(tree, "NextPartNumberMarker")
            if not marker:
                return found

    async def list_uploads(self, prefix: str = "", limit: int = MAX_PAGE) -> AsyncIterator[OpenUpload]:
        """Yield the open uploads whose keys begin with the prefix; ``limit`` is the size of a page.

        The next page begins after a key, and not after an upload: versitygw 1.8.0 refuses every upload-id-marker. If a
        page ends among several uploads of one key, the others are listed only when the first ones have ended.
        """
        query = {"uploads": "", "max-uploads": str(limit)} | ({"prefix": prefix} if prefix else {})
        while True:
            tree = await self._read("list uploads", "GET", "", query)
            for item in _children(tree, "Upload"):
                yield OpenUpload(_text(item, "Key"), _text(item, "UploadId"), _read_time(_text(item, "Initiated")))
            key = _read_next(tree, "NextKeyMarker")
            if not key:
                return
            query["key-marker"] = key

    async def abort_upload(self, key: str, upload_id: str) -> None:
        """End an upload in parts, and delete its parts."""
        await self._request("abort upload", "DELETE", key, {"uploadId": upload_id}, expected=(200, 204, 404))

    def _check_encryption(self, headers: Mapping[str, str]) -> None:
        if self._access.encryption_required and not headers.get("x-amz-server-side-encryption"):
            raise EncryptionError(self._access.bucket)

    async def _read(self, operation: str, method: str, key: str, query: Mapping[str, str]) -> ElementTree.Element:
        _, _, body = await self._request(operation, method, key, query, expected=(200,))
        return _parse(body)

    async def _request(
        self,
        operation: str,
        method: str,
        key: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        expected: Sequence[int],
        content: bytes | None = None,
    ) -> tuple[int, Mapping[str, str], bytes]:
        try:
            async with self._slots:
                with DURATION.labels(operation).time():
                    return await self._send(operation, method, key, query, headers, expected, content)
        except StoreError:
            ERRORS.labels(operation).inc()
            raise

    async def _send(
        self,
        operation: str,
        method: str,
        key: str,
        query: Mapping[str, str] | None,
        headers: Mapping[str, str] | None,
        expected: Sequence[int],
        content: bytes | None,
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
        request = self._session.request(method, URL(url, encoded=True), headers=headers, data=content)
        try:
            async with request as response:
                body = await _read_body(response)
                if response.status not in expected:
                    raise StoreError(f"the file store refused to {operation}: {response.status} {_read_code(body)}")
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


def _read_next(tree: ElementTree.Element, name: str) -> str:
    """Return the marker of the next page; empty if this page is the last."""
    return _text(tree, name) if _text(tree, "IsTruncated") == "true" else ""


def _parse(body: bytes) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(body)  # noqa: S314 - the platform team's own store; its answers are bounded
    except ElementTree.ParseError as error:
        raise StoreError(f"the file store answered with no readable XML: {error}") from None


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
