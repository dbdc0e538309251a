# SPDX-License-Identifier: Apache-2.0
"""Kind File of the aggregated API: a file of a namespace in the file store."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field, PlainSerializer

from simyard.api.base import ApiModel, Time
from simyard.api.names import FILES, SUBRESOURCES_API_VERSION
from simyard_adapter.digests import MAX_FILE_BYTES, MAX_PARTS
from simyard_adapter.transfers import SignedRequest
from simyard_adapter.uploads import UploadOffer

_Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


_Signed = Annotated[SignedRequest, PlainSerializer(SignedRequest.to_json)]
_Offer = Annotated[UploadOffer, PlainSerializer(UploadOffer.to_json)]


class FileSpec(ApiModel):
    """The description of a file."""

    address: Annotated[str | None, Field(description="Address of the file; the name of the object repeats it.")] = None
    bytes: Annotated[int, Field(description="Size of the file.")]
    media_type: Annotated[str | None, Field(description="Media type, as the uploader gave it.")] = None
    name: Annotated[str | None, Field(description="Name of the file at the uploader.")] = None


class FileUploadSpec(ApiModel):
    """The description of a file that a user wants to upload."""

    model_config = ConfigDict(extra="forbid")

    address: Annotated[str, Field(pattern="^sha256(-64m)?:[0-9a-f]{64}$", description="Address of the file.")]
    bytes: Annotated[int, Field(ge=0, le=MAX_FILE_BYTES, description="Size of the file.")]
    parts: Annotated[
        list[_Digest],
        Field(max_length=MAX_PARTS, description="SHA-256 of each part of 64 MiB, for a file above 64 MiB."),
    ] = []
    media_type: Annotated[
        str, Field(max_length=127, pattern=r"^([a-z0-9.+-]+/[a-z0-9.+-]+)?$", description="Media type of the file.")
    ] = ""
    name: Annotated[str, Field(max_length=255, description="Name of the file at the uploader.")] = ""
    upload_id: Annotated[
        str,
        Field(
            max_length=1024,
            pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.~-]*)?$",
            description="Id of the upload in parts that goes on.",
        ),
    ] = ""
    first_part: Annotated[
        int, Field(ge=1, le=MAX_PARTS, description="Number of the first part for which requests are wanted.")
    ] = 1


class FileStatus(ApiModel):
    """State of a file in the file store."""

    present: Annotated[bool, Field(description="Whether the store has the file.")]
    owner: Annotated[str | None, Field(description="User who uploaded the file, or the worker that made it.")] = None
    download: Annotated[_Signed | None, Field(description="Request that downloads the file.")] = None


class FileMetadata(ApiModel):
    """The metadata of a file."""

    name: str
    namespace: str
    creation_timestamp: Time | None = None


class File(ApiModel):
    """A file of a namespace in the file store."""

    api_version: str = SUBRESOURCES_API_VERSION
    kind: str = FILES.kind
    metadata: FileMetadata
    spec: FileSpec
    status: FileStatus | _Offer


class FileListMetadata(ApiModel):
    """The metadata of a page of files."""

    continue_: Annotated[str | None, Field(alias="continue")] = None


class FileList(ApiModel):
    """A page of the files of a namespace."""

    api_version: str = SUBRESOURCES_API_VERSION
    kind: str = f"{FILES.kind}List"
    metadata: FileListMetadata = FileListMetadata()
    items: list[File]
