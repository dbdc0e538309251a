# SPDX-License-Identifier: Apache-2.0
"""Chooses renderings by Accept and Content-Type (RFC 9110, sections 8.3 and 12.5.1)."""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Iterator, Sequence

from simyard.occi.errors import OcciError, quote_input


class Rendering(enum.StrEnum):
    """A rendering, with its media type as value. If a client accepts several equally, the first one is chosen."""

    TEXT_PLAIN = "text/plain"
    JSON = "application/occi+json"
    TEXT_OCCI = "text/occi"
    URI_LIST = "text/uri-list"

    __hash__ = str.__hash__  # a fast hash: every request looks up its rendering, and the hash of enumerations is slow


ACCEPTED = ", ".join(Rendering)
"""The value of the response header ``Accept``."""

_NAMES = {
    "text/plain": Rendering.TEXT_PLAIN,
    "text/occi+plain": Rendering.TEXT_PLAIN,
    "application/occi+json": Rendering.JSON,
    "application/json": Rendering.JSON,
    "text/occi": Rendering.TEXT_OCCI,
    "text/uri-list": Rendering.URI_LIST,
}
_CHARSETS = {"": "utf-8", "utf-8": "utf-8", "utf8": "utf-8", "us-ascii": "utf-8", "iso-8859-1": "iso-8859-1"}
_QUALITY = re.compile(r"0(?:\.[0-9]{0,3}+)?+|1(?:\.0{0,3}+)?+")
_MAX_CACHED_CHARACTERS = 256


def choose_rendering(accept: str | None, offered: Sequence[Rendering] = tuple(Rendering)) -> Rendering:
    """Return the best of the ``offered`` renderings for an Accept header; the default is text/plain.

    The most specific matching range gives a rendering its quality. If qualities are equal, the rendering with the more
    specific range is chosen, then text/plain, then the first offered rendering.

    Raises:
        OcciError: 406, the header accepts none of the offered renderings.
    """
    text = accept or ""
    offers = tuple(offered)
    return _cached_choice(text, offers) if len(text) <= _MAX_CACHED_CHARACTERS else _choice(text, offers)


def read_content_type(header: str | None) -> Rendering:
    """Return the rendering of a request's body by its Content-Type; the default is text/plain.

    Raises:
        OcciError: 400, the type or charset is not supported.
    """
    for name, parameters in _media_types(header or ""):
        if name not in _NAMES:
            raise OcciError(400, f"Content-Type: {quote_input(name)} is not supported; send one of {ACCEPTED}")
        if parameters.get("charset", "") not in _CHARSETS:
            charset = quote_input(parameters["charset"])
            raise OcciError(400, f"Content-Type: the charset {charset} is not supported; send utf-8")
        return _NAMES[name]
    return Rendering.TEXT_PLAIN


def read_charset(header: str | None) -> str:
    """Return the charset of a body whose Content-Type :func:`read_content_type` accepts: ``utf-8`` or ``iso-8859-1``.

    ``iso-8859-1`` is the default of Apache's HTTP client, which OCCI clients in Java use.
    """
    for _, parameters in _media_types(header or ""):
        return _CHARSETS.get(parameters.get("charset", ""), "utf-8")
    return "utf-8"


def _choice(accept: str, offered: tuple[Rendering, ...]) -> Rendering:
    ranges = [(name, _quality(parameters.get("q", "1"))) for name, parameters in _media_types(accept)]
    if not ranges:
        ranges = [("*/*", 1.0)]
    best: tuple[float, int, bool, int] | None = None
    chosen: Rendering | None = None
    for place, rendering in enumerate(offered):
        found = [(_specificity(name, rendering), quality) for name, quality in ranges]
        specificity, quality = max((item for item in found if item[0]), default=(0, 0.0))
        rank = (quality, specificity, rendering is Rendering.TEXT_PLAIN, -place)
        if quality > 0 and (best is None or rank > best):
            best, chosen = rank, rendering
    if chosen is None:
        raise OcciError(
            406, f"Accept: {quote_input(accept)} accepts none of the offered media types: {', '.join(offered)}"
        )
    return chosen


_cached_choice = functools.lru_cache(maxsize=256)(_choice)


def _specificity(name: str, rendering: Rendering) -> int:
    """Return how exactly a media range names a rendering: 3 its type, 2 ``text/*``, 1 ``*/*``, 0 not at all."""
    if _NAMES.get(name) is rendering:
        return 3
    if name.endswith("/*") and rendering.startswith(name[:-1]):
        return 2
    return 1 if name in ("*/*", "*") else 0


def _quality(text: str) -> float:
    """Return the number in a quality value; 1 for an invalid text, because the client did name the type."""
    return float(text) if _QUALITY.fullmatch(text) else 1.0


def _media_types(header: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield media types or ranges with their parameters, in lower case and without quotes."""
    for item in header.lower().split(","):
        name, *parameters = item.split(";")
        if not name.strip():
            continue
        pairs = (parameter.partition("=") for parameter in parameters)
        yield name.strip(), {key.strip(): value.strip().strip('"') for key, _, value in pairs}
