# SPDX-License-Identifier: Apache-2.0
"""Waits until the service adapter of a worker has registered again after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from simyard.guest.messages import Registered
from simyard.messaging.events import ReceivedEvent
from simyard.serving.objects import CachedWorker


class RegistrationWaits:
    """The waits of requests for registrations of workers. ``wake`` has all waiters check their conditions again."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._awaited: dict[tuple[str, str], list[asyncio.Event]] = {}

    def apply_event(self, event: ReceivedEvent) -> None:
        """Record the registration in an event, and wake the requests that wait for it."""
        waiting = self._awaited.get((event.user, event.worker_uid))
        if waiting is not None and isinstance(event.message, Registered):
            for registered in waiting:
                registered.set()
            self._wake()

    @contextmanager
    def watch(self, worker: CachedWorker) -> Iterator[Callable[[], bool]]:
        """Yield a function that returns true as soon as the adapter of a worker has registered since the block began.

        The broker guarantees that the registration comes from a worker of the same pool.
        """
        registered, key = asyncio.Event(), (worker.user, worker.metadata.uid)
        waiting = self._awaited.setdefault(key, [])
        waiting.append(registered)
        try:
            yield registered.is_set
        finally:
            waiting.remove(registered)
            if not waiting:
                del self._awaited[key]
