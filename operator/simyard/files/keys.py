# SPDX-License-Identifier: Apache-2.0
"""Keys of objects in the store. Pure.

All keys of a namespace begin with the namespace's uid, so a namespace that is created again under the same name sees
none of the former files.

==================================  ==================================================================================
key                                 content
==================================  ==================================================================================
``<namespace uid>/in/<address>``    a file that a user uploaded
``<namespace uid>/out/<address>``   a file that a worker made: a result, or the log of an action
``<namespace uid>/used/<address>``  an empty object; its time of change is the last time at which the file was needed
==================================  ==================================================================================
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from simyard_adapter.digests import is_address


class FileOrigin(enum.StrEnum):
    """The kind of sender of a file, which is a part of the file's key."""

    USER = "in"
    WORKER = "out"


@dataclass(frozen=True, slots=True)
class FileKey:
    """The key of one file."""

    namespace_uid: str
    origin: FileOrigin
    address: str

    def __str__(self) -> str:
        """Return the key as the store knows it."""
        return f"{self.namespace_uid}/{self.origin}/{self.address}"

    @classmethod
    def parse(cls, text: str) -> FileKey | None:
        """Return the parts of a key; None if Simyard makes no such key."""
        words = text.split("/")
        if len(words) != 3 or words[1] not in tuple(FileOrigin) or not words[0] or not is_address(words[2]):
            return None
        return cls(words[0], FileOrigin(words[1]), words[2])


def make_use_key(namespace_uid: str, address: str) -> str:
    """Return the key of the object whose time of change is the last use of a file."""
    return f"{namespace_uid}/used/{address}"
