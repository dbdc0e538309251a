# SPDX-License-Identifier: Apache-2.0
"""Assigns the OCCI ids of computes. Pure."""

from __future__ import annotations

from collections.abc import Callable

from simyard.api.names import ANNOTATION_OCCI_ID
from simyard.frontend.entities.identifiers import is_id
from simyard.serving.objects import CachedWorker

ListCompute = Callable[[CachedWorker, str], None]
"""A function that adds the compute of a Worker, with the given id, to its listings, or removes it from them."""


class ComputeIds:
    """The shown Workers by the ids of their computes; no two computes share an id.

    The id of a compute is the id that its client asked for, or the uid of the Worker if another compute has that id. If
    a client has asked for an id that is the uid of another Worker, its compute gets a different id.
    """

    def __init__(self, on_add: ListCompute, on_remove: ListCompute) -> None:
        self.workers: dict[str, CachedWorker] = {}
        self._ids: dict[str, str] = {}
        self._on_add = on_add
        self._on_remove = on_remove

    def find(self, worker: CachedWorker) -> str | None:
        """Return the id of a Worker's compute; None if the Worker is not shown."""
        return self._ids.get(worker.metadata.uid)

    def add(self, worker: CachedWorker) -> None:
        """Show a Worker."""
        self._add(worker, worker.metadata.annotations.get(ANNOTATION_OCCI_ID, ""))

    def remove(self, worker: CachedWorker) -> None:
        """Remove a shown Worker."""
        entity_id = self._ids.pop(worker.metadata.uid)
        self._on_remove(self.workers.pop(entity_id), entity_id)

    def _add(self, worker: CachedWorker, wanted: str) -> None:
        uid = worker.metadata.uid
        entity_id = wanted if is_id(wanted) and wanted not in self.workers else uid
        squatter = self.workers.get(entity_id)
        if squatter is not None:
            self.remove(squatter)
        self.workers[entity_id] = worker
        self._ids[uid] = entity_id
        self._on_add(worker, entity_id)
        if squatter is not None:
            self._add(squatter, "")
