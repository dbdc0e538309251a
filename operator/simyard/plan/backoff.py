# SPDX-License-Identifier: Apache-2.0
"""Backoff of a pool whose workers keep failing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from simyard.plan.times import add_seconds
from simyard_adapter.backoff import compute_delay

FIRST_BACKOFF_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """Backoff of one pool after failures.

    Attributes:
        rounds: Consecutive rounds of failures; workers that fail together are one round.
        until: Time before which no worker is created.
        failures: Number of workers that failed in these rounds.
    """

    rounds: int = 0
    until: datetime | None = None
    failures: int = 0

    def is_waiting(self, now: datetime) -> bool:
        """Return whether no worker may be created now.

        The function ignores an ``until`` beyond ``MAX_BACKOFF_SECONDS``: the clock was set back after it was written.
        """
        return self.until is not None and timedelta() < self.until - now <= timedelta(seconds=MAX_BACKOFF_SECONDS)

    def record_failure(self, now: datetime) -> Backoff:
        """Return the backoff after a failure.

        The first round of failures causes no delay, the second one ``FIRST_BACKOFF_SECONDS``. Each later round doubles
        the delay, up to ``MAX_BACKOFF_SECONDS``.
        """
        if self.is_waiting(now):
            return self
        seconds = (
            0.0 if self.rounds == 0 else compute_delay(self.rounds - 1, FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS)
        )
        return Backoff(self.rounds + 1, add_seconds(now, seconds), self.failures)

    def record_ready(self, newest_ready: datetime | None) -> Backoff:
        """Return an empty backoff if a worker became ready after the end of the delay, else this backoff.

        ``newest_ready`` is the time at which the newest ready worker became ready.
        """
        if self.until is not None and newest_ready is not None and newest_ready > self.until:
            return Backoff()
        return self
