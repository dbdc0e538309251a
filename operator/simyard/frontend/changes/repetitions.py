# SPDX-License-Identifier: Apache-2.0
"""Carries out a request only once, even if it arrives several times."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from simyard.frontend.exchange import OcciResponse
from simyard.serving.answers import RecentAnswers

RESPONSE_TTL_SECONDS = 120.0
MAX_ENTRIES = 1000
MAX_BODY_BYTES = 16 * 1024
"""Maximum size of a cached response. The backend handles a repeated request whose response is longer."""


@dataclass(slots=True)
class _Turn:
    """The lock of one key, and the number of requests that hold it or wait for it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class Repetitions:
    """A cache of the newest responses by the keys of their requests.

    It exists only in this process; the backend recognises requests that other frontends have carried out. It does not
    keep a response to a request that changed nothing, so that the client can try again.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._responses: RecentAnswers[str, OcciResponse] = RecentAnswers(
            RESPONSE_TTL_SECONDS, MAX_ENTRIES, clock=clock
        )
        self._turns: dict[str, _Turn] = {}

    async def run_once(self, key: str, carry_out: Callable[[], Awaitable[OcciResponse]]) -> OcciResponse:
        """Return the cached response for a key, or carry out the request.

        Requests with the same key run one at a time.
        """
        turn = self._turns.setdefault(key, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                if (kept := self._responses.get(key)) is not None:
                    return kept.answer
                response = await carry_out()
                if response.status < 400 and len(response.body) <= MAX_BODY_BYTES:
                    self._responses.keep(key, response)
                return response
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[key]
