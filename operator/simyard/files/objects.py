# SPDX-License-Identifier: Apache-2.0
"""The place of the objects of studies, as those who use it see it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from simyard.files.store import MAX_ANSWER_BYTES, StoredObject


class Objects(Protocol):
    """The place of the objects: an ObjectStore, or what stands for it where there is none."""

    async def create_object(self, key: str, content: bytes, metadata: Mapping[str, str] | None = None) -> bool:
        """Write an object unless there is one with the key; return whether it was written."""

    async def find_object(self, key: str) -> StoredObject | None:
        """Return an object, or None if there is none with the key."""

    async def get_object(self, key: str, max_bytes: int = MAX_ANSWER_BYTES) -> bytes | None:
        """Return the content of an object of at most ``max_bytes``, or None if there is none with the key."""

    def list_objects(self, prefix: str) -> AsyncIterator[StoredObject]:
        """Yield all objects whose keys begin with the prefix, in the order of their keys."""
