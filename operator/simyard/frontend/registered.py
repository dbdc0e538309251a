"""Service adapters that register while somebody waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from simyard.apiserver.objects import CachedWorker
from simyard.guest.messages import Registered
from simyard.messaging.events import ReceivedEvent


class Registrations:
    """Tells those who wait; ``look`` has them look whether what they wait for is so."""

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look
        self._awaited: dict[tuple[str, str], list[asyncio.Event]] = {}

    def take(self, event: ReceivedEvent) -> None:
        """Note what an adapter has told."""
        waiting = self._awaited.get((event.user, event.worker_uid))
        if waiting is not None and isinstance(event.message, Registered):
            for registered in waiting:
                registered.set()
            self._look()

    @contextmanager
    def awaited(self, worker: CachedWorker) -> Iterator[Callable[[], bool]]:
        """Whether the adapter of a worker has registered since then; by the broker's word it is that worker's own."""
        registered, key = asyncio.Event(), (worker.user, worker.metadata.uid)
        waiting = self._awaited.setdefault(key, [])
        waiting.append(registered)
        try:
            yield registered.is_set
        finally:
            waiting.remove(registered)
            if not waiting:
                del self._awaited[key]
