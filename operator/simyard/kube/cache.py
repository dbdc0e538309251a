# SPDX-License-Identifier: Apache-2.0
"""A local copy of all objects of one resource; list and watch keep it up to date.

Reconcilers read objects far more often than objects change, so they read this copy instead of the API server. A copy
has two problems. It is behind the API server. And one change reaches it in several ways, in any order: through the
watch, through a listing, and through the answers to this process's own writes.

**Resource versions.** The copy keeps the resource version of each object, and ignores every state that is not newer.
Invariant: an object never goes back to an older state. The copy compares versions as numbers, because kube-apiserver
uses etcd's revisions, which only grow. (If the copy applied states in the order of their arrival, the watch could
deliver an older state after a write of this process, and so undo the write.)

**Read your writes.** A caller passes the answer to each of its writes to :meth:`Cache.learn`, and then finds its own
write in the copy. :meth:`Cache.has_reached` returns whether the copy contains a certain version.

**Deletions.** After an object is deleted, there is no version to compare, and a late answer would bring the object
back. So the copy remembers the uids of recently deleted objects (tombstones), and ignores all their states. A new
object with the same name has another uid. A listing removes the objects that it does not contain, except objects that
are newer than the listing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from prometheus_client import Counter, Gauge

from simyard.api.base import Json, Metadata
from simyard_adapter.backoff import draw_delay
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import ApiError, ExpiredError, ForbiddenError, NotFoundError
from simyard_sites.kubernetes.resource import Resource

log = logging.getLogger(__name__)

OBJECTS = Gauge("simyard_cache_objects", "Objects in the local copy.", ["resource"])
EVENTS = Counter("simyard_cache_events_total", "Changes received by the watch.", ["resource"])
RELISTS = Counter("simyard_cache_lists_total", "Listings of all objects.", ["resource"])

TOMBSTONES = 20_000
MAX_BACKOFF_SECONDS = 30.0
BETWEEN_WATCHES_SECONDS = 0.1
MAX_AGE_SECONDS = 100.0
"""Age from which a copy counts as out of date (see :meth:`Cache.measure_age_seconds`)."""
ALL_NAMESPACES = ("",)
Key = tuple[str, str]
"""Namespace and name of an object."""


class HasMetadata(Protocol):
    """An object that a cache can keep: it needs only the attribute ``metadata``."""

    @property
    def metadata(self) -> Metadata:
        """The object's metadata."""
        ...


T = TypeVar("T", bound=HasMetadata)
Listener = Callable[[T | None, T | None], None]
"""Function that gets the old and the new object of a change; None stands for an object that does not exist."""


def make_key(item: HasMetadata) -> Key:
    """Return the key of an object: its namespace and name."""
    return item.metadata.namespace, item.metadata.name


class Cache(Generic[T]):
    """A copy of the objects of one resource, by key and by index.

    ``parse`` converts JSON into the cached form. If it fails on an object, the copy logs the error and leaves the
    object out. Each function in ``indexes`` returns the values under which :meth:`list_by` finds an object.
    ``namespaces`` restricts the copy to these namespaces, each with its own listing and watch. ``fields`` is a field
    selector.
    """

    def __init__(
        self,
        client: KubeClient,
        resource: Resource,
        parse: Callable[[Json], T],
        *,
        indexes: Mapping[str, Callable[[T], Iterable[str]]] | None = None,
        namespaces: Sequence[str] = ALL_NAMESPACES,
        fields: str = "",
    ) -> None:
        self.resource = resource
        self.synced = asyncio.Event()
        self._client = client
        self._parse = parse
        self._namespaces = tuple(namespaces) if resource.namespaced else ALL_NAMESPACES
        self._fields = fields
        self._items: dict[Key, T] = {}
        self._versions: dict[Key, int] = {}
        self._tombstones: OrderedDict[str, None] = OrderedDict()
        self._indexes = dict(indexes or {})
        self._index: dict[str, dict[str, dict[Key, T]]] = {name: {} for name in self._indexes}
        self._listeners: list[Listener[T]] = []
        self._heard = dict.fromkeys(self._namespaces, time.monotonic())
        self._listed: set[str] = set()

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._items.values()))

    def get(self, namespace: str, name: str) -> T | None:
        """Return the object with this name; None if it is not in the copy."""
        return self._items.get((namespace, name))

    def list_by(self, index: str, value: str) -> list[T]:
        """Return the objects with a value in an index."""
        return list(self._index[index].get(value, {}).values())

    def count(self, index: str, value: str) -> int:
        """Return the number of objects with a value in an index."""
        return len(self._index[index].get(value, ()))

    def subscribe(self, listener: Listener[T]) -> None:
        """Call ``listener`` for every later change. It must not block."""
        self._listeners.append(listener)

    def measure_age_seconds(self) -> float:
        """Return the seconds since the API server last sent a change or a bookmark, which it does every minute."""
        return time.monotonic() - min(self._heard.values())

    async def run(self) -> None:
        """Keep the copy up to date until cancelled."""
        self._heard = dict.fromkeys(self._namespaces, time.monotonic())
        async with asyncio.TaskGroup() as group:
            for namespace in self._namespaces:
                group.create_task(self._follow(namespace), name=f"cache of {self.resource.plural} {namespace}".strip())

    async def _follow(self, namespace: str) -> None:
        """List and then watch the objects of a namespace until cancelled; retry after failures, with a backoff."""
        failures = 0
        version = ""
        while True:
            try:
                if not version:
                    version = await self._list(namespace)
                    self._heard[namespace] = time.monotonic()
                    self._listed.add(namespace)
                    if self._listed.issuperset(self._namespaces):
                        self.synced.set()
                async for event in self._client.watch(
                    self.resource, namespace, resource_version=version, fields=self._fields
                ):
                    self._heard[namespace] = time.monotonic()
                    failures = 0
                    version = str(event.object["metadata"]["resourceVersion"])
                    if event.type == "DELETED":
                        self._forget(event.object)
                    elif event.type != "BOOKMARK":
                        self.learn(event.object)
                    EVENTS.labels(self.resource.plural).inc()
                await asyncio.sleep(BETWEEN_WATCHES_SECONDS)
            except ExpiredError:
                version = ""
            except ApiError as error:
                failures += 1
                level = logging.ERROR if isinstance(error, ForbiddenError | NotFoundError) else logging.WARNING
                log.log(level, "cache of %s: %s", self.resource.plural, error)
                await asyncio.sleep(draw_delay(failures - 1, MAX_BACKOFF_SECONDS))

    def learn(self, raw: Json) -> T | None:
        """Apply a state of an object from the API server, and return the object that the copy then has.

        The method ignores a state that is not newer than the known state, and every state of a deleted object.
        """
        metadata = raw["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        version = int(metadata["resourceVersion"])
        if metadata["uid"] in self._tombstones or version <= self._versions.get(key, -1):
            return self._items.get(key)
        try:
            item = self._parse(raw)
        except Exception as error:  # noqa: BLE001 - one invalid object must not hide the others
            log.error("%s %s/%s cannot be read: %s: %s", self.resource.kind, *key, type(error).__name__, error)
            return None
        self._versions[key] = version
        self._replace(key, item)
        return item

    def has_reached(self, key: Key, uid: str, version: int) -> bool:
        """Return whether the copy knows that an object is deleted, or has it in ``version`` or a later version.

        With ``version`` 0, only the deletion counts.
        """
        return uid in self._tombstones or (version > 0 and self._versions.get(key, -1) >= version)

    def forget(self, item: T) -> None:
        """Remove an object that this process has deleted."""
        self.apply_absence(make_key(item), item.metadata.uid)

    def apply_absence(self, key: Key, uid: str) -> None:
        """Remove the object with a uid, because it does not exist any more, or never existed."""
        self._add_tombstone(uid)
        if (current := self._items.get(key)) is not None and current.metadata.uid == uid:
            self._remove(key)

    def _forget(self, raw: Json) -> None:
        metadata = raw["metadata"]
        self.apply_absence((metadata.get("namespace", ""), metadata["name"]), metadata["uid"])

    def _add_tombstone(self, uid: str) -> None:
        self._tombstones[uid] = None
        while len(self._tombstones) > TOMBSTONES:
            self._tombstones.popitem(last=False)

    async def _list(self, namespace: str) -> str:
        listed: set[Key] = set()

        def learn_page(page: list[Json]) -> None:
            for raw in page:
                listed.add((raw["metadata"].get("namespace", ""), raw["metadata"]["name"]))
                self.learn(raw)

        _, version = await self._client.list_all(self.resource, namespace, fields=self._fields, on_page=learn_page)
        RELISTS.labels(self.resource.plural).inc()
        ours = [key for key in self._items if not namespace or key[0] == namespace]
        for key in [key for key in ours if key not in listed and self._versions[key] <= int(version)]:
            self._remove(key)
        return version

    def _replace(self, key: Key, new: T) -> None:
        old = self._items.get(key)
        self._items[key] = new
        self._reindex(key, old, new)
        OBJECTS.labels(self.resource.plural).set(len(self._items))
        self._tell(old, new)

    def _remove(self, key: Key) -> None:
        old = self._items.pop(key)
        del self._versions[key]
        self._reindex(key, old, None)
        OBJECTS.labels(self.resource.plural).set(len(self._items))
        self._tell(old, None)

    def _reindex(self, key: Key, old: T | None, new: T | None) -> None:
        for name, values_of in self._indexes.items():
            index = self._index[name]
            before = set(values_of(old)) if old is not None else set()
            after = set(values_of(new)) if new is not None else set()
            for value in before - after:
                index[value].pop(key, None)
                if not index[value]:
                    del index[value]
            if new is not None:
                for value in after:
                    index.setdefault(value, {})[key] = new

    def _tell(self, old: T | None, new: T | None) -> None:
        for listener in self._listeners:
            listener(old, new)
