"""How long a pool waits before it replaces workers that keep failing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from simyard.plan.times import after

FIRST_SECONDS = 1.0
MOST_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """Rounds of failures in a row, and until when no worker is made. Workers that fail together are one round.

    ``failures`` counts the workers that failed in these rounds.
    """

    rounds: int = 0
    until: datetime | None = None
    failures: int = 0

    def waits(self, now: datetime) -> bool:
        """Whether no worker may be made now. A time that is too far away was written before the clock was set back."""
        return self.until is not None and timedelta() < self.until - now <= timedelta(seconds=MOST_SECONDS)

    def failed(self, now: datetime) -> Backoff:
        """After workers failed: the first round is replaced at once, each further one after twice as long."""
        if self.waits(now):
            return self
        seconds = 0.0 if self.rounds == 0 else min(MOST_SECONDS, FIRST_SECONDS * 2 ** min(self.rounds - 1, 16))
        return Backoff(self.rounds + 1, after(now, seconds), self.failures)

    def recovered(self, newest_ready: datetime | None) -> Backoff:
        """Start over once a worker has become ready after the newest failure was waited out."""
        if self.until is not None and newest_ready is not None and newest_ready > self.until:
            return Backoff()
        return self
