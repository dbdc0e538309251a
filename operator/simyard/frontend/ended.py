"""Under which requests entities were deleted: who repeats one at another frontend hears that it is done."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from simyard.api.base import Metadata
from simyard.api.names import ANNOTATION_OCCI_ID
from simyard.api.occi import OcciLink
from simyard.apiserver.objects import CachedPool, CachedWorker
from simyard.frontend.computes import COMPUTES
from simyard.frontend.identifiers import is_id
from simyard.frontend.links import link_path
from simyard.frontend.noted import without
from simyard.frontend.services import COMPONENTS
from simyard.frontend.view import View
from simyard.kube.cache import Cache

MOST_KEPT = 1000
T = TypeVar("T", CachedWorker, CachedPool, OcciLink)


class Ended:
    """The newest of the entities that are gone, by path, with what was noted in their objects."""

    def __init__(self, view: View) -> None:
        self._known: OrderedDict[str, Metadata] = OrderedDict()
        self._follow(view.directory.workers, _compute_path)
        self._follow(view.directory.pools, lambda pool: COMPONENTS + pool.metadata.uid)
        self._follow(view.links, link_path)

    def under(self, path: str, key: str) -> bool:
        """Whether the entity that was at a path was deleted by the request of that key."""
        metadata = self._known.get(path)
        return bool(key) and metadata is not None and not without(metadata, [key])

    def _follow(self, cache: Cache[T], path_of: Callable[[T], str]) -> None:
        def changed(old: T | None, new: T | None) -> None:
            if old is None or (new is not None and new.metadata.uid == old.metadata.uid):
                return
            self._known[path_of(old)] = old.metadata
            while len(self._known) > MOST_KEPT:
                self._known.popitem(last=False)

        cache.subscribe(changed)


def _compute_path(worker: CachedWorker) -> str:
    wanted = worker.metadata.annotations.get(ANNOTATION_OCCI_ID, "")
    return COMPUTES + (wanted if is_id(wanted) else worker.metadata.uid)
