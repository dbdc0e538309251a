# SPDX-License-Identifier: Apache-2.0
"""The objects of one study as StudyRecords, for an installation without a file store.

A StudyRecord stands for an object of the store: it is created once, never changed, and deleted with its Study. Its name
is the end of the object's key, so the records of a study are in the order of the keys.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime

from simyard.api import names
from simyard.api.base import Json, Metadata
from simyard.api.study_record import StudyRecord
from simyard.files.keys import StudyKeys, StudyObject
from simyard.files.store import MAX_ANSWER_BYTES, StoredObject, StoreError
from simyard.files.studies import SUMMARY
from simyard_sites.kubernetes.client import KubeClient, build_path
from simyard_sites.kubernetes.errors import AlreadyExistsError, ApiError, NotFoundError


class StudyRecords:
    """The records of one study; a failed request raises a StoreError."""

    def __init__(self, client: KubeClient, keys: StudyKeys, study: Metadata) -> None:
        self._client = client
        self._keys = keys
        self._study = study

    async def create_object(self, key: str, content: bytes, metadata: Mapping[str, str] | None = None) -> bool:
        """Create the record of a key unless there is one; return whether it was created."""
        study = self._study
        owner = {"apiVersion": names.API_VERSION, "kind": names.STUDIES.kind, "name": study.name, "uid": study.uid}
        kind, _, _ = key.removeprefix(self._keys.prefix).partition("/")
        body = {
            "apiVersion": names.STUDY_RECORDS.api_version,
            "kind": names.STUDY_RECORDS.kind,
            "metadata": {
                "name": self._make_name(key),
                "namespace": study.namespace,
                "labels": {names.LABEL_STUDY: study.uid, names.LABEL_RECORD: kind},
                "ownerReferences": [owner],
            },
            "spec": {
                "study": study.name,
                "content": base64.b64encode(content).decode(),
                "summary": (metadata or {}).get(SUMMARY, ""),
            },
        }
        try:
            await self._client.create(names.STUDY_RECORDS, body, study.namespace)
        except AlreadyExistsError:
            return False
        except ApiError as error:
            raise StoreError(f"a record of the study cannot be created: {error}") from error
        return True

    async def find_object(self, key: str) -> StoredObject | None:
        """Return the record of a key without its content; None if there is none."""
        record = await self._find(key)
        return None if record is None else _describe(key, record)

    async def get_object(self, key: str, max_bytes: int = MAX_ANSWER_BYTES) -> bytes | None:
        """Return the content of the record of a key, which is always small; None if there is none."""
        record = await self._find(key)
        return None if record is None else base64.b64decode(record.spec.content)

    async def list_objects(self, prefix: str) -> AsyncIterator[StoredObject]:
        """Yield the records of all keys that begin with the prefix, which names a kind."""
        kind = prefix.removeprefix(self._keys.prefix).strip("/")
        try:
            found, _ = await self._client.list_all(
                names.STUDY_RECORDS, self._study.namespace, labels=make_selector(self._study.uid, kind)
            )
        except ApiError as error:
            raise StoreError(f"the records of the study cannot be listed: {error}") from error
        for raw in found:
            record = StudyRecord.model_validate(raw)
            yield _describe(f"{prefix}{record.metadata.name.partition(f'.{kind}.')[2]}", record)

    async def has_any(self) -> bool:
        """Return whether the study has records."""
        try:
            query = {"limit": "1", "labelSelector": f"{names.LABEL_STUDY}={self._study.uid}"}
            path = build_path(names.STUDY_RECORDS, self._study.namespace)
            page = await self._client.request("GET", path, query=query, resource=names.STUDY_RECORDS, verb="list")
        except ApiError as error:
            raise StoreError(f"the records of the study cannot be listed: {error}") from error
        return bool(page["items"])

    async def _find(self, key: str) -> StudyRecord | None:
        try:
            raw = await self._client.get(names.STUDY_RECORDS, self._make_name(key), self._study.namespace)
        except NotFoundError:
            return None
        except ApiError as error:
            raise StoreError(f"a record of the study cannot be read: {error}") from error
        return StudyRecord.model_validate(raw)

    def _make_name(self, key: str) -> str:
        return f"{self._study.uid}.{key.removeprefix(self._keys.prefix).replace('/', '.')}"


def make_selector(study_uid: str, kind: str) -> str:
    """Return the label selector of the records of a study of one kind."""
    return f"{names.LABEL_STUDY}={study_uid},{names.LABEL_RECORD}={kind}"


async def list_part_page(
    client: KubeClient, namespace: str, study_uid: str, limit: int, token: str = ""
) -> tuple[list[tuple[int, str]], str]:
    """Return the chunk and the rows (base64) of some parts of a study, in their order, and the token of the next page.

    Raises:
        ApiError: the API server refused.
    """
    query = {"limit": str(limit), "labelSelector": make_selector(study_uid, StudyObject.PART)}
    if token:
        query["continue"] = token
    path = build_path(names.STUDY_RECORDS, namespace)
    page: Json = await client.request("GET", path, query=query, resource=names.STUDY_RECORDS, verb="list")
    parts = [(int(item["metadata"]["name"].rpartition(".")[2]), str(item["spec"]["content"])) for item in page["items"]]
    return parts, str(page["metadata"].get("continue") or "")


def _describe(key: str, record: StudyRecord) -> StoredObject:
    size, created = len(base64.b64decode(record.spec.content)), record.metadata.creation_timestamp or datetime.now(UTC)
    return StoredObject(key, size, created, metadata={SUMMARY: record.spec.summary})
