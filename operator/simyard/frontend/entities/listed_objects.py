# SPDX-License-Identifier: Apache-2.0
"""Chooses the listings that contain each object. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TypeVar

from simyard.api.names import ANNOTATION_OCCI_MIXINS
from simyard.frontend.entities.catalogue import RESOURCE_TPL_SCHEME, SCALABLE
from simyard.frontend.entities.computes import list_provider_mixins
from simyard.frontend.entities.listing import Entry, Listings, make_entry
from simyard.frontend.entities.services import APPLICATIONS, COMPONENTS
from simyard.occi.standard import APPLICATION, COMPONENT, COMPUTE, RESOURCE_TPL
from simyard.serving.objects import CachedPool, CachedService, CachedWorker

EVERYTHING = "/"
Placed = Sequence[tuple[str, Sequence[Hashable]]]
"""The paths of an object's entities, each with the keys of the listings that contain it."""


class Dependents:
    """The links that depend on a source. The listings contain a link only while its source exists."""

    def __init__(self, listings: Listings) -> None:
        self._listings = listings
        self._listed: dict[str, tuple[Entry, tuple[Hashable, ...]]] = {}

    def set_listings(self, path: str, entry: Entry | None, keys: tuple[Hashable, ...] = ()) -> bool:
        """Set the listings of a path; with None, remove the path from all. Return true if it was added or removed."""
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


def update_listings(listings: Listings, old: T | None, new: T | None, placed: Callable[[T], Placed]) -> list[str]:
    """Update the listings after a change of an object, and return the paths that were added or removed."""
    if old is not None and new is not None and placed(old) == placed(new):
        return []
    changed: list[str] = []
    for item, change in ((old, listings.remove), (new, listings.add)):
        if item is not None:
            for path, keys in placed(item):
                change(make_entry(item.metadata, path), keys)
                changed.append(path)
    return changed


def compute_listings(worker: CachedWorker) -> Iterator[Hashable]:
    """Yield the keys of the listings of a Worker's compute."""
    yield from (EVERYTHING, COMPUTE, ("interface", worker.service), ("computes", worker.service))
    own = list_provider_mixins(worker)
    if any(name.startswith(RESOURCE_TPL_SCHEME) for name in own) and RESOURCE_TPL not in own:
        yield RESOURCE_TPL
    yield from own


def relist_compute(listings: Listings, old: CachedWorker, new: CachedWorker, path: str) -> None:
    """Update the listings of a compute after a change of its provider mixins, such as its size template."""
    if old.metadata.annotations.get(ANNOTATION_OCCI_MIXINS) == new.metadata.annotations.get(ANNOTATION_OCCI_MIXINS):
        return
    listings.remove(make_entry(old.metadata, path), compute_listings(old))
    listings.add(make_entry(new.metadata, path), compute_listings(new))


def list_pool_listings(pool: CachedPool) -> Placed:
    """Return the listings of a pool's component, without those of its componentlink."""
    return ((COMPONENTS + pool.metadata.uid, (EVERYTHING, COMPONENT, SCALABLE)),)


def list_service_listings(service: CachedService) -> Placed:
    """Return the listings of a service's application."""
    path = APPLICATIONS + service.metadata.uid
    return ((path, (EVERYTHING, APPLICATION, SCALABLE, ("master", service.metadata.name))),)
