# SPDX-License-Identifier: Apache-2.0
"""Keys of objects in the store. Pure.

All keys of a namespace begin with the namespace's uid, so a namespace that is created again under the same name sees
none of the former files.

========================================  ============================================================================
key, below ``<namespace uid>/``           content
========================================  ============================================================================
``in/<address>``                          a file that a user uploaded
``out/<address>``                         a file that a worker made: a result, or the log of an action
``used/<origin>/<address>.<...>``         empty: a use record. Its time of change is the last time at which the file was
                                          offered or downloaded; the rest of its key has owner, name and size
``open/<address>.<owner>``                the id of an open upload in parts, with a hash of the owner
``deleting/<address>``                    empty: the sweep is about to delete the file
``studies/<uid>/parts/<chunk>``           the rows of a chunk of a study: compressed CSV, with its summary as metadata
``studies/<uid>/assigned/<chunk>.<n>``    the uid of the worker that got the chunk in its n-th assignment
``studies/<uid>/begun/<chunk>.<n>``       empty: this worker has begun tasks that must not run twice
``studies/<uid>/generations/<number>``    the points of a generation of an optimisation, with the results of former ones
``orphaned``                              empty: the sweep has not found the namespace since the object's time of change
``usage``                                 the number and size of the namespace's files, from the last sweep
========================================  ============================================================================

A list of objects has only keys, sizes and times. A use record therefore keeps owner and name in its key: a page of
files is then two lists, and not a request for each file. The records have the order of the files, because both begin
with the address, so two lists can be joined as they arrive.
"""

from __future__ import annotations

import base64
import binascii
import enum
import hashlib
from dataclasses import dataclass
from datetime import timedelta

from simyard_adapter.digests import is_address

MAX_TEXT_BYTES = 60
"""The largest number of bytes of an owner or a name in a use record.

A server that keeps objects as files (versitygw) has at most 255 bytes for the last word of a key.
"""
_CUT = "…"
STALE_DELETING = timedelta(minutes=10)
"""Age after which the record of a deletion is left over from a sweep that ended in the middle."""


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
        """Return the parts of a key; None if it is not the key of a file."""
        words = text.split("/")
        if len(words) != 3 or words[1] not in tuple(FileOrigin) or not words[0] or not is_address(words[2]):
            return None
        return cls(words[0], FileOrigin(words[1]), words[2])


@dataclass(frozen=True, slots=True)
class UseKey:
    """The key of the use record of a file. Owner and name are cut to :data:`MAX_TEXT_BYTES`; ``size`` is in bytes."""

    file: FileKey
    owner: str = ""
    name: str = ""
    size: int = 0

    def __str__(self) -> str:
        """Return the key as the store knows it."""
        return f"{make_use_prefix(self.file)}.{_encode(self.owner)}.{_encode(self.name)}.{self.size:x}"

    @classmethod
    def parse(cls, text: str) -> UseKey | None:
        """Return the parts of a key; None if it is not the key of a use record."""
        words = text.split("/")
        if len(words) != 4 or words[1] != "used":
            return None
        address, *texts = words[3].split(".")
        file = FileKey.parse(f"{words[0]}/{words[2]}/{address}")
        try:
            owner, name, size = texts
            use = (_decode(owner), _decode(name), int(size, 16))
        except ValueError:
            return None
        return None if file is None else cls(file, *use)


@dataclass(frozen=True, slots=True)
class StudyKeys:
    """The keys of one study."""

    namespace_uid: str
    study_uid: str

    @property
    def prefix(self) -> str:
        """The beginning of all keys."""
        return f"{make_studies_prefix(self.namespace_uid)}{self.study_uid}/"

    def make_prefix(self, kind: StudyObject) -> str:
        """Return the beginning of all keys of one kind."""
        return f"{self.prefix}{kind}/"

    def make_part(self, chunk: int) -> str:
        """Return the key of the rows of a chunk."""
        return f"{self.make_prefix(StudyObject.PART)}{chunk:05d}"

    def make_generation(self, number: int) -> str:
        """Return the key of a generation of an optimisation."""
        return f"{self.make_prefix(StudyObject.GENERATION)}{number:05d}"

    def make_attempt(self, kind: StudyObject, chunk: int, attempt: int) -> str:
        """Return the key of a record about an assignment of a chunk."""
        return f"{self.make_prefix(kind)}{chunk:05d}.{attempt}"


class StudyObject(enum.StrEnum):
    """The kind of an object of a study, which is a part of its key."""

    PART = "parts"
    ASSIGNED = "assigned"
    BEGUN = "begun"
    GENERATION = "generations"


def parse_chunk(key: str) -> tuple[int, int] | None:
    """Return the chunk and the attempt at the end of the key of an object of a study; the attempt of a part is 0."""
    chunk, _, attempt = key.rpartition("/")[2].partition(".")
    return (int(chunk), int(attempt or 0)) if (chunk + (attempt or "0")).isdecimal() else None


def make_studies_prefix(namespace_uid: str) -> str:
    """Return the beginning of the keys of all studies of a namespace."""
    return f"{namespace_uid}/studies/"


def make_use_prefix(file: FileKey) -> str:
    """Return the beginning of the keys of all use records of a file."""
    return f"{file.namespace_uid}/used/{file.origin}/{file.address}"


def make_open_key(namespace_uid: str, address: str, owner: str) -> str:
    """Return the key of the record of an owner's open upload in parts."""
    return f"{namespace_uid}/open/{address}.{hashlib.sha256(owner.encode()).hexdigest()[:32]}"


def make_deleting_key(namespace_uid: str, address: str) -> str:
    """Return the key of the record that the sweep is about to delete a file."""
    return f"{namespace_uid}/deleting/{address}"


def make_usage_key(namespace_uid: str) -> str:
    """Return the key of the sums of a namespace's files."""
    return f"{namespace_uid}/usage"


def make_orphaned_key(namespace_uid: str) -> str:
    """Return the key of the record since when a namespace has not been found."""
    return f"{namespace_uid}/orphaned"


def _encode(text: str) -> str:
    data = text.encode()
    if len(data) > MAX_TEXT_BYTES:
        data = data[: MAX_TEXT_BYTES - len(_CUT.encode())].decode(errors="ignore").encode() + _CUT.encode()
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decode(text: str) -> str:
    """Return the text of an encoded word.

    Raises:
        ValueError: the word is not encoded text.
    """
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except binascii.Error as error:
        raise ValueError(str(error)) from None
