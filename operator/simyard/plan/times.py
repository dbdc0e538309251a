"""Arithmetic of times that every plan needs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta


def after(time: datetime, seconds: float) -> datetime:
    """The time so many seconds later."""
    return time + timedelta(seconds=seconds)


def seconds_until(now: datetime, times: Iterable[datetime | None]) -> float | None:
    """Seconds until the earliest of the times (0 when it has passed), None when there is none."""
    return min((max(0.0, (time - now).total_seconds()) for time in times if time is not None), default=None)


def milliseconds_between(earlier: datetime, later: datetime) -> int:
    """Whole milliseconds, never negative (two clocks may disagree by some)."""
    return max(0, round((later - earlier).total_seconds() * 1000))


MAX_SKEW_SECONDS = 60.0
"""Two clocks may be so far apart before one of them counts as wrong."""


def believed_skew(seconds: float | None) -> float:
    """Return how far the API server's clock is ahead of ours where ours is wrong; 0 where both agree."""
    return seconds if seconds is not None and abs(seconds) > MAX_SKEW_SECONDS else 0.0
