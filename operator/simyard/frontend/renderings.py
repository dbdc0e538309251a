"""Renderings that are kept: of each entity, of recent collections, of the model; all bounded in memory.

What is kept of an entity depends on nothing but the entity and the model, and who may see it is decided before it is
looked up. What is kept of a collection has in its key which kinds of entities the asker may list.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from simyard.frontend.backend import Backend
from simyard.frontend.metrics import RENDERING_BYTES, RENDERINGS
from simyard.frontend.preconditions import state_of, tag_of
from simyard.frontend.targets import location_of
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

MOST_ENTITY_BYTES = 32 * 1024 * 1024
"""As much as 10,000 computes take: a client that reads them all in turn finds each of them."""
MOST_COLLECTION_BYTES = 32 * 1024 * 1024
MOST_MODEL_BYTES = 4 * 1024 * 1024
SLICE = 100
"""So many entities are rendered before others get their turn: some milliseconds."""
OVERHEAD_BYTES = 600
"""What an entry takes beside its bytes, about."""

T = TypeVar("T")


class Kept(Generic[T]):
    """The newest values of the most recently used keys, up to so many bytes in all, those of keys and tokens included.

    A value is found only with the token that it was put with: what it was made of.
    """

    def __init__(self, name: str, most_bytes: int, size: Callable[[T], int]) -> None:
        self._most_bytes = most_bytes
        self._size = size
        self._entries: OrderedDict[Hashable, tuple[object, T, int]] = OrderedDict()
        self._bytes = 0
        self._gauge = RENDERING_BYTES.labels(name)
        self._rendered = RENDERINGS.labels(name)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def bytes(self) -> int:
        """What all entries take, about."""
        return self._bytes

    def find(self, key: Hashable, token: object) -> T | None:
        """The value of a key, if it was made of the same."""
        entry = self._entries.get(key)
        if entry is None or not (entry[0] is token or entry[0] == token):
            return None
        self._entries.move_to_end(key)
        return entry[1]

    def put(self, key: Hashable, token: object, value: T) -> T:
        """Keep a value, unless it alone is too large; it is given back."""
        self._rendered.inc()
        before = self._entries.pop(key, None)
        if before is not None:
            self._bytes -= before[2]
        size = self._size(value) + _weight(key) + _weight(token) + OVERHEAD_BYTES
        if size <= self._most_bytes:
            self._entries[key] = (token, value, size)
            self._bytes += size
            while self._bytes > self._most_bytes:
                _, (_, _, gone) = self._entries.popitem(last=False)
                self._bytes -= gone
        self._gauge.set(self._bytes)
        return value


@dataclass(frozen=True, slots=True)
class Listing:
    """What a rendered collection depends on beside its members.

    ``seen`` are the locations whose members the asker may list. Listings with a client's filter are not kept: they are
    as many as there are filters.
    """

    location: str
    seen: frozenset[str]
    page: Page
    rendering: Rendering
    full: bool
    base: str


@dataclass(frozen=True, slots=True)
class Shown:
    """A rendered entity; ``observed`` is when the oldest of its values was, by the clock; None if none of them ages."""

    rendered: Rendered
    observed: float | None


class Renderings:
    """Renders, and remembers what it rendered."""

    def __init__(self, backend: Backend, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._backend = backend
        self._clock = clock
        self._entities: Kept[Shown] = Kept("entity", MOST_ENTITY_BYTES, lambda shown: _size(shown.rendered))
        self._collections: Kept[Rendered] = Kept("collection", MOST_COLLECTION_BYTES, _size)
        self._models: Kept[Rendered] = Kept("model", MOST_MODEL_BYTES, _size)

    def kept_entity(self, path: str, rendering: Rendering, base: str, model: Model) -> Shown | None:
        """An entity that was rendered before, and that would be rendered the same now."""
        key = self._backend.part_key(path)
        return None if key is None else self._entities.find((path, rendering, base), (key, model.version))

    def entity(self, entity: Entity, rendering: Rendering, base: str, model: Model) -> Shown:
        """Render one entity, as the backend gave it just now."""
        key = self._backend.part_key(entity.path)
        age = self._backend.age_seconds(entity.path)
        observed = None if age is None else self._clock() - age
        rendered = render_entity(entity, rendering, base, model)
        rendered = replace(rendered, tag=tag_of(rendered, state_of(entity, model)))
        shown = Shown(rendered, observed)
        return shown if key is None else self._entities.put((entity.path, rendering, base), (key, model.version), shown)

    def age_seconds(self, shown: Shown) -> int:
        """How old the oldest of the values is that it shows; 0 if it shows none that ages."""
        return 0 if shown.observed is None else max(0, int(self._clock() - shown.observed))

    def model(self, categories: Sequence[Category] | None, rendering: Rendering, model: Model) -> Rendered:
        """The model, or those of its ``categories`` that were asked for (they are not kept)."""
        if categories is not None:
            return render_model(categories, rendering, model)
        found = self._models.find(rendering, model.version)
        if found is None:
            rendered = render_model(model.ordered, rendering)
            found = self._models.put(rendering, model.version, replace(rendered, tag=tag_of(rendered)))
        return found

    def kept_collection(self, listing: Listing, token: object) -> Rendered | None:
        """A collection that was rendered before, of the same members in the same state (the ``token`` says so)."""
        return self._collections.find(listing, token)

    async def collection(self, listing: Listing, token: object | None, paths: Sequence[str], model: Model) -> Rendered:
        """Render the members at ``paths``, as locations or in full; others get their turn in between.

        Without a ``token`` it is not kept.
        """
        if not listing.full:
            rendered = render_locations(paths, listing.rendering, listing.base)
        else:
            resources, links = await self._all_parts(paths, listing.rendering, listing.base, model)
            kind = model.at(listing.location)
            of_links = kind is not None and LINK in model.lineage(kind.id)
            rendered = render_collection(resources, links, listing.rendering, of_links=of_links)
        return rendered if token is None else self._collections.put(listing, token, rendered)

    async def _all_parts(
        self, paths: Sequence[str], rendering: Rendering, base: str, model: Model
    ) -> tuple[list[bytes], list[bytes]]:
        resources: list[bytes] = []
        links: list[bytes] = []
        of_links = {kind.location for kind in model.kinds if LINK in model.lineage(kind.id)}
        for number, path in enumerate(paths, 1):
            part = self._part(path, rendering, base, model)
            if part is not None:
                (links if location_of(path) in of_links else resources).append(part)
            if number % SLICE == 0:
                await asyncio.sleep(0)
        return resources, links

    def _part(self, path: str, rendering: Rendering, base: str, model: Model) -> bytes | None:
        """An entity as a part of a collection, which is its body when it is alone; None if it is gone."""
        shown = self.kept_entity(path, rendering, base, model)
        if shown is None:
            entity = self._backend.entity(path)
            if entity is None:
                return None
            shown = self.entity(entity, rendering, base, model)
        return shown.rendered.body


def _weight(item: object) -> int:
    """The bytes that a key or a token holds beyond the usual, about."""
    match item:
        case str():
            return len(item)
        case tuple():
            return 8 * len(item)  # paths, which others hold too
        case Listing():
            return len(item.location) + len(item.base)
    return 0


def _size(rendered: Rendered) -> int:
    return len(rendered.body) + sum(len(name) + len(value) for name, value in rendered.headers)
