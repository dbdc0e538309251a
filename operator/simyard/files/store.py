# SPDX-License-Identifier: Apache-2.0
"""The platform's own requests to the object store, over the S3 API.

The bytes of files never pass here. Users and workers send and receive them with signed URLs. The platform itself finds,
lists and deletes objects, writes small records, and begins and aborts uploads in parts.

Nothing that a store answers, and no setting of it, raises anything but a StoreError: each answer is read inside
:meth:`ObjectStore._request`, and settings that cannot be used fail each request, not the start of the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Self, TypeVar

import aiohttp
from yarl import URL

from simyard.files.access import StoreAccess
from simyard.files.answers import Answer, Element
from simyard.files.metrics import DURATION, ERRORS
from simyard.files.signature import sign_url

REQUEST_SECONDS = 15.0
_OWN_SECONDS = 300
"""Life of the signed URL of an own request; it allows for clocks that differ by minutes."""
MAX_ANSWER_BYTES = 4 * 1024 * 1024
"""The largest answer of a request that names no other limit."""
MAX_TABLE_BYTES = 64 * 1024 * 1024
"""The largest object of a study: rows of a chunk, or a generation."""
MAX_PARALLEL = 16
MAX_PAGE = 1000
"""The largest number of items in one answer of a list (S3)."""
_METADATA = "x-amz-meta-"

T = TypeVar("T")


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
    """A client of one bucket; an asynchronous context manager. Every request raises a StoreError if it fails."""

    def __init__(self, access: StoreAccess, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._access = access
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        self._slots = asyncio.Semaphore(MAX_PARALLEL)

    async def __aenter__(self) -> Self:
        """Open the connections."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._access.make_tls_context(), limit=MAX_PARALLEL),
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
        """Return an object, or None if there is none with the key."""

        def read(answer: Answer) -> StoredObject | None:
            if answer.status == 404:
                return None
            headers = answer.headers
            return StoredObject(
                key,
                int(headers.get("content-length") or 0),
                answer.read_time("last-modified"),
                headers.get("content-type", ""),
                {name.removeprefix(_METADATA): text for name, text in headers.items() if name.startswith(_METADATA)},
            )

        return await self._request("find object", "HEAD", key, read, expected=(200, 404))

    async def get_object(self, key: str, max_bytes: int = MAX_ANSWER_BYTES) -> bytes | None:
        """Return the content of an object of at most ``max_bytes``, or None if there is none with the key."""

        def read(answer: Answer) -> bytes | None:
            return answer.body if answer.status == 200 else None

        return await self._request("get object", "GET", key, read, expected=(200, 404), max_bytes=max_bytes)

    async def put_object(self, key: str, content: bytes = b"", headers: Mapping[str, str] | None = None) -> datetime:
        """Write a small object; its time of change is then now. Return the time of the answer by the store's clock.

        Raises:
            EncryptionError: the store does not encrypt objects, but must.
        """

        def read(answer: Answer) -> datetime:
            self._check_encryption(answer)
            return answer.read_time("date")

        return await self._request("put object", "PUT", key, read, headers=headers, expected=(200,), content=content)

    async def create_object(self, key: str, content: bytes, metadata: Mapping[str, str] | None = None) -> bool:
        """Write an object unless there is one with the key; return whether it was written.

        Raises:
            EncryptionError: the store does not encrypt objects, but must.
        """
        headers = {"if-none-match": "*", **{f"x-amz-meta-{name}": value for name, value in (metadata or {}).items()}}

        def read(answer: Answer) -> bool:
            if answer.status == 200:
                self._check_encryption(answer)
            return answer.status == 200

        return await self._request(
            "create object", "PUT", key, read, None, headers, expected=(200, 412), content=content
        )

    async def delete_object(self, key: str) -> None:
        """Delete an object if it exists."""
        await self._request("delete object", "DELETE", key, _ignore, expected=(200, 204, 404))

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

        def read(answer: Answer) -> tuple[list[StoredObject], str]:
            tree = answer.read_document()
            found = [
                StoredObject(item.read_text("Key"), item.read_number("Size"), item.read_time("LastModified"))
                for item in tree.list_children("Contents")
            ]
            return found, tree.read_next("NextContinuationToken", token)

        return await self._request("list objects", "GET", "", read, query, expected=(200,))

    async def list_prefixes(self, prefix: str = "") -> list[str]:
        """Return the first words after a prefix of all keys that have several words there."""
        found: list[str] = []
        query = {"list-type": "2", "delimiter": "/", "prefix": prefix}

        def read(answer: Answer) -> str:
            tree = answer.read_document()
            words = (item.read_text("Prefix") for item in tree.list_children("CommonPrefixes"))
            found.extend(word.removeprefix(prefix).rstrip("/") for word in words)
            return tree.read_next("NextContinuationToken", query.get("continuation-token", ""))

        while token := await self._request("list objects", "GET", "", read, query, expected=(200,)):
            query["continuation-token"] = token
        return found

    async def begin_upload(self, key: str, media_type: str, metadata: Mapping[str, str]) -> str:
        """Begin an upload in parts, and return its id.

        Raises:
            EncryptionError: the store does not encrypt objects, but must.
        """
        headers = {
            "content-type": media_type,
            "x-amz-checksum-algorithm": "SHA256",
            "x-amz-checksum-type": "COMPOSITE",
            **{f"{_METADATA}{name}": value for name, value in metadata.items()},
        }

        def read(answer: Answer) -> tuple[str, Answer]:
            return answer.read_document().read_text("UploadId"), answer

        upload_id, answer = await self._request(
            "begin upload", "POST", key, read, {"uploads": ""}, headers, expected=(200,), content=b""
        )
        try:
            self._check_encryption(answer)
        except EncryptionError:
            await self.abort_upload(key, upload_id)
            raise
        return upload_id

    async def list_parts(self, key: str, upload_id: str) -> list[StoredPart] | None:
        """Return the parts of an open upload that the store has; None if the upload has ended."""
        found: list[StoredPart] = []
        query = {"uploadId": upload_id}

        def read(answer: Answer) -> str | None:
            if answer.status == 404:
                return None
            tree = answer.read_document()
            found.extend(_read_part(item) for item in tree.list_children("Part"))
            return tree.read_next("NextPartNumberMarker", query.get("part-number-marker", ""))

        while marker := await self._request("list parts", "GET", key, read, query, expected=(200, 404)):
            query["part-number-marker"] = marker
        return None if marker is None else found

    async def list_uploads(self, prefix: str = "", limit: int = MAX_PAGE) -> AsyncIterator[OpenUpload]:
        """Yield the open uploads whose keys begin with the prefix; ``limit`` is the size of a page.

        The next page begins after a key, and not after an upload: versitygw 1.8.0 refuses every upload-id-marker. If a
        page ends among several uploads of one key, the others are listed only when the first ones have ended.
        """
        query = {"uploads": "", "max-uploads": str(limit)} | ({"prefix": prefix} if prefix else {})

        def read(answer: Answer) -> tuple[list[OpenUpload], str]:
            tree = answer.read_document()
            found = [
                OpenUpload(item.read_text("Key"), item.read_text("UploadId"), item.read_time("Initiated"))
                for item in tree.list_children("Upload")
            ]
            return found, tree.read_next("NextKeyMarker", query.get("key-marker", ""))

        while True:
            page, query["key-marker"] = await self._request("list uploads", "GET", "", read, query, expected=(200,))
            for item in page:
                yield item
            if not query["key-marker"]:
                return

    async def abort_upload(self, key: str, upload_id: str) -> None:
        """End an upload in parts, and delete its parts."""
        query = {"uploadId": upload_id}
        await self._request("abort upload", "DELETE", key, _ignore, query, expected=(200, 204, 404))

    def _check_encryption(self, answer: Answer) -> None:
        if self._access.encryption_required and not answer.headers.get("x-amz-server-side-encryption"):
            raise EncryptionError(self._access.bucket)

    async def _request(
        self,
        operation: str,
        method: str,
        key: str,
        read: Callable[[Answer], T],
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        expected: Sequence[int],
        content: bytes | None = None,
        max_bytes: int = MAX_ANSWER_BYTES,
    ) -> T:
        """Send a request, and return what ``read`` reads from the answer; a ValueError of it becomes a StoreError."""
        try:
            if self._access.problem:
                raise StoreError(self._access.problem)
            async with self._slots:
                with DURATION.labels(operation).time():
                    answer = await self._send(method, key, query, headers, content, max_bytes)
            if answer.status not in expected:
                raise StoreError(f"the file store refused to {operation}: {answer.status} {answer.read_error()}")
            try:
                return read(answer)
            except (ValueError, OverflowError) as error:
                raise StoreError(
                    f"the answer of the file store at {self._access.endpoint} to '{operation}' cannot be read: {error}"
                    ". Check that the endpoint is an S3 server, and that no proxy changes its answers"
                ) from None
        except StoreError:
            ERRORS.labels(operation).inc()
            raise

    async def _send(
        self,
        method: str,
        key: str,
        query: Mapping[str, str] | None,
        headers: Mapping[str, str] | None,
        content: bytes | None,
        max_bytes: int,
    ) -> Answer:
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
            async with self._session.request(method, URL(url, encoded=True), headers=headers, data=content) as response:
                body = await _read_body(response, max_bytes)
                return Answer(response.status, {name.lower(): text for name, text in response.headers.items()}, body)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            reason = str(error) or f"no answer within {REQUEST_SECONDS:g} s"
            raise StoreError(f"the file store at {self._access.endpoint} does not answer: {reason}") from None


async def _read_body(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    body = bytearray()
    async for block in response.content.iter_any():
        body += block
        if len(body) > max_bytes:
            raise StoreError(f"an answer of the file store has more than {max_bytes} bytes")
    return bytes(body)


def _read_part(item: Element) -> StoredPart:
    return StoredPart(
        item.read_number("PartNumber"),
        item.read_text("ETag"),
        item.read_number("Size"),
        item.find_text("ChecksumSHA256"),
    )


def _ignore(_: Answer) -> None:
    """Read nothing."""
