# SPDX-License-Identifier: Apache-2.0
"""The catalog of files: it finds and lists the files of a namespace, and signs the requests that move their bytes.

A file is named by its content (:mod:`simyard_adapter.digests`), so nobody can replace a file, and a file that the
namespace has already is not sent again. The bytes go straight between the client and the store.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, unquote

from simyard.files.access import StoreAccess
from simyard.files.keys import FileKey, FileOrigin, make_use_key
from simyard.files.signature import sign_url
from simyard.files.store import ObjectStore, StoredObject, StoreError
from simyard_adapter.digests import is_address_of_parts, list_parts, read_checksum
from simyard_adapter.transfers import SignedRequest
from simyard_adapter.uploads import UploadOffer

DOWNLOAD_SECONDS = 3600
UPLOAD_SECONDS = 6 * 3600
MAX_PARTS_PER_OFFER = 100
"""The largest number of signed URLs in one answer; a client asks for the next parts when it has sent these."""
DEFAULT_MEDIA_TYPE = "application/octet-stream"
_HEX_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One stored file.

    Attributes:
        address: its address, ``sha256:...``.
        size: number of bytes.
        modified: time of the upload.
        media_type: media type, as the uploader said.
        name: name of the file at the uploader.
        owner: user who uploaded it, or the worker that made it.
    """

    address: str
    size: int
    modified: datetime
    media_type: str = ""
    name: str = ""
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that somebody wants to upload: its address and size, and the digests of its parts if it has several."""

    address: str
    size: int
    parts: tuple[bytes, ...] = ()
    media_type: str = DEFAULT_MEDIA_TYPE
    name: str = ""
    owner: str = ""

    def find_problem(self) -> tuple[str, str] | None:
        """Return the field that is wrong and the problem; None if the upload can be offered."""
        count = len(list_parts(self.size))
        if is_address_of_parts(self.address) != (count > 1):
            kind = "sha256-64m" if count > 1 else "sha256"
            return "address", f"a file of {self.size} bytes has an address that begins with {kind}:"
        if count > 1 and len(self.parts) != count:
            return "parts", f"has {len(self.parts)} digests; a file of {self.size} bytes has {count} parts"
        if any(len(part) != _HEX_DIGEST_BYTES for part in self.parts):
            return "parts", "must be SHA-256 digests of 64 hexadecimal digits"
        return None


class FileCatalog:
    """The files of all namespaces. Each method gets the uid of one namespace, and reads and writes only its files."""

    def __init__(
        self, access: StoreAccess, store: ObjectStore, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._access = access
        self._store = store
        self._clock = clock

    async def find_file(self, namespace_uid: str, address: str) -> FileRecord | None:
        """Return a file by its address; None if the namespace has none.

        Raises:
            StoreError: the store does not answer.
        """
        found = await self._find(namespace_uid, address)
        return None if found is None else _record(found)

    async def sign_download(self, namespace_uid: str, address: str) -> tuple[FileRecord, SignedRequest] | None:
        """Return a file and the request that downloads it; None if the namespace has no such file."""
        found = await self._find(namespace_uid, address)
        if found is None:
            return None
        with contextlib.suppress(StoreError):  # a store that is full can still be read
            await self._store.put_object(make_use_key(namespace_uid, address))
        return _record(found), self._sign("GET", found.key, DOWNLOAD_SECONDS)

    async def list_files(self, namespace_uid: str, limit: int, token: str = "") -> tuple[list[FileRecord], str]:
        """Return some files of users, in the order of their addresses, and the token of the next page."""
        page, following = await self._store.list_object_page(f"{namespace_uid}/{FileOrigin.USER}/", token, limit)
        keys = [(FileKey.parse(item.key), item) for item in page]
        return [FileRecord(key.address, item.size, item.modified) for key, item in keys if key is not None], following

    async def offer_upload(
        self, namespace_uid: str, origin: FileOrigin, upload: Upload, *, upload_id: str = "", first_part: int = 1
    ) -> UploadOffer:
        """Return the requests with which a client sends a file.

        Args:
            namespace_uid: the caller's namespace.
            origin: whether a user or a worker sends the file.
            upload: the file.
            upload_id: the upload in parts that the client continues; empty for a new one.
            first_part: the number of the first part that is wanted, from 1.
        """
        if not upload_id and await self._find(namespace_uid, upload.address) is not None:
            await self._store.put_object(make_use_key(namespace_uid, upload.address))
            return UploadOffer(present=True)
        key = str(FileKey(namespace_uid, origin, upload.address))
        expires = (
            (self._clock() + timedelta(seconds=UPLOAD_SECONDS)).isoformat(timespec="seconds").replace("+00:00", "Z")
        )
        checksum = base64.b64encode(read_checksum(upload.address)).decode()
        if not is_address_of_parts(upload.address):
            headers = {
                **_describe(upload),
                "content-length": str(upload.size),
                "if-none-match": "*",
                "x-amz-checksum-sha256": checksum,
            }
            request = self._sign("PUT", key, UPLOAD_SECONDS, headers=headers, size=upload.size)
            return UploadOffer(present=False, requests=(request,), expires=expires)
        if not upload_id:
            described = {name.removeprefix("x-amz-meta-"): value for name, value in _describe(upload).items()}
            media_type = described.pop("content-type")
            upload_id = await self._store.begin_upload(key, media_type, described)
        return UploadOffer(
            present=False,
            upload_id=upload_id,
            requests=self._sign_parts(key, upload_id, upload.parts, upload.size, first_part),
            complete=self._sign(
                "POST",
                key,
                UPLOAD_SECONDS,
                query={"uploadId": upload_id},
                headers={"if-none-match": "*", "x-amz-checksum-sha256": f"{checksum}-{len(upload.parts)}"},
            ),
            expires=expires,
        )

    async def delete_file(self, namespace_uid: str, address: str) -> bool:
        """Delete a file; return False if the namespace has none with the address."""
        found = await self._find(namespace_uid, address)
        if found is None:
            return False
        await self._store.delete_object(found.key)
        await self._store.delete_object(make_use_key(namespace_uid, address))
        return True

    async def _find(self, namespace_uid: str, address: str) -> StoredObject | None:
        for origin in (FileOrigin.USER, FileOrigin.WORKER):
            if (found := await self._store.find_object(str(FileKey(namespace_uid, origin, address)))) is not None:
                return found
        return None

    def _sign_parts(
        self, key: str, upload_id: str, parts: Sequence[bytes], size: int, first: int
    ) -> tuple[SignedRequest, ...]:
        places = list_parts(size)
        numbers = range(first, min(len(parts), first + MAX_PARTS_PER_OFFER - 1) + 1)
        return tuple(
            self._sign(
                "PUT",
                key,
                UPLOAD_SECONDS,
                query={"partNumber": str(number), "uploadId": upload_id},
                headers={
                    "content-length": str(places[number - 1][1]),
                    "x-amz-checksum-sha256": base64.b64encode(parts[number - 1]).decode(),
                },
                offset=places[number - 1][0],
                size=places[number - 1][1],
            )
            for number in numbers
        )

    def _sign(
        self,
        method: str,
        key: str,
        seconds: int,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        offset: int = 0,
        size: int = 0,
    ) -> SignedRequest:
        url = sign_url(
            self._access.credentials,
            method,
            self._access.url_of(key),
            now=self._clock(),
            expires_seconds=seconds,
            query=query,
            headers=headers,
        )
        return SignedRequest(method, url, dict(headers or {}), offset, size)


def _describe(upload: Upload) -> dict[str, str]:
    """Return the headers with which the store keeps name and owner; other characters than ASCII are percent-encoded."""
    return {
        "content-type": upload.media_type or DEFAULT_MEDIA_TYPE,
        "x-amz-meta-name": quote(upload.name, safe="-_.()"),
        "x-amz-meta-owner": quote(upload.owner, safe="-_.:@"),
    }


def _record(found: StoredObject) -> FileRecord:
    metadata = found.metadata or {}
    return FileRecord(
        address=found.key.rpartition("/")[2],
        size=found.size,
        modified=found.modified,
        media_type=found.media_type,
        name=unquote(metadata.get("name", "")),
        owner=unquote(metadata.get("owner", "")),
    )


@contextlib.asynccontextmanager
async def open_catalog(access: StoreAccess | None) -> AsyncIterator[FileCatalog | None]:
    """Open the catalog of the store for the time of the context; yield None if the platform has no store."""
    if access is None:
        yield None
        return
    async with ObjectStore(access) as store:
        yield FileCatalog(access, store)
