# SPDX-License-Identifier: Apache-2.0
"""Writes the attribute values in the events of workers into the value store."""

from __future__ import annotations

from simyard.guest.messages import AttributesChanged, Registered
from simyard.messaging.events import ReceivedEvent
from simyard.serving.directory import Directory
from simyard.serving.objects import CachedWorker
from simyard.serving.values import ValueStore


class AttributeFeed:
    """The writer of a value store: it records the values of known workers, and forgets deleted workers."""

    def __init__(self, directory: Directory, store: ValueStore) -> None:
        self._directory = directory
        self._store = store
        directory.workers.subscribe(self._on_worker)

    def apply_event(self, event: ReceivedEvent) -> None:
        """Record the values in an event of a known worker, if the worker's own broker user sent it."""
        worker = self._directory.find_worker_by_uid(event.worker_uid)
        if worker is None or worker.user != event.user or not isinstance(event.message, Registered | AttributesChanged):
            return
        service = self._directory.services.get(worker.metadata.namespace, worker.service)
        if service is not None:
            self._store.record(worker, event.message.attributes, service.interface, event.received_at)

    def _on_worker(self, old: CachedWorker | None, new: CachedWorker | None) -> None:
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._store.forget(old.metadata.uid)
