"""What workers tell of their attributes, into the store."""

from __future__ import annotations

from collections.abc import Sequence

from simyard.apiserver.directory import Directory
from simyard.apiserver.objects import CachedWorker
from simyard.apiserver.values import ValueStore
from simyard.messaging.events import ReceivedEvent


class AttributeFeed:
    """Fills the store, and empties it of workers that are gone."""

    def __init__(self, directory: Directory, store: ValueStore) -> None:
        self._directory = directory
        self._store = store
        directory.workers.subscribe(self._on_worker)

    async def take(self, events: Sequence[ReceivedEvent]) -> None:
        """Take over what is told of known workers by the broker user that is theirs; anything else is dropped."""
        for event in events:
            worker = self._directory.worker_by_uid(event.worker_uid)
            if worker is None or worker.user != event.user:
                continue
            service = self._directory.services.get(worker.metadata.namespace, worker.service)
            values = event.body.get("attributes", event.body.get("values"))  # those of a register, of a change
            if service is not None and isinstance(values, dict):
                self._store.record(event.worker_uid, values, service.interface, event.received_at)

    def _on_worker(self, old: CachedWorker | None, new: CachedWorker | None) -> None:
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._store.forget(old.metadata.uid)
