# SPDX-License-Identifier: Apache-2.0
"""Caches renderings of entities, of recent collections and of the model, with a memory limit for each cache.

The rendering of an entity is the same for all users, so the caller checks the right of the user before it asks the
cache. The rendering of a collection depends on the kinds that the user may list, so its key contains these kinds.
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
"""Memory for 10,000 computes of 3 kB, so that the cache helps a client that reads all of them one after the other.

With a slightly smaller cache, such a client would find no entry: the cache drops each entry just before its next use.
"""
MAX_COLLECTION_BYTES = 32 * 1024 * 1024
MAX_MODEL_BYTES = 4 * 1024 * 1024
SLICE = 100
"""Number of entities that the renderer renders before it yields to the event loop; this takes some milliseconds."""
OVERHEAD_BYTES = 600
"""Approximate memory of a cache entry in addition to the bytes of its value."""

T = TypeVar("T")


@dataclass(slots=True)
class _Entry(Generic[T]):
    token: object
    value: T
    size: int
    used: bool = False


class BoundedCache(Generic[T]):
    """A cache with a limit of bytes for values, keys and tokens together.

    Each value has a token, which stands for the data from which the value was made. A lookup finds the value only if it
    has the same token. If the cache is full, it drops the oldest value without a lookup since the cache last considered
    it (the second-chance algorithm). A strict order of use would cost a write to memory at each lookup.
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
        """Store a value, unless it alone exceeds the limit, and return the value."""
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

    ``seen`` are the locations whose members the user may list. The cache stores no listings with a filter of a client,
    because the number of possible filters has no limit.
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
        observed: time of the oldest value, by the clock; None if all values are constant.
        key: key of the entity, and version of the model, at the time of the rendering. version: version of the backend
            when the key was last compared.
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
        """Return the rendering of an entity from the cache; None if it is missing or out of date.

        The method computes the key of the entity only if the backend has changed since the last comparison.
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
        """Render one entity, which the backend has just returned, and store the rendering in the cache."""
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
        """Render the model, or some of its ``categories``. The cache stores only renderings of the whole model."""
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
        """Render the members at ``paths``, as locations or in full, and yield to the event loop between members.

        With a ``token``, the cache stores the rendering.
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
        """Return the rendering of an entity as a part of a collection; None if the entity was deleted."""
        shown = self.get_cached_entity(path, rendering, base, model)
        if shown is None:
            entity = self._backend.get_entity(path)
            if entity is None:
                return None
            shown = self.render_entity(entity, rendering, base, model)
        return shown.rendered.body


def _weight(item: object) -> int:
    """Return the approximate memory of a key or token in bytes, without ``OVERHEAD_BYTES``."""
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
