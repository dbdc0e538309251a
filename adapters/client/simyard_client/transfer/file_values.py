# SPDX-License-Identifier: Apache-2.0
# Copied from adapters/service/simyard_adapter by hack/client_copies.py (make generate). Do not edit.
"""The JSON value of a file: a parameter, a result or an attribute of the type ``file``.

The value is an object: ``{"file": "sha256:..."}``, and optionally ``name``, ``bytes`` and ``mediaType``. The result of
an action is a valid parameter of the next action. A parameter may have ``url`` in place of ``file``
(:mod:`simyard_client.transfer.file_urls`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Mapping, Optional

from simyard_client.transfer.digests import MAX_FILE_BYTES, is_address
from simyard_client.transfer.file_urls import AllowedUrls

MAX_NAME_CHARACTERS = 255
MAX_MEDIA_TYPE_CHARACTERS = 127
_MEDIA_TYPE = re.compile(r"[a-z0-9.+-]+/[a-z0-9.+-]+")
_SEGMENT = re.compile(r"(?!\.{1,2}$)[^/\\\x00-\x1f\x7f]+")
_FIELDS = ("file", "url", "name", "bytes", "mediaType")


@dataclass(frozen=True)
class FileReference:
    """A reference to a stored file, or to a file at a URL.

    Attributes:
        address: The address of the content (:mod:`simyard_client.transfer.digests`); empty if the file is at a URL.
        name: The name of the file; a relative path if the file was found below a folder. Empty if it is unknown.
        size: The number of bytes, or None if it is unknown.
        media_type: The media type; empty if it is unknown.
        url: The URL of the file; empty for a stored file.
    """

    address: str
    name: str = ""
    size: Optional[int] = None
    media_type: str = ""
    url: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON value; unknown fields are omitted."""
        data: dict[str, Any] = {"url": self.url} if self.url else {"file": self.address}
        if self.name:
            data["name"] = self.name
        if self.size is not None:
            data["bytes"] = self.size
        if self.media_type:
            data["mediaType"] = self.media_type
        return data

    @classmethod
    def from_json(cls, value: Any, urls: Optional[AllowedUrls] = None) -> "FileReference":
        """Read a JSON value; ``urls`` are the URLs that it may have, None for a value that may have no URL.

        Raises:
            FileValueError: The value is not a reference to a file.
        """
        if not isinstance(value, Mapping):
            raise FileValueError("", 'must be an object such as {"file": "sha256:..."}')
        unknown = sorted(str(key) for key in value if key not in _FIELDS)
        if unknown:
            raise FileValueError("", f"has the unknown field {unknown[0][:60]!r}; the fields are {', '.join(_FIELDS)}")
        address, name, url = value.get("file"), value.get("name", ""), value.get("url")
        size, media_type = value.get("bytes"), value.get("mediaType", "")
        if url is not None:
            if address is not None or not isinstance(url, str):
                raise FileValueError(".url", "must be a text, and cannot be together with file")
            if problem := urls.find_problem(url) if urls is not None else "is accepted in parameters of actions only":
                raise FileValueError(".url", problem)
            address = ""
        elif not isinstance(address, str) or not is_address(address):
            raise FileValueError(".file", "must be the address of a file: sha256: or sha256-64m: and 64 digits")
        if not isinstance(name, str) or not is_name(name):
            raise FileValueError(".name", f"must be a relative path of at most {MAX_NAME_CHARACTERS} characters")
        if size is not None and (
            not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= MAX_FILE_BYTES
        ):
            raise FileValueError(".bytes", f"must be an integer of 0 to {MAX_FILE_BYTES}")
        if not isinstance(media_type, str) or not is_media_type(media_type):
            raise FileValueError(".mediaType", "must be a media type such as text/plain, in lower case")
        return cls(address, name, size, media_type, url or "")


class FileValueError(ValueError):
    """A value that is not a reference to a file; ``field`` is the path below the value, such as ``.file``."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(problem)
        self.field = field
        self.problem = problem


def is_name(text: str) -> bool:
    """Return True if the text is empty, or a relative path that leads to no place above its start."""
    if not text:
        return True
    return len(text) <= MAX_NAME_CHARACTERS and all(_SEGMENT.fullmatch(part) for part in text.split("/"))


def is_media_type(text: str) -> bool:
    """Return True if the text is empty, or a media type without parameters in lower case."""
    return not text or (len(text) <= MAX_MEDIA_TYPE_CHARACTERS and _MEDIA_TYPE.fullmatch(text) is not None)
