"""Requests that arrive twice are carried out once."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from simyard.frontend.exchange import OcciResponse

KEPT_SECONDS = 120.0
MOST_KEPT = 1000
MOST_BODY_BYTES = 16 * 1024
"""A response that is longer is not kept: repeating is safe, only slower."""


@dataclass(slots=True)
class _Turn:
    """Whose turn it is under one key, and how many wait for it or have it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class Repetitions:
    """Remembers the newest responses by their requests' keys.

    Only in this process: what another frontend does under the same key is the backend's to find out. A response that
    says that nothing was done is not kept, so that the client can try again.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: OrderedDict[str, tuple[float, OcciResponse]] = OrderedDict()
        self._turns: dict[str, _Turn] = {}

    async def once(self, key: str, carry_out: Callable[[], Awaitable[OcciResponse]]) -> OcciResponse:
        """The response under a key: the one that is known, else of carrying it out, one at a time."""
        turn = self._turns.setdefault(key, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                known = self._known.get(key)
                if known is not None and known[0] > self._clock():
                    return known[1]
                response = await carry_out()
                self._keep(key, response)
                return response
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[key]

    def _keep(self, key: str, response: OcciResponse) -> None:
        if response.status >= 400 or len(response.body) > MOST_BODY_BYTES:
            return
        self._known[key] = (self._clock() + KEPT_SECONDS, response)
        self._known.move_to_end(key)
        while len(self._known) > MOST_KEPT:
            self._known.popitem(last=False)
