# SPDX-License-Identifier: Apache-2.0
"""Records which request has deleted which entity.

If a client repeats its DELETE at another frontend, this frontend can therefore answer that the entity is deleted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from simyard.api.base import Metadata
from simyard.api.names import ANNOTATION_OCCI_ID
from simyard.api.occi import OcciLink
from simyard.frontend.changes.noted_requests import find_unnoted_keys
from simyard.frontend.entities.computes import COMPUTES
from simyard.frontend.entities.identifiers import is_id
from simyard.frontend.entities.links import link_path
from simyard.frontend.entities.services import COMPONENTS
from simyard.frontend.entities.view import View
from simyard.kube.cache import Cache
from simyard.serving.objects import CachedPool, CachedWorker

MAX_ENTRIES = 1000
T = TypeVar("T", CachedWorker, CachedPool, OcciLink)


class DeletedEntities:
    """The most recently deleted entities, by path, each with the keys of the requests that its object has recorded."""

    def __init__(self, view: View) -> None:
        self._known: OrderedDict[str, Metadata] = OrderedDict()
        self._follow(view.directory.workers, _compute_path)
        self._follow(view.directory.pools, lambda pool: COMPONENTS + pool.metadata.uid)
        self._follow(view.links, link_path)

    def was_deleted(self, path: str, key: str) -> bool:
        """Return true if the request with this key has deleted the entity that was at a path."""
        metadata = self._known.get(path)
        return bool(key) and metadata is not None and not find_unnoted_keys(metadata, [key])

    def _follow(self, cache: Cache[T], path_of: Callable[[T], str]) -> None:
        def changed(old: T | None, new: T | None) -> None:
            if old is None or (new is not None and new.metadata.uid == old.metadata.uid):
                return
            self._known[path_of(old)] = old.metadata
            while len(self._known) > MAX_ENTRIES:
                self._known.popitem(last=False)

        cache.subscribe(changed)


def _compute_path(worker: CachedWorker) -> str:
    wanted = worker.metadata.annotations.get(ANNOTATION_OCCI_ID, "")
    return COMPUTES + (wanted if is_id(wanted) else worker.metadata.uid)
