# SPDX-License-Identifier: Apache-2.0
"""Caches of renderings: of entities, recent collections and the model, with a memory limit for each.

A kept rendering of an entity depends only on the entity and the model; the user's right is checked before the lookup.
The key of a kept collection has the kinds of entities that the user may list.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from simyard.frontend.backend import Backend
from simyard.frontend.changes.preconditions import build_tag, compute_state_digest
from simyard.frontend.entities.targets import parse_location
from simyard.frontend.metrics import RENDERING_BYTES, RENDERINGS
from simyard.occi.model import LINK, Category, Entity, Model
from simyard.occi.negotiation import Rendering
from simyard.occi.pages import Page
from simyard.occi.rendering import (
    Rendered,
    render_collection,
    render_entity,
    render_locations,
    render_model,
)

MAX_ENTITY_BYTES = 64 * 1024 * 1024
"""Enough for 10,000 computes of 3 kB with their entries: a client that reads all of them in turn finds them all.

A cache that is a little too small finds none of them: the entry that is needed next has always just been dropped.
"""
MAX_COLLECTION_BYTES = 32 * 1024 * 1024
MAX_MODEL_BYTES = 4 * 1024 * 1024
SLICE = 100
"""Number of entities that are rendered before other tasks get their turn; this takes some milliseconds."""
OVERHEAD_BYTES = 600
"""Approximate memory of an entry in addition to its bytes."""

T = TypeVar("T")


@dataclass(slots=True)
class _Entry(Generic[T]):
    token: object
    value: T
    size: int
    used: bool = False


class BoundedCache(Generic[T]):
    """Values of recently used keys, up to a limit of bytes for values, keys and tokens together.

    A value is found only with the token with which it was stored. The token stands for the data from which the value
    was made. The oldest value that was not used since it was stored, or since it was last passed over, is dropped
    first. A strict order of use would be written at each lookup, in memory that no processor cache has.
    """

    def __init__(self, name: str, max_bytes: int, size: Callable[[T], int]) -> None:
        self._max_bytes = max_bytes
        self._size = size
        self._entries: OrderedDict[Hashable, _Entry[T]] = OrderedDict()
        self._bytes = 0
        self._gauge = RENDERING_BYTES.labels(name)
        self._rendered = RENDERINGS.labels(name)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def bytes(self) -> int:
        """The approximate memory of all entries."""
        return self._bytes

    def find(self, key: Hashable, token: object) -> T | None:
        """Return the value of a key if its token is the same."""
        entry = self._entries.get(key)
        if entry is None or not (entry.token is token or entry.token == token):
            return None
        entry.used = True
        return entry.value

    def put(self, key: Hashable, token: object, value: T) -> T:
        """Keep a value, unless it alone is above the limit, and return it."""
        self._rendered.inc()
        before = self._entries.pop(key, None)
        if before is not None:
            self._bytes -= before.size
        size = self._size(value) + _weight(key) + _weight(token) + OVERHEAD_BYTES
        if size <= self._max_bytes:
            self._entries[key] = _Entry(token, value, size)
            self._bytes += size
            self._drop_surplus()
        self._gauge.set(self._bytes)
        return value

    def _drop_surplus(self) -> None:
        while self._bytes > self._max_bytes:
            key, entry = self._entries.popitem(last=False)
            if entry.used:
                entry.used = False
                self._entries[key] = entry
            else:
                self._bytes -= entry.size


@dataclass(frozen=True, slots=True)
class Listing:
    """The parameters of a rendered collection, without its members.

    ``seen`` are the locations whose members the user may list. Listings with a client's filter are not kept, because
    there is no limit to the number of filters.
    """

    location: str
    seen: frozenset[str]
    page: Page
    rendering: Rendering
    full: bool
    base: str


@dataclass(slots=True)
class Shown:
    """A rendered entity.

    Attributes:
        observed: time of its oldest value by the clock; None if all of its values are constant. key: key of the entity
            that was rendered, and version of the model.
        version: version of the backend at which the key was last compared.
    """

    rendered: Rendered
    observed: float | None
    key: tuple[Hashable, int]
    version: int


class Renderings:
    """The renderer of entities, collections and the model, with its caches."""

    def __init__(self, backend: Backend, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._backend = backend
        self._clock = clock
        self._entities: BoundedCache[Shown] = BoundedCache(
            "entity", MAX_ENTITY_BYTES, lambda shown: _size(shown.rendered)
        )
        self._collections: BoundedCache[Rendered] = BoundedCache("collection", MAX_COLLECTION_BYTES, _size)
        self._models: BoundedCache[Rendered] = BoundedCache("model", MAX_MODEL_BYTES, _size)

    def get_cached_entity(self, path: str, rendering: Rendering, base: str, model: Model) -> Shown | None:
        """Return the rendering of an entity from the cache, if a new rendering would be the same.

        The entity's own key is compared only if anything has changed since the last comparison.
        """
        shown = self._entities.find((path, rendering, base), None)
        if shown is None or shown.key[1] != model.version:
            return None
        version = self._backend.version
        if shown.version != version:
            if shown.key[0] != self._backend.make_part_key(path):
                return None
            shown.version = version
        return shown

    def render_entity(self, entity: Entity, rendering: Rendering, base: str, model: Model) -> Shown:
        """Render one entity, as the backend has just returned it."""
        key = self._backend.make_part_key(entity.path)
        age = self._backend.measure_age_seconds(entity.path)
        observed = None if age is None else self._clock() - age
        rendered = render_entity(entity, rendering, base, model)
        rendered = replace(rendered, tag=build_tag(rendered, compute_state_digest(entity, model)))
        shown = Shown(rendered, observed, (key, model.version), self._backend.version)
        return shown if key is None else self._entities.put((entity.path, rendering, base), None, shown)

    def measure_age_seconds(self, shown: Shown) -> int:
        """Return the age of the oldest value of a rendered entity; 0 if all of its values are constant."""
        return 0 if shown.observed is None else max(0, int(self._clock() - shown.observed))

    def render_model(self, categories: Sequence[Category] | None, rendering: Rendering, model: Model) -> Rendered:
        """Render the model, or some of its ``categories``; only the rendering of the whole model is kept."""
        if categories is not None:
            return render_model(categories, rendering, model)
        found = self._models.find(rendering, model.version)
        if found is None:
            rendered = render_model(model.ordered, rendering)
            found = self._models.put(rendering, model.version, replace(rendered, tag=build_tag(rendered)))
        return found

    def get_cached_collection(self, listing: Listing, token: object) -> Rendered | None:
        """Return a collection from the cache; an equal ``token`` means equal members and states."""
        return self._collections.find(listing, token)

    async def render_collection(
        self, listing: Listing, token: object | None, paths: Sequence[str], model: Model
    ) -> Rendered:
        """Render the members at ``paths``, as locations or in full; other tasks get their turn in between.

        The rendering is kept if there is a ``token``.
        """
        if not listing.full:
            rendered = render_locations(paths, listing.rendering, listing.base)
        else:
            resources, links = await self._all_parts(paths, listing.rendering, listing.base, model)
            kind = model.find_by_location(listing.location)
            of_links = kind is not None and LINK in model.list_lineage(kind.id)
            rendered = render_collection(resources, links, listing.rendering, of_links=of_links)
        return rendered if token is None else self._collections.put(listing, token, rendered)

    async def _all_parts(
        self, paths: Sequence[str], rendering: Rendering, base: str, model: Model
    ) -> tuple[list[bytes], list[bytes]]:
        resources: list[bytes] = []
        links: list[bytes] = []
        of_links = {kind.location for kind in model.kinds if LINK in model.list_lineage(kind.id)}
        for number, path in enumerate(paths, 1):
            part = self._part(path, rendering, base, model)
            if part is not None:
                (links if parse_location(path) in of_links else resources).append(part)
            if number % SLICE == 0:
                await asyncio.sleep(0)
        return resources, links

    def _part(self, path: str, rendering: Rendering, base: str, model: Model) -> bytes | None:
        """Return the rendering of an entity inside a collection, which equals its own body; None if it was deleted."""
        shown = self.get_cached_entity(path, rendering, base, model)
        if shown is None:
            entity = self._backend.get_entity(path)
            if entity is None:
                return None
            shown = self.render_entity(entity, rendering, base, model)
        return shown.rendered.body


def _weight(item: object) -> int:
    """Return the approximate bytes of a key or token beyond the overhead."""
    match item:
        case str():
            return len(item)
        case tuple():
            return 8 * len(item)  # the texts of the paths are shared
        case Listing():
            return len(item.location) + len(item.base)
    return 0


def _size(rendered: Rendered) -> int:
    return len(rendered.body) + sum(len(name) + len(value) for name, value in rendered.headers)
