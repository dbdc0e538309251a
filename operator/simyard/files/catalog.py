# SPDX-License-Identifier: Apache-2.0
"""The catalog of files: it finds and lists the files of a namespace, and signs the requests that move their bytes.

A file is named by its content (:mod:`simyard_adapter.digests`), so nobody can replace a file, and a file that the
namespace has already is not sent again. The bytes go straight between the client and the store.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, unquote

from simyard.files.access import StoreAccess
from simyard.files.inventory import UPLOAD_SECONDS, find_offered_size
from simyard.files.keys import (
    STALE_DELETING,
    FileKey,
    FileOrigin,
    StudyKeys,
    StudyObject,
    UseKey,
    make_deleting_key,
    make_open_key,
    make_usage_key,
    make_use_prefix,
    parse_chunk,
)
from simyard.files.quotas import NEVER, NamespaceUsage, SignedUploads
from simyard.files.signature import sign_url
from simyard.files.store import ObjectStore, StoredObject, StoreError
from simyard.files.uploads import DEFAULT_MEDIA_TYPE, Upload
from simyard_adapter.digests import is_address_of_parts, list_parts, read_checksum
from simyard_adapter.transfers import SignedRequest
from simyard_adapter.uploads import UploadOffer

DOWNLOAD_SECONDS = 3600
PARTS_SECONDS = 6 * 3600
"""Life of the URLs of an upload in parts. They are of no use after the upload has ended or was aborted."""
MAX_PARTS_PER_OFFER = 100
"""The largest number of signed URLs in one answer; a client asks for the next parts when it has sent these."""
MAX_USE_PAGES = 4
"""The largest number of lists of use records for one page of files."""


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A stored file.

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
class StudyPart:
    """The stored rows of a chunk of a study: their size, and the request that downloads them."""

    chunk: int
    size: int
    request: SignedRequest


@dataclass(frozen=True, slots=True)
class _FoundFile:
    """A file of the store with its key."""

    key: FileKey
    record: FileRecord


class FileCatalog:
    """The files of all namespaces. Each method gets the uid of one namespace, and reads and writes only its files.

    Every method raises a StoreError if the store does not answer.
    """

    def __init__(
        self, access: StoreAccess, store: ObjectStore, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._access = access
        self._store = store
        self._clock = clock
        self._signed = SignedUploads()

    async def find_file(self, namespace_uid: str, address: str) -> FileRecord | None:
        """Return a file by its address; None if the namespace has none."""
        found = await self._find(namespace_uid, address)
        return None if found is None else found.record

    async def sign_download(self, namespace_uid: str, address: str) -> tuple[FileRecord, SignedRequest] | None:
        """Return a file and the request that downloads it; None if the namespace has no such file.

        A browser that follows the URL saves the content and does not show it: a page of HTML in the name of the store
        could read what the store keeps in the browser.
        """
        found = await self._find(namespace_uid, address)
        if found is None:
            return None
        await self._record_use(found, must=False)
        disposition = "attachment"
        if found.record.name:
            disposition += f"; filename*=UTF-8''{quote(found.record.name, safe='-_.~')}"
        query = {"response-content-disposition": disposition}
        return found.record, self._sign("GET", str(found.key), DOWNLOAD_SECONDS, query=query)

    async def list_files(self, namespace_uid: str, limit: int, token: str = "") -> tuple[list[FileRecord], str]:
        """Return some files of users, in the order of their addresses, and the token of the next page.

        Owner and name come from use records, so they are cut; a file of which no record was found has none.
        """
        page, following = await self._store.list_object_page(f"{namespace_uid}/{FileOrigin.USER}/", token, limit)
        files = [(key, item) for item in page if (key := FileKey.parse(item.key)) is not None]
        uses = await self._list_uses(files[0][0], files[-1][0]) if files else {}
        records = []
        for key, item in files:
            use = uses.get(key.address) or UseKey(key)
            records.append(FileRecord(key.address, item.size, item.modified, name=use.name, owner=use.owner))
        return records, following

    async def list_study_parts(self, keys: StudyKeys, limit: int, token: str = "") -> tuple[list[StudyPart], str]:
        """Return the rows of some chunks of a study, in the order of their tasks, and the token of the next page."""
        page, following = await self._store.list_object_page(keys.make_prefix(StudyObject.PART), token, limit)
        parts = [
            StudyPart(named[0], item.size, self._sign("GET", item.key, DOWNLOAD_SECONDS))
            for item in page
            if (named := parse_chunk(item.key)) is not None
        ]
        return parts, following

    async def offer_upload(
        self,
        namespace_uid: str,
        origin: FileOrigin,
        upload: Upload,
        *,
        upload_id: str = "",
        first_part: int = 1,
        quota: int | None = None,
    ) -> UploadOffer:
        """Return the requests with which a client sends a file.

        An upload in parts that the same owner has begun and not ended goes on: the offer has the parts that the store
        has already.

        Args:
            namespace_uid: the caller's namespace.
            origin: whether a user or a worker sends the file.
            upload: the file; it has no problem.
            upload_id: the upload in parts that the client continues; empty to begin, or to find an open one.
            first_part: the number of the first part that is wanted, from 1.
            quota: the number of bytes that the namespace may have; None for no limit.

        Raises:
            EncryptionError: the store does not encrypt objects, but must.
            QuotaError: the file does not fit into the quota.
            StoreError: the store does not answer.
        """
        if not upload_id and (found := await self._find(namespace_uid, upload.address)) is not None:
            await self._record_use(found, must=True)
            return UploadOffer(present=True)
        key = FileKey(namespace_uid, origin, upload.address)
        await self._admit(key, upload, quota)
        seconds = PARTS_SECONDS if is_address_of_parts(upload.address) else UPLOAD_SECONDS
        end = self._clock() + timedelta(seconds=seconds)
        expires = f"{end.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
        checksum = base64.b64encode(read_checksum(upload.address)).decode()
        if not is_address_of_parts(upload.address):
            headers = {
                **upload.make_headers(),
                "content-length": str(upload.size),
                "if-none-match": "*",
                "x-amz-checksum-sha256": checksum,
            }
            request = self._sign("PUT", str(key), UPLOAD_SECONDS, headers=headers, size=upload.size)
            return UploadOffer(False, requests=(request,), expires=expires)
        upload_id, etags = await self._open_upload(key, upload, upload_id)
        complete = self._sign(
            "POST",
            str(key),
            PARTS_SECONDS,
            query={"uploadId": upload_id},
            headers={"if-none-match": "*", "x-amz-checksum-sha256": f"{checksum}-{len(upload.parts)}"},
        )
        missing = [number for number in range(first_part, len(upload.parts) + 1) if number not in etags]
        requests = self._sign_parts(str(key), upload_id, upload, missing[:MAX_PARTS_PER_OFFER])
        return UploadOffer(False, upload_id, requests, etags, complete, expires)

    async def store_content(self, namespace_uid: str, upload: Upload, content: bytes, quota: int | None) -> None:
        """Store a small content that the platform itself has, unless the namespace has it.

        Raises:
            EncryptionError: the store does not encrypt objects, but must.
            QuotaError: the content does not fit into the quota.
        """
        if (found := await self._find(namespace_uid, upload.address)) is not None:
            return await self._record_use(found, must=True)
        key = FileKey(namespace_uid, FileOrigin.WORKER, upload.address)
        await self._admit(key, upload, quota)
        checksum = base64.b64encode(read_checksum(upload.address)).decode()
        headers = {**upload.make_headers(), "x-amz-checksum-sha256": checksum}
        await self._store.put_object(str(key), content, headers)
        return None

    async def admit_part(self, namespace_uid: str, invocation: str, size: int, quota: int) -> None:
        """Count the rows of a chunk of a study, which a worker is about to upload, in the quota.

        They count here until the next sweep, whose sums contain the rows of finished chunks.

        Raises:
            QuotaError: the rows do not fit into the quota.
        """
        usage = NamespaceUsage.from_bytes(await self._store.get_object(make_usage_key(namespace_uid)))
        self._signed.admit(namespace_uid, invocation, size, usage, quota)
        self._signed.note_record(namespace_uid, invocation, usage.counted if usage is not None else NEVER)

    async def delete_file(self, namespace_uid: str, address: str) -> bool:
        """Delete a file; return False if the namespace has none with the address.

        The use records of a file that one request uploads stay. As long as its URL is valid, the file can be uploaded
        again, so the sweep counts it.
        """
        found = [item for item in await self._find_all(namespace_uid, address) if item is not None]
        for item in found:
            await self._store.delete_object(str(item.key))
            if not is_address_of_parts(address):
                continue
            uses, _ = await self._store.list_object_page(make_use_prefix(item.key))
            for use in uses:
                await self._store.delete_object(use.key)
        return bool(found)

    async def _admit(self, key: FileKey, upload: Upload, quota: int | None) -> None:
        """Count an upload in the quota, and record it in the store; errors as for :meth:`offer_upload`."""
        if quota is not None:
            sums, (records, _) = await asyncio.gather(
                self._store.get_object(make_usage_key(key.namespace_uid)),
                self._store.list_object_page(make_use_prefix(key)),
            )
            usage = NamespaceUsage.from_bytes(sums)
            recorded_size = find_offered_size(key, records, usage.counted if usage else None)
            self._signed.admit(key.namespace_uid, upload.address, upload.size, usage, quota, recorded_size)
        recorded: datetime | None = None
        try:
            recorded = await self._store.put_object(str(UseKey(key, upload.owner, upload.name, upload.size)))
        finally:
            self._signed.note_record(key.namespace_uid, upload.address, recorded)

    async def _open_upload(self, key: FileKey, upload: Upload, upload_id: str) -> tuple[str, dict[int, str]]:
        """Return the id of an open upload in parts, and the ETags of the parts that the store has.

        A record names the open upload of an owner. Its time of change tells the sweep that the upload goes on.
        """
        record = make_open_key(key.namespace_uid, key.address, upload.owner)
        if upload_id:
            await self._store.put_object(record, upload_id.encode())
            return upload_id, {}
        known = ((await self._store.get_object(record)) or b"").decode(errors="replace")
        if known and (parts := await self._store.list_parts(str(key), known)) is not None:
            checksums = [base64.b64encode(part).decode() for part in upload.parts]
            await self._store.put_object(record, known.encode())
            return known, {
                part.number: part.etag
                for part in parts
                if part.number <= len(checksums) and part.checksum == checksums[part.number - 1]
            }
        metadata = {name.removeprefix("x-amz-meta-"): value for name, value in upload.make_metadata().items()}
        upload_id = await self._store.begin_upload(str(key), upload.media_type or DEFAULT_MEDIA_TYPE, metadata)
        await self._store.put_object(record, upload_id.encode())
        return upload_id, {}

    async def _find(self, namespace_uid: str, address: str) -> _FoundFile | None:
        return next((item for item in await self._find_all(namespace_uid, address) if item is not None), None)

    async def _find_all(self, namespace_uid: str, address: str) -> list[_FoundFile | None]:
        keys = [FileKey(namespace_uid, origin, address) for origin in FileOrigin]
        found = await asyncio.gather(*(self._store.find_object(str(key)) for key in keys))
        return [None if item is None else _read_found(key, item) for key, item in zip(keys, found, strict=True)]

    async def _record_use(self, found: _FoundFile, *, must: bool) -> None:
        """Record that a file is needed now, so that the sweep keeps it.

        The sweep first writes that it will delete a file, and then looks for a recent use. This method records the use,
        and then looks whether the file is about to be deleted. So at least one of the two sees the other.

        Args:
            found: the file.
            must: whether an error of the write is raised; a store that is full can still be read.

        Raises:
            StoreError: the sweep is about to delete the file.
        """
        use = UseKey(found.key, found.record.owner, found.record.name, found.record.size)
        now: datetime | None = None
        try:
            now = await self._store.put_object(str(use))
        except StoreError:
            if must:
                raise
        record = await self._store.find_object(make_deleting_key(found.key.namespace_uid, found.key.address))
        if record is not None and (now is None or record.modified > now - STALE_DELETING):
            raise StoreError("the file was unused for long and is about to be deleted: try again in some minutes")

    async def _list_uses(self, first: FileKey, last: FileKey) -> dict[str, UseKey]:
        """Return the newest use record of each file from the first to the last, by address."""
        newest: dict[str, tuple[datetime, UseKey]] = {}
        end, token = make_use_prefix(last) + "/", ""  # "/" follows "." in the order of keys
        prefix = make_use_prefix(FileKey(first.namespace_uid, first.origin, ""))
        for _ in range(MAX_USE_PAGES):
            page, token = await self._store.list_object_page(prefix, token, start_after=make_use_prefix(first))
            for item in page:
                if item.key > end:
                    break
                use = UseKey.parse(item.key)
                if use is not None and (use.file.address not in newest or newest[use.file.address][0] < item.modified):
                    newest[use.file.address] = (item.modified, use)
            if not token or page[-1].key > end:
                break
        return {address: use for address, (_, use) in newest.items()}

    def _sign_parts(
        self, key: str, upload_id: str, upload: Upload, numbers: Sequence[int]
    ) -> tuple[SignedRequest, ...]:
        places = list_parts(upload.size)
        return tuple(
            self._sign(
                "PUT",
                key,
                PARTS_SECONDS,
                query={"partNumber": str(number), "uploadId": upload_id},
                headers={
                    "content-length": str(places[number - 1][1]),
                    "x-amz-checksum-sha256": base64.b64encode(upload.parts[number - 1]).decode(),
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


def _read_found(key: FileKey, found: StoredObject) -> _FoundFile:
    metadata = found.metadata or {}
    record = FileRecord(
        address=key.address,
        size=found.size,
        modified=found.modified,
        media_type=found.media_type,
        name=unquote(metadata.get("name", "")),
        owner=unquote(metadata.get("owner", "")),
    )
    return _FoundFile(key, record)


@contextlib.asynccontextmanager
async def open_catalog(access: StoreAccess | None) -> AsyncIterator[FileCatalog | None]:
    """Open the catalog of the store for the time of the context; yield None if the platform has no store."""
    if access is None:
        yield None
        return
    async with ObjectStore(access) as store:
        yield FileCatalog(access, store)
