# SPDX-License-Identifier: Apache-2.0
"""Waits until the objects in memory fulfil a condition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class ChangeWaiters:
    """The requests that wait for a condition on a view. Each checks its condition again after every change."""

    def __init__(self) -> None:
        self._events: set[asyncio.Event] = set()

    def wake(self) -> None:
        """Have every waiter check its condition again, because something has changed."""
        for event in self._events:
            event.set()

    async def wait_until(self, check: Callable[[], bool], seconds: float) -> bool:
        """Wait until a condition holds, for at most ``seconds``, and return true if it holds."""
        changed = asyncio.Event()
        self._events.add(changed)
        try:
            async with asyncio.timeout(seconds):
                while not check():
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            return check()
        finally:
            self._events.discard(changed)
        return True
