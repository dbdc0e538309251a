# SPDX-License-Identifier: Apache-2.0
"""Files that users and workers want to upload, as they describe them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from simyard_adapter.digests import is_address_of_parts, list_parts

DEFAULT_MEDIA_TYPE = "application/octet-stream"
MAX_METADATA_BYTES = 2048
"""The largest size of all names and values of an object's metadata (S3)."""
MAX_OWNER_BYTES = 512
"""The largest number of bytes of an owner in the metadata; a longer one is cut. Nobody chooses their own user name."""
_NAME, _OWNER = "x-amz-meta-name", "x-amz-meta-owner"
_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that somebody wants to upload.

    Attributes:
        address: the address of the file.
        size: the number of bytes.
        parts: the SHA-256 of each part; empty if one request sends the whole file.
        media_type: the media type of the content.
        name: the name of the file at the uploader.
        owner: the user, or the worker that made the file.
    """

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
        if any(len(part) != _DIGEST_BYTES for part in self.parts):
            return "parts", "must be SHA-256 digests of 64 hexadecimal digits"
        metadata = self.make_metadata()
        spare = MAX_METADATA_BYTES - sum(len(header) + len(value) for header, value in metadata.items())
        if spare < 0:
            limit = len(metadata[_NAME]) + spare
            return "name", f"has {limit - spare} bytes when it is percent-encoded, and may have {limit}: shorten it"
        return None

    def make_metadata(self) -> dict[str, str]:
        """Return the headers with which the store keeps name and owner, percent-encoded."""
        owner = quote(self.owner, safe="-_.:@")
        if len(owner) > MAX_OWNER_BYTES:  # a byte has up to three characters
            owner = quote(self.owner.encode()[: MAX_OWNER_BYTES // 3].decode(errors="ignore"), safe="-_.:@")
        return {_NAME: quote(self.name, safe="-_.()"), _OWNER: owner}

    def make_headers(self) -> dict[str, str]:
        """Return the headers with which the store keeps media type, name and owner."""
        return {"content-type": self.media_type or DEFAULT_MEDIA_TYPE, **self.make_metadata()}
