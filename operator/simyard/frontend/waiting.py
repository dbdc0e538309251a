"""Waiting until something is visible."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Waiting:
    """Those who wait; they look again whenever anything has changed."""

    def __init__(self) -> None:
        self._events: set[asyncio.Event] = set()

    def look(self) -> None:
        """Something has changed."""
        for event in self._events:
            event.set()

    async def until(self, check: Callable[[], bool], seconds: float) -> bool:
        """Wait until something is so, for so long at most; whether it is."""
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
