# SPDX-License-Identifier: Apache-2.0
"""Keeps collections sorted when members are added or removed, so that no request sorts a listing. Pure."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from simyard.api.base import Metadata


class Entry(NamedTuple):
    """A member of a collection; members are sorted by creation time (seconds since the epoch), then by name."""

    created: float
    name: str
    path: str


ChangeListings = Callable[[Entry, Iterable[Hashable]], None]
"""A function that adds an entry to the listings with these keys, or removes it from them."""


def make_entry(metadata: Metadata, path: str) -> Entry:
    """Return the entry of an object under one of its paths."""
    created = metadata.creation_timestamp
    return Entry(created.timestamp() if created is not None else 0.0, metadata.name, path)


@dataclass(slots=True)
class _Listing:
    entries: list[Entry] = field(default_factory=list)
    paths: tuple[str, ...] | None = None


class Listings:
    """Sorted collections of entries, by key. An addition or removal costs a search and a shift of the later members."""

    def __init__(self) -> None:
        self._of: dict[Hashable, _Listing] = {}

    def add(self, entry: Entry, keys: Iterable[Hashable]) -> None:
        """Add a member to collections."""
        for key in keys:
            listing = self._of.setdefault(key, _Listing())
            bisect.insort(listing.entries, entry)
            listing.paths = None

    def remove(self, entry: Entry, keys: Iterable[Hashable]) -> None:
        """Remove a member from collections that have it."""
        for key in keys:
            listing = self._of[key]
            del listing.entries[bisect.bisect_left(listing.entries, entry)]
            listing.paths = None
            if not listing.entries:
                del self._of[key]

    def list_paths(self, key: Hashable) -> tuple[str, ...]:
        """Return the members of a collection: the same tuple until a member is added or removed."""
        listing = self._of.get(key)
        if listing is None:
            return ()
        if listing.paths is None:
            listing.paths = tuple([entry.path for entry in listing.entries])
        return listing.paths

    def count(self, key: Hashable) -> int:
        """Return the number of members of a collection."""
        listing = self._of.get(key)
        return len(listing.entries) if listing is not None else 0
