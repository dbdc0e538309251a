# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of times."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta


def add_seconds(time: datetime, seconds: float) -> datetime:
    """Return the time that is ``seconds`` later."""
    return time + timedelta(seconds=seconds)


def get_seconds_until(now: datetime, times: Iterable[datetime | None]) -> float | None:
    """Return the seconds until the earliest of the times: 0 if it has passed, None if there is no time."""
    return min((max(0.0, (time - now).total_seconds()) for time in times if time is not None), default=None)


def get_milliseconds_between(earlier: datetime, later: datetime) -> int:
    """Return the whole milliseconds between two times; 0 if ``later`` is earlier, because clocks can differ."""
    return max(0, round((later - earlier).total_seconds() * 1000))


MAX_SKEW_SECONDS = 60.0
"""Maximum difference between two clocks at which both clocks count as correct."""


def filter_skew(seconds: float | None) -> float:
    """Return the seconds by which the API server's clock is ahead; 0 if they are unknown or within MAX_SKEW_SECONDS."""
    return seconds if seconds is not None and abs(seconds) > MAX_SKEW_SECONDS else 0.0
