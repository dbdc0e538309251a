"""What workers tell of their attributes, into the store."""

from __future__ import annotations

from simyard.apiserver.directory import Directory
from simyard.apiserver.objects import CachedWorker
from simyard.apiserver.values import ValueStore
from simyard.guest.messages import AttributesChanged, Registered
from simyard.messaging.events import ReceivedEvent


class AttributeFeed:
    """Fills the store, and empties it of workers that are gone."""

    def __init__(self, directory: Directory, store: ValueStore) -> None:
        self._directory = directory
        self._store = store
        directory.workers.subscribe(self._on_worker)

    def take(self, event: ReceivedEvent) -> None:
        """Take over what is told of a known worker by the broker user that is its own; anything else is dropped."""
        worker = self._directory.worker_by_uid(event.worker_uid)
        if worker is None or worker.user != event.user or not isinstance(event.message, Registered | AttributesChanged):
            return
        service = self._directory.services.get(worker.metadata.namespace, worker.service)
        if service is not None:
            self._store.record(worker, event.message.attributes, service.interface, event.received_at)

    def _on_worker(self, old: CachedWorker | None, new: CachedWorker | None) -> None:
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._store.forget(old.metadata.uid)
