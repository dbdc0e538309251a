# SPDX-License-Identifier: Apache-2.0
"""The resource ``files``: a user offers a file for upload, finds it, lists all, or deletes one.

Answers contain signed URLs with which the client moves the bytes straight to and from the file store. A URL is valid
for hours, and for one request only; whoever may ``get`` a file gets a new one at any time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import ConfigDict, Field, ValidationError

from simyard.api.base import ApiModel, Json
from simyard.api.names import FILES, SUBRESOURCES_API_VERSION
from simyard.files.desk import Desk, FileRecord, Offer, Upload
from simyard.files.keys import Room
from simyard.files.store import StoreError
from simyard.kube.cache import ALL_NAMESPACES
from simyard.serving.calls import ResourceCall
from simyard.serving.identity import Identity
from simyard.serving.inputs import read_object, read_positive
from simyard.serving.objects import format_time
from simyard.serving.status import (
    Cause,
    StatusError,
    StatusReason,
    Subject,
    make_invalid_error,
    make_not_found_error,
    translate_api_error,
)
from simyard_adapter.digests import MAX_FILE_BYTES, MAX_PARTS
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import ApiError
from simyard_sites.kubernetes.resource import Resource

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
DEFAULT_LIMIT = 500
_DIGEST = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class FileSpec(ApiModel):
    """The description of a file that a user wants to upload."""

    model_config = ConfigDict(extra="forbid")

    address: Annotated[str, Field(pattern="^sha256(-64m)?:[0-9a-f]{64}$")]
    bytes: Annotated[int, Field(ge=0, le=MAX_FILE_BYTES)]
    parts: Annotated[list[_DIGEST], Field(default_factory=list, max_length=MAX_PARTS)]
    media_type: Annotated[str, Field(max_length=127, pattern=r"^([a-z0-9.+-]+/[a-z0-9.+-]+)?$")] = ""
    name: Annotated[str, Field(max_length=255)] = ""
    upload_id: Annotated[str, Field(max_length=1024, pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.~-]*)?$")] = ""
    first_part: Annotated[int, Field(ge=1, le=MAX_PARTS)] = 1


class Files:
    """The files of users, for users whose rights are already checked."""

    def __init__(
        self,
        client: KubeClient,
        desk: Desk | None,
        namespaces: Sequence[str] = ALL_NAMESPACES,
    ) -> None:
        self._client = client
        self._desk = desk
        self._namespaces = namespaces

    async def answer(
        self, call: ResourceCall, query: Mapping[str, str], body: bytes, content_type: str, identity: Identity
    ) -> tuple[int, Json]:
        """Answer a request for files, and return the status code and the object.

        Raises:
            StatusError: the platform has no file store, it does not answer, or the request is refused.
        """
        if self._desk is None:
            raise StatusError(
                StatusReason.NOT_FOUND,
                "this installation of Simyard has no file store: the platform team sets files.mode of the chart",
            )
        uid = await self._find_uid(call.namespace)
        try:
            match call.verb:
                case "list":
                    return 200, await self._list(self._desk, call, uid, query)
                case "create":
                    return await self._create(self._desk, call, uid, body, content_type, identity)
                case "delete":
                    return 200, await self._delete(self._desk, call, uid)
            return 200, await self._get(self._desk, call, uid)
        except StoreError as error:
            raise StatusError(StatusReason.SERVICE_UNAVAILABLE, str(error), retry_after_seconds=1) from error

    async def _list(self, desk: Desk, call: ResourceCall, uid: str, query: Mapping[str, str]) -> Json:
        limit = min(read_positive(query, "limit") or DEFAULT_LIMIT, DEFAULT_LIMIT)
        found, following = await desk.list_page(uid, limit, query.get("continue", ""))
        return {
            "apiVersion": SUBRESOURCES_API_VERSION,
            "kind": f"{FILES.kind}List",
            "metadata": {"continue": following} if following else {},
            "items": [_file(call.namespace, item) for item in found],
        }

    async def _create(
        self, desk: Desk, call: ResourceCall, uid: str, body: bytes, content_type: str, identity: Identity
    ) -> tuple[int, Json]:
        subject = Subject(FILES, "")
        given = read_object(body, content_type, "spec").get("spec")
        try:
            spec = FileSpec.model_validate(given)
        except ValidationError as error:
            causes = [
                Cause("FieldValueInvalid", item["msg"], ".".join(("spec", *map(str, item["loc"]))))
                for item in error.errors()
            ]
            raise make_invalid_error(subject, causes) from None
        parts = tuple(bytes.fromhex(part) for part in spec.parts)
        upload = Upload(spec.address, spec.bytes, parts, spec.media_type, spec.name, identity.user)
        if (problem := upload.find_problem()) is not None:
            raise make_invalid_error(subject, [Cause("FieldValueInvalid", problem[1], f"spec.{problem[0]}")])
        offer = await desk.offer_upload(uid, Room.IN, upload, upload_id=spec.upload_id, first_part=spec.first_part)
        described = {"bytes": spec.bytes, "mediaType": spec.media_type, "name": spec.name}
        answer = {**_head(call.namespace, spec.address), "spec": described, "status": _offer_status(offer)}
        return (200 if offer.present else 201), answer

    async def _get(self, desk: Desk, call: ResourceCall, uid: str) -> Json:
        signed = await desk.sign_download(uid, call.name)
        if signed is None:
            raise make_not_found_error(Subject(FILES, call.name))
        record, request = signed
        answer = _file(call.namespace, record)
        answer["status"]["download"] = request.to_json()
        return answer

    async def _delete(self, desk: Desk, call: ResourceCall, uid: str) -> Json:
        if not await desk.delete(uid, call.name):
            raise make_not_found_error(Subject(FILES, call.name))
        details = {"name": call.name, "group": FILES.group, "kind": FILES.plural}
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}

    async def _find_uid(self, namespace: str) -> str:
        """Return the uid of a namespace, which begins the keys of its files.

        It is read for each request: a remembered uid could be that of a namespace that was created again.
        """
        subject = Subject(NAMESPACES, namespace)
        if self._namespaces != ALL_NAMESPACES and namespace not in self._namespaces:
            message = f"this installation of Simyard does not watch the namespace {namespace} (watchNamespaces)"
            raise StatusError(StatusReason.FORBIDDEN, message, subject=subject)
        try:
            found = await self._client.get(NAMESPACES, namespace, "")
        except ApiError as error:
            raise translate_api_error(subject, error) from error
        return str(found["metadata"]["uid"])


def _head(namespace: str, address: str) -> Json:
    return {
        "apiVersion": SUBRESOURCES_API_VERSION,
        "kind": FILES.kind,
        "metadata": {"name": address, "namespace": namespace},
    }


def _file(namespace: str, record: FileRecord) -> Json:
    head = _head(namespace, record.address)
    head["metadata"]["creationTimestamp"] = format_time(record.modified)
    spec = {"bytes": record.size, "mediaType": record.media_type, "name": record.name}
    return {
        **head,
        "spec": {name: value for name, value in spec.items() if value != ""},
        "status": {"present": True, **({"owner": record.owner} if record.owner else {})},
    }


def _offer_status(offer: Offer) -> Json:
    if offer.present:
        return {"present": True}
    upload: Json = {"requests": [request.to_json() for request in offer.requests]}
    if offer.upload_id:
        upload["id"] = offer.upload_id
    if offer.complete is not None:
        upload["complete"] = offer.complete.to_json()
    if offer.expires is not None:
        upload["expiresTime"] = format_time(offer.expires)
    return {"present": False, "upload": upload}
