"""In which listings our objects stand, and when. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TypeVar

from simyard.apiserver.objects import CachedPool, CachedService, CachedWorker
from simyard.frontend.catalogue import RESOURCE_TPL_SCHEME, SCALABLE
from simyard.frontend.computes import own_mixins
from simyard.frontend.listing import Entry, Listings, entry_of
from simyard.frontend.services import APPLICATIONS, COMPONENTS
from simyard.occi.standard import APPLICATION, COMPONENT, COMPUTE, RESOURCE_TPL

EVERYTHING = "/"
Placed = Sequence[tuple[str, Sequence[Hashable]]]
"""The paths under which an object is shown, each with the keys of the listings that have it."""


class Dependents:
    """Lists links only while what they start at is shown, however the two come and go."""

    def __init__(self, listings: Listings) -> None:
        self._listings = listings
        self._listed: dict[str, tuple[Entry, tuple[Hashable, ...]]] = {}

    def place(self, path: str, entry: Entry | None, keys: tuple[Hashable, ...] = ()) -> bool:
        """Have what is at a path in these listings, with this entry; None: in none. Whether it came or went."""
        wanted = None if entry is None else (entry, keys)
        before = self._listed.get(path)
        if before == wanted:
            return False
        if before is not None:
            self._listings.remove(*self._listed.pop(path))
        if wanted is not None:
            self._listed[path] = wanted
            self._listings.add(*wanted)
        return True


T = TypeVar("T", CachedPool, CachedService)


def follow(listings: Listings, old: T | None, new: T | None, placed: Callable[[T], Placed]) -> list[str]:
    """List what an object is shown as now instead of before, and return the paths that have come or gone."""
    if old is not None and new is not None and placed(old) == placed(new):
        return []
    changed: list[str] = []
    for item, change in ((old, listings.remove), (new, listings.add)):
        if item is not None:
            for path, keys in placed(item):
                change(entry_of(item.metadata, path), keys)
                changed.append(path)
    return changed


def compute_listings(worker: CachedWorker) -> Iterator[Hashable]:
    """Of a Worker: those of its compute."""
    yield from (EVERYTHING, COMPUTE, ("interface", worker.service), ("computes", worker.service))
    own = own_mixins(worker)
    if any(name.startswith(RESOURCE_TPL_SCHEME) for name in own) and RESOURCE_TPL not in own:
        yield RESOURCE_TPL
    yield from own


def pool_listings(pool: CachedPool) -> Placed:
    """Of a pool: its component. The link to it is listed by :class:`Dependents`."""
    return ((COMPONENTS + pool.metadata.uid, (EVERYTHING, COMPONENT, SCALABLE)),)


def service_listings(service: CachedService) -> Placed:
    """Of a service: its application."""
    path = APPLICATIONS + service.metadata.uid
    return ((path, (EVERYTHING, APPLICATION, SCALABLE, ("master", service.metadata.name))),)
