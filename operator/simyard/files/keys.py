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


class Room(enum.StrEnum):
    """The part of a namespace's files that a key belongs to."""

    IN = "in"
    OUT = "out"
    USED = "used"


@dataclass(frozen=True, slots=True)
class FileKey:
    """The key of one object."""

    namespace_uid: str
    room: Room
    address: str

    def __str__(self) -> str:
        """Return the key as the store knows it."""
        return f"{self.namespace_uid}/{self.room}/{self.address}"

    @classmethod
    def parse(cls, text: str) -> FileKey | None:
        """Return the parts of a key; None if Simyard makes no such key."""
        words = text.split("/")
        if len(words) != 3 or words[1] not in tuple(Room) or not words[0] or not is_address(words[2]):
            return None
        return cls(words[0], Room(words[1]), words[2])
