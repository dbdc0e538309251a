# SPDX-License-Identifier: Apache-2.0
"""The files that only rows of studies name.

The rows of a study are in the store and not in the Study, so the sweep reads them when files of the namespace are old
enough to be deleted. It reads only the rows of studies whose action returns files. The sweep then records a use of each
file that it found, so that the next passes need not look for the file again.

Workers write the rows, so their size is not trusted. If the rows of a namespace exceed :data:`MAX_SCANNED_BYTES`, or a
part of them cannot be read, all files count as named: nothing that a study needs is deleted, and other namespaces do
not wait long.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from simyard.files.keys import StudyKeys, StudyObject
from simyard.files.store import MAX_TABLE_BYTES, ObjectStore, StoreError

log = logging.getLogger(__name__)

MAX_SCANNED_BYTES = 2**30
"""The largest size of the rows of a namespace, unpacked, that one pass reads."""
_PART_BYTES = 64 * 1024
"""The size as which a smaller part counts: a request takes time as well."""
_INPUT_BYTES, _BLOCK_BYTES = 64 * 1024, 2**20
_ADDRESS = re.compile(rb"sha256(?:-64m)?:[0-9a-f]{64}")
_OVERLAP_BYTES = 80
"""A number above the length of an address, which may lie in several blocks."""
_GZIP = 16 + zlib.MAX_WBITS


@dataclass(frozen=True, slots=True)
class StudyRows:
    """The stored rows of a study: their size in bytes, and whether they may name files."""

    size: int
    name_files: bool = False


async def find_files_of_studies(
    store: ObjectStore, studies: Iterable[StudyKeys], wanted: set[str], max_bytes: int = MAX_SCANNED_BYTES
) -> set[str]:
    """Return those of the wanted addresses that rows of the studies name; all if rows are too many or unreadable."""
    found: set[str] = set()
    left = max_bytes
    for keys in studies:
        async for part in store.list_objects(keys.make_prefix(StudyObject.PART)):
            if found == wanted:
                return found
            try:
                content = await store.get_object(part.key, MAX_TABLE_BYTES)
            except StoreError as error:
                log.warning("files that %s may name are kept, because it cannot be read: %s", part.key, error)
                return wanted
            named, size = await asyncio.to_thread(_scan, content or b"", left, wanted)
            found |= named
            left -= max(size, _PART_BYTES)
            if left <= 0:
                return wanted
    return found


def _scan(packed: bytes, max_bytes: int, wanted: set[str]) -> tuple[set[str], int]:
    """Return the wanted addresses in a compressed table, and the number of bytes that were unpacked."""
    found: set[str] = set()
    size, end = 0, b""
    for block in _unpack(packed):
        size += len(block)
        found.update(wanted.intersection(match.decode() for match in _ADDRESS.findall(end + block)))
        end = (end + block)[-_OVERLAP_BYTES:]
        if size >= max_bytes:
            break
    return found, size


def _unpack(packed: bytes) -> Iterator[bytes]:
    """Yield the content in blocks, up to the place where it is damaged."""
    unpacker = zlib.decompressobj(_GZIP)
    with contextlib.suppress(zlib.error):
        for start in range(0, len(packed), _INPUT_BYTES):
            rest = packed[start : start + _INPUT_BYTES]
            while rest and not unpacker.eof:
                yield unpacker.decompress(rest, _BLOCK_BYTES)
                rest = unpacker.unconsumed_tail
