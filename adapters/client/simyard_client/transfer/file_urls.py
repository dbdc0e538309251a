# SPDX-License-Identifier: Apache-2.0
# Copied from adapters/service/simyard_adapter by hack/client_copies.py (make generate). Do not edit.
"""The URLs that a file parameter may have in place of an address, where the platform team allows it.

The platform team lists prefixes, such as ``https://data.example.com/meshes/``. A URL is allowed if it has the host and
the port of a prefix, and its path is the path of the prefix or lies below it. The control plane checks a URL when an
action is created. It sends the prefixes with the action, and the worker checks the URL and each redirection again. A
path is compared after its escapes are decoded, because a server may decode them as well. A server may decode twice, so
no path has an escaped percent sign (``%25``) or
another kind of escape (``%u002e``). Some servers ignore a semicolon and the text after it (``..;a``), or spaces.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Optional
from urllib.parse import unquote, urlsplit

MAX_URL_CHARACTERS = 2048
MAX_PREFIXES = 100
SETTING = "files.urls"
"""The value of the chart with the prefixes."""
_PRINTABLE = re.compile(r"[!-~]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_USER = re.compile(r"^((?:[^/:@]*:)?(?://)?)[^/]*@")
_Place = tuple[str, int, str]
"""Host, port, and decoded path of a URL."""


@dataclass(frozen=True)
class AllowedUrls:
    """The prefixes of URLs that the platform team allows.

    Raises:
        ValueError: A prefix is no URL of this kind, or there are too many.
    """

    prefixes: tuple[str, ...] = ()
    _places: tuple[_Place, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.prefixes) > MAX_PREFIXES:
            raise ValueError(f"{SETTING}: has {len(self.prefixes)} prefixes, at most {MAX_PREFIXES} are accepted")
        for prefix in self.prefixes:
            if (problem := find_url_problem(prefix)) or "?" in prefix:
                raise ValueError(f"{SETTING}: {prefix[:200]!r} {problem or 'must have no query'}")
        object.__setattr__(self, "_places", tuple(map(_split, self.prefixes)))

    @classmethod
    def from_json(cls, value: Any) -> "AllowedUrls":
        """Read the prefixes as the control plane sends them; None means that no URL is allowed.

        Raises:
            ValueError: The value is no list of prefixes.
        """
        if not isinstance(value, (list, type(None))) or not all(isinstance(item, str) for item in value or ()):
            raise ValueError("urls must be a list of prefixes of URLs")
        return cls(tuple(value or ()))

    def to_json(self) -> dict[str, Any]:
        """Return the field ``urls`` of a request for an action; no field if no URL is allowed."""
        return {"urls": list(self.prefixes)} if self.prefixes else {}

    def find_problem(self, url: str) -> str:
        """Return why a URL is not allowed, with the remedy; the text is empty for an allowed URL."""
        if problem := find_url_problem(url):
            return problem
        upload = "upload the file with `kubectl simyard cp FILE files:`"
        if not self.prefixes:
            return f"is a URL, and this platform allows none: {upload}, or ask the platform team to set {SETTING}"
        place = _split(url)
        if any(_is_below(place, above) for above in self._places):
            return ""
        return f"is not below a URL of {SETTING} ({', '.join(self.prefixes)[:500]}): {upload}"


def find_url_problem(url: str) -> str:
    """Return why a text is no URL that a file can have; the text is empty for such a URL."""
    if len(url) > MAX_URL_CHARACTERS:
        return f"has {len(url)} characters, at most {MAX_URL_CHARACTERS} are accepted"
    try:
        place: Optional[_Place] = _split(url) if _PRINTABLE.fullmatch(url) else None
    except ValueError:
        place = None
    if place is None or not url.lower().startswith("https://") or not place[0]:
        return "must be a URL that begins with https:// and has no spaces"
    if "@" in urlsplit(url).netloc or "#" in url or "\\" in url:
        return "must have no user, no password, no fragment and no backslash"
    if not place[1]:
        return "must have a port of 1 to 65535"
    if "%" in place[2] or _CONTROL.search(place[2]) or any(map(_is_dots, re.split(r"[/\\]", place[2]))):
        return "must have no parts . or .. and no control characters, %u or %25 in its path"
    return ""


def describe_url(url: str) -> str:
    """Return a URL without its user, password, query and fragment, which may contain a secret."""
    return _USER.sub(r"\1", re.split(r"[?#]", url, maxsplit=1)[0])[:200]


def _split(url: str) -> _Place:
    parts = urlsplit(url)
    return parts.hostname or "", 443 if parts.port is None else parts.port, unquote(parts.path) or "/"


def _is_dots(part: str) -> bool:
    return part.partition(";")[0].strip() in (".", "..")


def _is_below(place: _Place, prefix: _Place) -> bool:
    path, above = place[2], prefix[2].rstrip("/")
    return place[:2] == prefix[:2] and (path == above or path.startswith(above + "/"))


NO_URLS = AllowedUrls()
