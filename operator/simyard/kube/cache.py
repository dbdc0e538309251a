"""A local copy of all objects of one resource, kept true by list and watch."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from prometheus_client import Counter, Gauge

from simyard.api.base import Json, Metadata
from simyard_sites.kubernetes.client import KubeClient
from simyard_sites.kubernetes.errors import ApiError, ExpiredError, ForbiddenError, NotFoundError
from simyard_sites.kubernetes.resource import Resource

log = logging.getLogger(__name__)

OBJECTS = Gauge("simyard_cache_objects", "Objects in the local copy.", ["resource"])
EVENTS = Counter("simyard_cache_events_total", "Changes seen by the watch.", ["resource"])
RELISTS = Counter("simyard_cache_lists_total", "How often all objects were listed.", ["resource"])

TOMBSTONES = 20_000
MAX_BACKOFF_SECONDS = 30.0
BETWEEN_WATCHES_SECONDS = 0.1
MOST_AGE_SECONDS = 100.0
"""A cache that has heard nothing for longer is not to be trusted (see :meth:`Cache.age_seconds`)."""
ALL_NAMESPACES = ("",)
Key = tuple[str, str]
"""Namespace and name."""


class HasMetadata(Protocol):
    """What is cached: anything with a ``metadata``."""

    @property
    def metadata(self) -> Metadata:
        """The object's metadata."""
        ...


T = TypeVar("T", bound=HasMetadata)
Listener = Callable[[T | None, T | None], None]
"""Called with the old and the new object; None when there was none or is none any more."""


def key_of(item: HasMetadata) -> Key:
    """The key of a cached object."""
    return item.metadata.namespace, item.metadata.name


class Cache(Generic[T]):
    """Objects of one resource by key and by index.

    ``parse`` makes the cached form from raw JSON; objects on which it fails are logged and left out.
    ``indexes`` give for each object the values under which ``by`` finds it. ``namespaces``: objects of these alone;
    each namespace has a list and a watch of its own. ``fields`` is a field selector.
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
        """The object of that name."""
        return self._items.get((namespace, name))

    def by(self, index: str, value: str) -> list[T]:
        """The objects that an index lists under a value."""
        return list(self._index[index].get(value, {}).values())

    def count(self, index: str, value: str) -> int:
        """How many objects an index lists under a value."""
        return len(self._index[index].get(value, ()))

    def subscribe(self, listener: Listener[T]) -> None:
        """Call ``listener`` on every change from now on; it must not block."""
        self._listeners.append(listener)

    def age_seconds(self) -> float:
        """How long ago the API server was last heard; it says something at least every minute (a bookmark)."""
        return time.monotonic() - min(self._heard.values())

    async def run(self) -> None:
        """Keep the copy true, for ever."""
        self._heard = dict.fromkeys(self._namespaces, time.monotonic())
        async with asyncio.TaskGroup() as group:
            for namespace in self._namespaces:
                group.create_task(self._follow(namespace), name=f"cache of {self.resource.plural} {namespace}".strip())

    async def _follow(self, namespace: str) -> None:
        """List, then watch, for ever; failures that follow each other are retried with growing pauses."""
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
                await asyncio.sleep(min(MAX_BACKOFF_SECONDS, 0.1 * 2 ** min(failures, 10)) * random.uniform(0.5, 1))  # noqa: S311

    def learn(self, raw: Json) -> T | None:
        """Take over an object, from the watch or from the answer to a write of ours; an older state is ignored."""
        metadata = raw["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        version = int(metadata["resourceVersion"])
        if metadata["uid"] in self._tombstones or version <= self._versions.get(key, -1):
            return self._items.get(key)
        try:
            item = self._parse(raw)
        except Exception as error:  # noqa: BLE001 - an object that nobody foresaw must not hide all the others
            log.error("%s %s/%s cannot be read: %s: %s", self.resource.kind, *key, type(error).__name__, error)
            return None
        self._versions[key] = version
        self._replace(key, item)
        return item

    def reached(self, key: Key, uid: str, version: int) -> bool:
        """Return whether an object is known as of a version or later; ``version`` 0: whether it is known to be gone."""
        return uid in self._tombstones or (version > 0 and self._versions.get(key, -1) >= version)

    def forget(self, item: T) -> None:
        """Take over that an object of ours was deleted."""
        self.bury(key_of(item), item.metadata.uid)

    def bury(self, key: Key, uid: str) -> None:
        """Take over that the object of a uid does not exist (any more)."""
        self._bury(uid)
        if (current := self._items.get(key)) is not None and current.metadata.uid == uid:
            self._remove(key)

    def _forget(self, raw: Json) -> None:
        metadata = raw["metadata"]
        self.bury((metadata.get("namespace", ""), metadata["name"]), metadata["uid"])

    def _bury(self, uid: str) -> None:
        self._tombstones[uid] = None
        while len(self._tombstones) > TOMBSTONES:
            self._tombstones.popitem(last=False)

    async def _list(self, namespace: str) -> str:
        listed: set[Key] = set()

        def take(page: list[Json]) -> None:
            for raw in page:
                listed.add((raw["metadata"].get("namespace", ""), raw["metadata"]["name"]))
                self.learn(raw)

        _, version = await self._client.list_all(self.resource, namespace, fields=self._fields, take=take)
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
