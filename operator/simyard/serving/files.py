# SPDX-License-Identifier: Apache-2.0
"""Serves the resource ``files``: a user asks for an upload, gets a file, lists all files, or deletes one.

Answers contain signed URLs, with which the client sends bytes directly to the file store or receives them from there. A
URL is valid for hours, and for one request only; a user who may ``get`` a file can have a new URL at any time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import ValidationError

from simyard.api.base import Json
from simyard.api.files import (
    File,
    FileList,
    FileListMetadata,
    FileMetadata,
    FileSpec,
    FileStatus,
    FileUploadSpec,
)
from simyard.api.names import FILES, NAMESPACES
from simyard.files.catalog import FileCatalog, FileRecord
from simyard.files.keys import FileOrigin
from simyard.files.namespaces import FileNamespace, read_namespace
from simyard.files.quotas import QuotaError
from simyard.files.store import StoreError
from simyard.files.uploads import Upload
from simyard.kube.cache import ALL_NAMESPACES
from simyard.serving.calls import ResourceCall
from simyard.serving.identity import Identity
from simyard.serving.inputs import read_count, read_object
from simyard.serving.status import (
    Cause,
    StatusError,
    StatusReason,
    Subject,
    make_invalid_error,
    make_not_found_error,
    translate_api_error,
)
from simyard_adapter.transfers import SignedRequest
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import ApiError

DEFAULT_LIMIT = 500
MAX_CAUSES = 16
"""Maximum number of causes in an answer: a list of 10,000 wrong digests would have as many causes."""


class Files:
    """The server of files, for users whose rights are already checked."""

    def __init__(
        self,
        client: KubeClient,
        catalog: FileCatalog | None,
        namespaces: Sequence[str] = ALL_NAMESPACES,
        quota: int | None = None,
    ) -> None:
        self._client = client
        self._catalog = catalog
        self._namespaces = namespaces
        self._quota = quota

    async def answer(
        self, call: ResourceCall, query: Mapping[str, str], body: bytes, content_type: str, identity: Identity
    ) -> tuple[int, Json]:
        """Answer a request for files, and return the status code and the object.

        Raises:
            StatusError: the platform has no file store, it does not answer, or the request is refused.
        """
        if self._catalog is None:
            raise StatusError(
                StatusReason.NOT_FOUND,
                "this installation of Simyard has no file store: the platform team sets files.mode of the chart",
            )
        namespace = await self.find_namespace(call.namespace)
        try:
            match call.verb:
                case "list":
                    return 200, await self._list(self._catalog, namespace, query)
                case "create":
                    return await self._create(self._catalog, namespace, body, content_type, identity)
                case "delete":
                    return 200, await self._delete(self._catalog, namespace, call.name)
            return 200, await self._get(self._catalog, namespace, call.name)
        except StoreError as error:
            retry = 1 if error.retryable else 0
            raise StatusError(StatusReason.SERVICE_UNAVAILABLE, str(error), retry_after_seconds=retry) from error

    async def _list(self, catalog: FileCatalog, namespace: FileNamespace, query: Mapping[str, str]) -> Json:
        limit = min(read_count(query, "limit") or DEFAULT_LIMIT, DEFAULT_LIMIT)  # limit=0 means no limit (Kubernetes)
        found, following = await catalog.list_files(namespace.uid, limit, query.get("continue", ""))
        metadata = FileListMetadata(continue_=following or None)
        return FileList(metadata=metadata, items=[_make_file(namespace.name, item) for item in found]).to_json()

    async def _create(
        self, catalog: FileCatalog, namespace: FileNamespace, body: bytes, content_type: str, identity: Identity
    ) -> tuple[int, Json]:
        subject = Subject(FILES, "")
        given = read_object(body, content_type, "spec").get("spec")
        try:
            spec = FileUploadSpec.model_validate(given)
        except ValidationError as error:
            raise make_invalid_error(subject, _list_causes(error)) from None
        parts = tuple(bytes.fromhex(part) for part in spec.parts)
        upload = Upload(spec.address, spec.bytes, parts, spec.media_type, spec.name, identity.user)
        if (problem := upload.find_problem()) is not None:
            raise make_invalid_error(subject, [Cause("FieldValueInvalid", problem[1], f"spec.{problem[0]}")])
        try:
            offer = await catalog.offer_upload(
                namespace.uid,
                FileOrigin.USER,
                upload,
                upload_id=spec.upload_id,
                first_part=spec.first_part,
                quota=namespace.quota,
            )
        except QuotaError as error:
            subject = Subject(FILES, upload.address)
            raise StatusError(StatusReason.FORBIDDEN, namespace.describe_excess(error), subject=subject) from None
        answer = File(
            metadata=FileMetadata(name=spec.address, namespace=namespace.name),
            spec=FileSpec(bytes=spec.bytes, media_type=spec.media_type or None, name=spec.name or None),
            status=offer,
        )
        return (200 if offer.present else 201), answer.to_json()

    async def _get(self, catalog: FileCatalog, namespace: FileNamespace, address: str) -> Json:
        signed = await catalog.sign_download(namespace.uid, address)
        if signed is None:
            raise make_not_found_error(Subject(FILES, address))
        record, request = signed
        return _make_file(namespace.name, record, request).to_json()

    async def _delete(self, catalog: FileCatalog, namespace: FileNamespace, address: str) -> Json:
        if not await catalog.delete_file(namespace.uid, address):
            raise make_not_found_error(Subject(FILES, address))
        details = {"name": address, "group": FILES.group, "kind": FILES.plural}
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}

    async def find_namespace(self, name: str) -> FileNamespace:
        """Return a namespace with its uid.

        The method reads the namespace for each request: a cached uid could belong to a deleted namespace of the same
        name.

        Raises:
            StatusError: the namespace does not exist, or is not watched.
        """
        subject = Subject(NAMESPACES, name)
        if self._namespaces != ALL_NAMESPACES and name not in self._namespaces:
            message = f"this installation of Simyard does not watch the namespace {name} (watchNamespaces)"
            raise StatusError(StatusReason.FORBIDDEN, message, subject=subject)
        try:
            found = await self._client.get(NAMESPACES, name, "")
        except ApiError as error:
            raise translate_api_error(subject, error) from error
        try:
            return read_namespace(found, self._quota)
        except ValueError as error:
            raise StatusError(StatusReason.FORBIDDEN, str(error), subject=subject) from None


def _make_file(namespace: str, record: FileRecord, download: SignedRequest | None = None) -> File:
    return File(
        metadata=FileMetadata(
            name=record.address, namespace=namespace, creation_timestamp=record.modified.replace(microsecond=0)
        ),
        spec=FileSpec(bytes=record.size, media_type=record.media_type or None, name=record.name or None),
        status=FileStatus(present=True, owner=record.owner or None, download=download),
    )


def _list_causes(error: ValidationError) -> list[Cause]:
    errors = error.errors(include_url=False, include_input=False)
    causes = [
        Cause("FieldValueInvalid", item["msg"], ".".join(("spec", *map(str, item["loc"]))))
        for item in errors[:MAX_CAUSES]
    ]
    if len(errors) > MAX_CAUSES:
        causes.append(Cause("FieldValueInvalid", f"{len(errors) - MAX_CAUSES} further errors are not listed", "spec"))
    return causes
