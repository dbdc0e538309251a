# SPDX-License-Identifier: Apache-2.0
"""The objects of studies in the store: the rows of chunks, and the records about their assignments.

The rows are the truth about a study. Each object is created once and never replaced: of several workers that upload the
rows of one chunk, the first wins. An assignment is recorded before the worker receives the chunk, so an operator that
starts again knows which worker may have it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import orjson

from simyard.files.access import StoreAccess
from simyard.files.generations import GenerationStore
from simyard.files.keys import StudyKeys, StudyObject, parse_chunk
from simyard.files.objects import Objects
from simyard.files.signature import sign_url
from simyard.files.store import ObjectStore, StoreError
from simyard.guest.chunks import ChunkSummary, read_summary
from simyard.guest.reading import RefusedError
from simyard_adapter.digests import read_checksum
from simyard_adapter.transfers import SignedRequest
from simyard_adapter.uploads import UploadOffer

SIGNED_SECONDS = 3600
MEDIA_TYPE = "text/csv"
SUMMARY = "summary"
"""Name of the metadata of rows that has their summary."""


@dataclass(frozen=True, slots=True)
class StoredPart:
    """The rows of a chunk: their size in bytes, and their summary."""

    size: int
    summary: ChunkSummary


@dataclass(slots=True)
class StoredStudy:
    """The objects of a study.

    Attributes:
        parts: the size of the rows of each finished chunk.
        attempts: the number of assignments of each chunk.
        begun: chunk and assignment of the records of begins.
    """

    parts: dict[int, int] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    begun: set[tuple[int, int]] = field(default_factory=set)


class StudyStore:
    """The objects of studies. Every method raises a StoreError if the store does not answer.

    Without an ``access``, workers cannot upload rows with signed requests (:meth:`sign_part`).

    Attributes:
        generations: the generations of optimisations.
    """

    def __init__(
        self,
        access: StoreAccess | None,
        store: Objects,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.generations = GenerationStore(store)
        self._access = access
        self._store = store
        self._clock = clock

    async def read_study(self, keys: StudyKeys) -> StoredStudy:
        """Return which objects of a study exist."""
        found = StoredStudy()
        async for item in self._store.list_objects(keys.make_prefix(StudyObject.PART)):
            if (named := parse_chunk(item.key)) is not None:
                found.parts[named[0]] = item.size
        async for item in self._store.list_objects(keys.make_prefix(StudyObject.ASSIGNED)):
            if (named := parse_chunk(item.key)) is not None:
                found.attempts[named[0]] = max(named[1], found.attempts.get(named[0], 0))
        async for item in self._store.list_objects(keys.make_prefix(StudyObject.BEGUN)):
            if (named := parse_chunk(item.key)) is not None:
                found.begun.add(named)
        return found

    async def find_part(self, keys: StudyKeys, chunk: int) -> StoredPart | None:
        """Return what the store says about the rows of a chunk; None if there are none.

        Raises:
            StoreError: the rows have no readable summary.
        """
        found = await self._store.find_object(keys.make_part(chunk))
        if found is None:
            return None
        try:
            text = (found.metadata or {}).get(SUMMARY, "")
            return StoredPart(found.size, read_summary(orjson.loads(base64.urlsafe_b64decode(text))))
        except (RefusedError, binascii.Error, orjson.JSONDecodeError) as error:
            raise StoreError(f"the rows of the chunk {chunk} have no readable summary: {error}") from None

    async def create_part(self, keys: StudyKeys, chunk: int, content: bytes, summary: ChunkSummary) -> bool:
        """Store the rows of a chunk unless there are some; return whether they were stored."""
        return await self._store.create_object(keys.make_part(chunk), content, {SUMMARY: _encode(summary)})

    @property
    def takes_uploads(self) -> bool:
        """True if workers send rows to the store; otherwise they send them to the platform."""
        return self._access is not None

    def sign_part(self, keys: StudyKeys, chunk: int, address: str, size: int, summary: ChunkSummary) -> UploadOffer:
        """Return the request with which a worker stores the rows of a chunk unless there are some."""
        assert self._access is not None, "only a file store has signed requests"
        key = keys.make_part(chunk)
        headers = {
            "content-length": str(size),
            "content-type": MEDIA_TYPE,
            "if-none-match": "*",
            "x-amz-checksum-sha256": base64.b64encode(read_checksum(address)).decode(),
            f"x-amz-meta-{SUMMARY}": _encode(summary),
        }
        url = sign_url(
            self._access.credentials,
            "PUT",
            self._access.url_of(key),
            now=self._clock(),
            expires_seconds=SIGNED_SECONDS,
            headers=headers,
        )
        return UploadOffer(False, requests=(SignedRequest("PUT", url, headers, 0, size),))

    async def record_assignment(self, keys: StudyKeys, chunk: int, attempt: int, worker_uid: str) -> str:
        """Record to which worker a chunk is assigned; return the worker that the store knows.

        It is another worker if another operator has recorded the same assignment before.
        """
        key = keys.make_attempt(StudyObject.ASSIGNED, chunk, attempt)
        if await self._store.create_object(key, worker_uid.encode()):
            return worker_uid
        return await self.read_assignment(keys, chunk, attempt)

    async def read_assignment(self, keys: StudyKeys, chunk: int, attempt: int) -> str:
        """Return the uid of the worker to which a chunk was assigned; empty if it is not recorded."""
        return ((await self._store.get_object(keys.make_attempt(StudyObject.ASSIGNED, chunk, attempt))) or b"").decode()

    async def record_begin(self, keys: StudyKeys, chunk: int, attempt: int) -> None:
        """Record that a worker has begun tasks that must not run twice."""
        await self._store.create_object(keys.make_attempt(StudyObject.BEGUN, chunk, attempt), b"")


def _encode(summary: ChunkSummary) -> str:
    return base64.urlsafe_b64encode(summary.to_bytes()).decode()


async def delete_objects(store: ObjectStore, keys: StudyKeys) -> None:
    """Delete all objects of a study in the file store.

    Raises:
        StoreError: the store does not answer.
    """
    while True:  # the first page again and again, because the marker of the next one is deleted
        page, _ = await store.list_object_page(keys.prefix)
        if not page:
            return
        await asyncio.gather(*(store.delete_object(item.key) for item in page))
