"""Queues of the model: what is served in turn, and what is let through at a rate. Pure; times are in seconds."""

from __future__ import annotations

import heapq
import math

from simyard_sites.base import ThrottledError
from simyard_sites.emulated.settings import Settings

_ROUNDING_SECONDS = 1e-6  # of floats that count seconds since 1970


class Servers:
    """Servers that are busy for some time each; who comes first is served first."""

    def __init__(self) -> None:
        self._free_at: list[float] = []

    def free_at(self, count: int, now: float) -> float:
        """When one of ``count`` servers (0: there is no limit) is free."""
        if not count:
            return now
        while len(self._free_at) < count:
            heapq.heappush(self._free_at, -math.inf)
        while len(self._free_at) > count:
            heapq.heappop(self._free_at)
        return max(now, self._free_at[0])

    def occupy(self, until: float) -> None:
        """Take the server that :meth:`free_at` spoke of."""
        if self._free_at:
            heapq.heapreplace(self._free_at, until)


class Rate:
    """A token bucket, full at first."""

    def __init__(self) -> None:
        self._full_at = -math.inf

    def take(self, tokens: int, burst: int, seconds_per_token: float, now: float) -> float:
        """Take tokens in turn; when the last of them is there."""
        self._full_at = max(now, self._full_at) + tokens * seconds_per_token
        return max(now, self._full_at - burst * seconds_per_token)

    def is_open(self, burst: int, seconds_per_token: float, now: float) -> bool:
        """Whether a token is there."""
        return max(now, self._full_at) + (1 - burst) * seconds_per_token <= now + _ROUNDING_SECONDS


class Front:
    """The front end of a cloud: which calls it accepts, and when it has served their items, one after the other."""

    def __init__(self) -> None:
        self._calls = 0
        self._free_at = -math.inf
        self._creates = Rate()

    def begin(self, settings: Settings) -> None:
        """Accept a call; :meth:`end` follows.

        Raises:
            ThrottledError: there are too many.
        """
        if settings.calls_in_flight and self._calls >= settings.calls_in_flight:
            raise throttled(f"{self._calls} calls are under way", settings)
        self._calls += 1

    def end(self) -> None:
        """A call has been answered."""
        self._calls -= 1

    def admit(self, settings: Settings, now: float) -> bool:
        """Whether one more machine may be created now."""
        pace = settings.seconds_per(settings.creates_per_second)
        if not self._creates.is_open(settings.create_burst, pace, now):
            return False
        self._creates.take(1, settings.create_burst, pace, now)
        return True

    def serve(self, items: int, settings: Settings, now: float) -> list[float]:
        """When each item of a call that came now has been served."""
        each = settings.seconds(settings.item_milliseconds)
        begin = max(now, self._free_at) + settings.seconds(settings.call_milliseconds)
        self._free_at = begin + items * each
        return [begin + number * each for number in range(1, items + 1)]


def throttled(why: str, settings: Settings) -> ThrottledError:
    """A refusal; it says when to come again only if the settings do."""
    seconds = settings.seconds(settings.retry_after_milliseconds)
    return ThrottledError(f"emulated: too many requests: {why}", retry_after_seconds=seconds or None)
