"""How many items per second a site is asked for: as declared, and no more than it was found to accept."""

from __future__ import annotations

from dataclasses import dataclass, replace

from simyard_sites.base import SiteError

MOST_RETRY_AFTER_SECONDS = 300.0
"""A site that asks to be left alone for longer is tried again after this time."""
DROP = 0.2
"""Share by which the rate falls below the one that was refused."""
RECOVERY_SECONDS = 5.0
"""So long it takes to come back to that rate; for as long again it goes hardly beyond."""
SPREAD_SECONDS = 0.25
"""A batch is at most what the rate permits in this time: no bursts, and few refusals when one comes too early."""
AGAIN_SECONDS = 2.0
"""A second refusal within this time shows that the rate is too high; a single one may only have been too large."""
BURST_RECOVERY_SECONDS = 10.0
"""So long it takes until batches are twice as large as what once fitted."""
LEAST_PER_SECOND = 0.2
TRUSTED_SECONDS = 0.9
TRUSTED_ITEMS = 10
"""What was accepted in so long, or so many items, says what the site bears."""
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 1.0
"""After a refusal nothing is sent for so long, twice as long after each that follows at once, unless the site says."""
_SHORTEST_SECONDS = 0.02


def retry_after(error: SiteError) -> float | None:
    """For how many seconds the site asked to be left alone, as far as that is obeyed; None when it did not say."""
    asked = error.retry_after_seconds
    return None if asked is None else min(max(asked, 0.0), MOST_RETRY_AFTER_SECONDS)


@dataclass(frozen=True, slots=True)
class Pace:
    """The rate of requests to one site; times are seconds of a monotonic clock.

    While the site refuses nothing the declared rate holds. A refusal says what fits at once; when another one follows
    soon, what the site accepted per second meanwhile is the rate that it bears. From there the rate follows the curve
    of CUBIC (RFC 9438, as in the adaptive mode of botocore, with a time scale of its own for slow sites): quickly back,
    long near that rate, then beyond. Only time in which something was to be done counts: a quiet night teaches nothing.

    Attributes:
        bound: the declared rate, items per second.
        peak: the rate that was last refused; None while none was.
        refused_at: when something was refused last.
        refused: items refused as too many, in all.
        paused_until: nothing is to be sent before.
    """

    bound: float
    peak: float | None = None
    refused_at: float = float("-inf")
    refused: int = 0
    paused_until: float = float("-inf")
    _refusals: int = 0
    _burst: int = 0
    _burst_seconds: float = 0.0
    _accepted: int = 0
    _worked_seconds: float = 0.0
    _working_since: float | None = None

    def rate(self, now: float) -> float:
        """Items per second."""
        if self.peak is None:
            return self.bound
        phase = (self._worked(now) - RECOVERY_SECONDS) / RECOVERY_SECONDS
        return max(min(self.peak * (1 + DROP * phase**3), self.bound), min(LEAST_PER_SECOND, self.bound))

    def is_throttled(self, now: float) -> bool:
        """The site bears less than was declared."""
        return self.peak is not None and self.rate(now) < self.bound

    def batch(self, now: float) -> int:
        """The most items that go out at once. What was accepted of a batch that was refused in part did fit."""
        batch = self.rate(now) * SPREAD_SECONDS
        if self._burst:
            batch = min(batch, self._burst * (1 + (self._worked(now) - self._burst_seconds) / BURST_RECOVERY_SECONDS))
        return max(1, int(batch))

    def working(self, now: float) -> Pace:
        """Something is to be done."""
        return self if self._working_since is not None else replace(self, _working_since=now)

    def resting(self, now: float) -> Pace:
        """Nothing is to be done."""
        return replace(self, _worked_seconds=self._worked(now), _working_since=None)

    def bounded(self, bound: float) -> Pace:
        """With another declared rate."""
        return replace(self, bound=bound)

    def answered(
        self, accepted: int, refused: int, *, sent_at: float, now: float, retry_after_seconds: float | None = None
    ) -> Pace:
        """After a call, sent at that time, of which so many items were accepted and so many refused as too many.

        A refusal of what was sent before the last one says nothing new.
        """
        pace = replace(self, _accepted=self._accepted + accepted, refused=self.refused + refused)
        if accepted:
            pace = replace(pace, _refusals=0)
        if not refused or sent_at < self.refused_at:
            return pace
        pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(pace._refusals, 16))
        worked = self._worked(now)
        pace = replace(
            pace,
            refused_at=now,
            paused_until=now + (pause if retry_after_seconds is None else retry_after_seconds),
            _refusals=pace._refusals + 1,
            _burst=max(1, accepted or refused // 2),
            _burst_seconds=worked,
        )
        too_large = accepted + refused > 1 and worked - self._burst_seconds > AGAIN_SECONDS
        if self.peak is not None and too_large:
            return pace
        peak = pace._borne(now, retry_after_seconds is not None)
        if peak is None:
            return pace
        begins = pace.paused_until if retry_after_seconds is not None else now
        return replace(
            pace,
            peak=max(peak, LEAST_PER_SECOND),
            _burst_seconds=0.0,
            _accepted=0,
            _worked_seconds=0.0,
            _working_since=begins,
        )

    def _borne(self, now: float, told: bool) -> float | None:
        """The rate that the site bears, as far as it can be said after a refusal; None when it is too early.

        ``told``: the site said how long to wait. That time says nothing of its rate, so none can be measured soon.
        """
        worked, rate = self._worked(now), self.rate(now)
        if self.peak is None:
            return min(rate, max(self._accepted, 1) / max(worked, _SHORTEST_SECONDS))
        if self._accepted and (worked >= TRUSTED_SECONDS or (self._accepted >= TRUSTED_ITEMS and not told)):
            return min(rate, self._accepted / max(worked, _SHORTEST_SECONDS))
        return rate * (1 - DROP) if told or worked >= TRUSTED_SECONDS else None

    def _worked(self, now: float) -> float:
        return self._worked_seconds + (max(0.0, now - self._working_since) if self._working_since is not None else 0.0)
