# SPDX-License-Identifier: Apache-2.0
"""Models queues: servers that handle one request after the other, and rate limits. Pure; times are in seconds."""

from __future__ import annotations

import heapq
import math

from simyard_sites.base import ThrottledError
from simyard_sites.emulated.settings import Settings

_ROUNDING_SECONDS = 1e-6  # The rounding error of floats that count seconds since 1970.


class Servers:
    """A group of equal servers, each of which is busy until a time. Requests are served in the order of arrival."""

    def __init__(self) -> None:
        self._free_at: list[float] = []

    def free_at(self, count: int, now: float) -> float:
        """Return the time at which one of ``count`` servers is free (0: no limit)."""
        if not count:
            return now
        while len(self._free_at) < count:
            heapq.heappush(self._free_at, -math.inf)
        while len(self._free_at) > count:
            heapq.heappop(self._free_at)
        return max(now, self._free_at[0])

    def occupy(self, until: float) -> None:
        """Occupy the server that :meth:`free_at` found."""
        if self._free_at:
            heapq.heapreplace(self._free_at, until)


class Rate:
    """A token bucket that starts full."""

    def __init__(self) -> None:
        self._full_at = -math.inf

    def reserve(self, tokens: int, burst: int, seconds_per_token: float, now: float) -> float:
        """Reserve tokens after those that are reserved already; return the time at which the last one is available."""
        self._full_at = max(now, self._full_at) + tokens * seconds_per_token
        return max(now, self._full_at - burst * seconds_per_token)

    def is_open(self, burst: int, seconds_per_token: float, now: float) -> bool:
        """Return True if a token is available."""
        return max(now, self._full_at) + (1 - burst) * seconds_per_token <= now + _ROUNDING_SECONDS


class Front:
    """The front end of a cloud: it accepts or refuses calls, and serves their items one after the other."""

    def __init__(self) -> None:
        self._calls = 0
        self._free_at = -math.inf
        self._creates = Rate()

    def begin(self, settings: Settings) -> None:
        """Accept a call. The caller must call :meth:`end` when the call is answered.

        Raises:
            ThrottledError: Too many calls are running.
        """
        if settings.calls_in_flight and self._calls >= settings.calls_in_flight:
            raise make_throttled_error(f"{self._calls} calls are running", settings)
        self._calls += 1

    def end(self) -> None:
        """Record that a call has been answered."""
        self._calls -= 1

    def admit(self, settings: Settings, now: float) -> bool:
        """Return True if one more machine may be created now."""
        pace = settings.compute_interval(settings.creates_per_second)
        if not self._creates.is_open(settings.create_burst, pace, now):
            return False
        self._creates.reserve(1, settings.create_burst, pace, now)
        return True

    def serve(self, items: int, settings: Settings, now: float) -> list[float]:
        """Return the time at which the front end has served each item of a call that arrives now."""
        each = settings.compute_seconds(settings.item_milliseconds)
        begin = max(now, self._free_at) + settings.compute_seconds(settings.call_milliseconds)
        self._free_at = begin + items * each
        return [begin + number * each for number in range(1, items + 1)]


def make_throttled_error(why: str, settings: Settings) -> ThrottledError:
    """Return a refusal; it has a delay only if the settings give one."""
    seconds = settings.compute_seconds(settings.retry_after_milliseconds)
    return ThrottledError(f"emulated: too many requests: {why}", retry_after_seconds=seconds or None)
