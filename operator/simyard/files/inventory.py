# SPDX-License-Identifier: Apache-2.0
"""The files of a namespace with their last use, as the sweep sees them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from simyard.files.keys import FileKey, FileOrigin, UseKey, make_use_prefix
from simyard.files.store import ObjectStore, StoredObject
from simyard_adapter.digests import is_address_of_parts

UPLOAD_SECONDS = 3600
"""Life of the URL that uploads a whole file."""
ABANDONED = timedelta(days=1)
"""Age after which an upload that nobody continued is aborted."""


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file in the order of keys, or use records without a file.

    Attributes:
        key: the key of the file.
        size: the number of bytes; None if the store has no such file.
        last_used: the newest of the file's time of change and those of its use records.
        uses: the use records, oldest first.
    """

    key: FileKey
    size: int | None
    last_used: datetime
    uses: tuple[StoredObject, ...] = ()


def find_offered_size(file: FileKey, uses: Iterable[StoredObject], now: datetime | None) -> int:
    """Return the size of an upload that was offered and can still take place, by its use records; 0 if it cannot.

    Parts of an upload take space until they are aborted. Without ``now``, no record is too old.
    """
    life = ABANDONED if is_address_of_parts(file.address) else timedelta(seconds=UPLOAD_SECONDS)
    keys = (UseKey.parse(item.key) for item in uses if now is None or item.modified > now - life)
    return max((key.size for key in keys if key is not None), default=0)


async def list_used_files(store: ObjectStore, namespace_uid: str) -> AsyncIterator[ListedFile]:
    """Yield the files of a namespace.

    Files and use records come in the same order, so both lists are joined as they arrive: the memory that this needs
    does not grow with the number of files.
    """
    for origin in FileOrigin:
        files = store.list_objects(f"{namespace_uid}/{origin}/")
        records = store.list_objects(make_use_prefix(FileKey(namespace_uid, origin, "")))
        file, record = await anext(files, None), await anext(records, None)
        while file is not None or record is not None:
            key = None if file is None else FileKey.parse(file.key)
            use = None if record is None else UseKey.parse(record.key)
            if file is not None and key is None:  # not an object of the platform
                file = await anext(files, None)
                continue
            if record is not None and use is None:
                record = await anext(records, None)
                continue
            address = min(item.address for item in (key, use.file if use else None) if item is not None)
            uses = []
            while record is not None and use is not None and use.file.address == address:
                uses.append(record)
                record = await anext(records, None)
                use = None if record is None else UseKey.parse(record.key)
            uses.sort(key=lambda item: item.modified)
            present = file if file is not None and key is not None and key.address == address else None
            last_used = max(item.modified for item in (*uses, present) if item is not None)
            size = None if present is None else present.size
            yield ListedFile(FileKey(namespace_uid, origin, address), size, last_used, tuple(uses))
            if present is not None:
                file = await anext(files, None)
