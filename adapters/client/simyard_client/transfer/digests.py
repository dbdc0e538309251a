# SPDX-License-Identifier: Apache-2.0
# Copied from adapters/service/simyard_adapter by hack/client_copies.py (make generate). Do not edit.
"""The address of a file: a digest of its content.

A file of at most :data:`PART_BYTES` has the address ``sha256:HEX``, the SHA-256 of its content. A larger file is
uploaded in parts of :data:`PART_BYTES`. Its address ``sha256-64m:HEX`` is the SHA-256 of the parts' binary digests, one
after the other. An S3 server checks exactly these two values (``x-amz-checksum-sha256`` of PutObject, and the composite
checksum of CompleteMultipartUpload), so the store itself refuses content that does not match its address.
"""

from __future__ import annotations

import hashlib
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Callable, Iterator

PART_BYTES = 64 * 1024 * 1024
MAX_PARTS = 10_000
"""The largest number of parts of an upload to S3."""
MAX_FILE_BYTES = PART_BYTES * MAX_PARTS
BLOCK_BYTES = 512 * 1024
MAX_PARALLEL_PARTS = 2
"""Parts that are read or sent at the same time; more did not make an upload faster on one machine."""
_WHOLE, _PARTS = "sha256", "sha256-64m"
_ADDRESS = re.compile(r"(sha256|sha256-64m):([0-9a-f]{64})")


@dataclass(frozen=True)
class FileDigest:
    """The digest of one content.

    Attributes:
        address: ``sha256:HEX`` or ``sha256-64m:HEX``.
        size: The number of bytes.
        parts: The SHA-256 of each part; a single one if the address is the digest of the whole content.
    """

    address: str
    size: int
    parts: tuple[bytes, ...]

    @property
    def in_parts(self) -> bool:
        """True if the content is uploaded in several parts."""
        return len(self.parts) > 1


def is_address(text: str) -> bool:
    """Return True if the text is the address of a file."""
    return _ADDRESS.fullmatch(text) is not None


def read_checksum(address: str) -> bytes:
    """Return the 32 bytes of the SHA-256 in an address.

    Raises:
        ValueError: The text is no address of a file.
    """
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise ValueError(f"{address[:100]!r} is no address of a file: expected sha256: or sha256-64m: and 64 digits")
    return bytes.fromhex(found[2])


def is_address_of_parts(address: str) -> bool:
    """Return True if the address is the digest of the digests of parts."""
    return address.startswith(_PARTS + ":")


def combine_digests(parts: tuple[bytes, ...], size: int) -> FileDigest:
    """Return the digest of a content whose parts have these digests."""
    if len(parts) == 1:
        return FileDigest(f"{_WHOLE}:{parts[0].hex()}", size, parts)
    return FileDigest(f"{_PARTS}:{hashlib.sha256(b''.join(parts)).hexdigest()}", size, parts)


class Digester:
    """The digest of a content that arrives in blocks."""

    def __init__(self) -> None:
        """Begin with no content."""
        self._parts: list[bytes] = []
        self._part = hashlib.sha256()
        self._in_part = 0
        self._size = 0

    def update(self, block: bytes) -> None:
        """Add a block of the content."""
        view = memoryview(block)
        self._size += len(view)
        while view:
            if self._in_part == PART_BYTES:
                self._parts.append(self._part.digest())
                self._part, self._in_part = hashlib.sha256(), 0
            taken = view[: PART_BYTES - self._in_part]
            self._part.update(taken)
            self._in_part += len(taken)
            view = view[len(taken) :]

    def finish(self) -> FileDigest:
        """Return the digest of all blocks so far."""
        return combine_digests((*self._parts, self._part.digest()), self._size)


def digest_file(path: Path, on_bytes: Callable[[int], None] = lambda _: None) -> FileDigest:
    """Return the digest of a file on disk, of several parts at a time.

    ``on_bytes`` is called with the size of each block, from several threads; an exception of it ends the work.
    """

    def digest_part(place: tuple[int, int]) -> bytes:
        offset, size = place
        digest = hashlib.sha256()
        with path.open("rb") as file:
            file.seek(offset)
            for block in read_blocks(file, size):
                digest.update(block)
                on_bytes(len(block))
        return digest.digest()

    size = path.stat().st_size
    with ThreadPoolExecutor(MAX_PARALLEL_PARTS) as executor:
        return combine_digests(tuple(executor.map(digest_part, list_parts(size))), size)


def read_blocks(file: BinaryIO, size: int = MAX_FILE_BYTES) -> Iterator[bytes]:
    """Yield the next ``size`` bytes of a file in blocks."""
    while size > 0 and (block := file.read(min(BLOCK_BYTES, size))):
        size -= len(block)
        yield block


def list_parts(size: int) -> list[tuple[int, int]]:
    """Return the offset and the size of each part of a content; an empty content has one empty part."""
    return [(offset, min(PART_BYTES, size - offset)) for offset in range(0, max(size, 1), PART_BYTES)]
