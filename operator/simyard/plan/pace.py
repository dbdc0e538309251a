# SPDX-License-Identifier: Apache-2.0
"""Pace of the requests to a site: the declared rate or the rate that the site accepts, the smaller of the two.

The problem is to find the accepted rate from refusals alone. While the site refuses no request, the declared rate
applies. The first refusal sets a peak: the rate that the site accepted until then. The rate drops below the peak, and
follows the curve of CUBIC (RFC 9438): it returns quickly to the peak, stays near it for a long time, then exceeds it.
Each later refusal may show a rate that is too high, or only a batch that is too large. So a refusal reduces the batch
at first, and sets a new peak only if another refusal follows soon. The adaptive mode of botocore uses the same curve;
the time scale here is longer, because sites are slow. Only time with waiting work counts, because idle time shows
nothing about the site. A fixed backoff would be too slow, or the site would refuse requests again and again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from simyard_adapter.backoff import compute_delay
from simyard_sites.base import SiteError

MAX_RETRY_AFTER_SECONDS = 300.0
"""Maximum pause that a site can ask for; after this time, the operator sends requests again."""
DROP = 0.2
"""Share by which the rate drops below the peak after a refusal."""
RECOVERY_SECONDS = 5.0
"""Time in which the rate returns to the peak. In the same time after that, it rises by the share :data:`DROP`."""
SPREAD_SECONDS = 0.25
"""Time for which the items of one batch last at the present rate; a short time keeps bursts small."""
AGAIN_SECONDS = 2.0
"""If two refusals are less than this time apart, the rate is too high; a single refusal may be due to the batch."""
BURST_RECOVERY_SECONDS = 10.0
"""Time after a refusal until a batch may be twice as large as the part of the refused batch that the site accepted."""
MIN_PER_SECOND = 0.2
TRUSTED_SECONDS = 0.9
TRUSTED_ITEMS = 10
"""Minimum number of items, or minimum time (``TRUSTED_SECONDS``), for the measurement of a rate."""
FIRST_PAUSE_SECONDS = 0.05
MAX_PAUSE_SECONDS = 1.0
"""Maximum pause after a refusal, unless the site asks for a longer one. Refusals without a success double the pause."""
_MIN_MEASURED_SECONDS = 0.02


def get_retry_after(error: SiteError) -> float | None:
    """Return the pause in seconds that the site asked for, limited to the maximum; None if it asked for none."""
    asked = error.retry_after_seconds
    return None if asked is None else min(max(asked, 0.0), MAX_RETRY_AFTER_SECONDS)


@dataclass(frozen=True, slots=True)
class Pace:
    """Pace of the requests to one site. Times are seconds of a monotonic clock.

    Attributes:
        bound: Declared rate, in items per second.
        peak: Rate that the site accepted before it refused items; None before the first refusal.
        refused_at: Time of the last refusal.
        refused: Number of items that the site has refused because there were too many.
        paused_until: Time before which the operator sends no requests.
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

    def get_rate(self, now: float) -> float:
        """Return the present rate, in items per second."""
        if self.peak is None:
            return self.bound
        phase = (self._get_worked_seconds(now) - RECOVERY_SECONDS) / RECOVERY_SECONDS
        return max(min(self.peak * (1 + DROP * phase**3), self.bound), min(MIN_PER_SECOND, self.bound))

    def is_throttled(self, now: float) -> bool:
        """Return whether the site accepts less than the declared rate."""
        return self.peak is not None and self.get_rate(now) < self.bound

    def get_batch(self, now: float) -> int:
        """Return the maximum number of items in a batch.

        After a refusal, the number begins with the items of that batch that the site accepted, and grows with time.
        """
        batch = self.get_rate(now) * SPREAD_SECONDS
        if self._burst:
            batch = min(
                batch,
                self._burst * (1 + (self._get_worked_seconds(now) - self._burst_seconds) / BURST_RECOVERY_SECONDS),
            )
        return max(1, int(batch))

    def start_work(self, now: float) -> Pace:
        """Return the pace after work has begun to wait for the site."""
        return self if self._working_since is not None else replace(self, _working_since=now)

    def stop_work(self, now: float) -> Pace:
        """Return the pace after the last waiting work was sent."""
        return replace(self, _worked_seconds=self._get_worked_seconds(now), _working_since=None)

    def with_bound(self, bound: float) -> Pace:
        """Return the pace with a new declared rate."""
        return replace(self, bound=bound)

    def record_answer(
        self, accepted: int, refused: int, *, sent_at: float, now: float, retry_after_seconds: float | None = None
    ) -> Pace:
        """Return the pace after the answer to a call.

        A refusal counts only if the call was sent after the last refusal.

        Args:
            accepted: Number of accepted items.
            refused: Number of items that the site refused because there were too many.
            sent_at: Time at which the call was sent.
            now: Present time.
            retry_after_seconds: Pause that the site asked for; None if it asked for none.
        """
        pace = replace(self, _accepted=self._accepted + accepted, refused=self.refused + refused)
        if accepted:
            pace = replace(pace, _refusals=0)
        if not refused or sent_at < self.refused_at:
            return pace
        pause = compute_delay(pace._refusals, FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
        worked = self._get_worked_seconds(now)
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
        peak = pace._measure_rate(now, retry_after_seconds is not None)
        if peak is None:
            return pace
        begins = pace.paused_until if retry_after_seconds is not None else now
        return replace(
            pace,
            peak=max(peak, MIN_PER_SECOND),
            _burst_seconds=0.0,
            _accepted=0,
            _worked_seconds=0.0,
            _working_since=begins,
        )

    def _measure_rate(self, now: float, pause_requested: bool) -> float | None:
        """Return the rate that the site accepts, measured at a refusal; None if the measurement is too short.

        ``pause_requested`` is True if the site asked for a pause. Then the number of accepted items alone is no reason
        to trust the measurement; it must take ``TRUSTED_SECONDS``.
        """
        worked, rate = self._get_worked_seconds(now), self.get_rate(now)
        if self.peak is None:
            return min(rate, max(self._accepted, 1) / max(worked, _MIN_MEASURED_SECONDS))
        if self._accepted and (worked >= TRUSTED_SECONDS or (self._accepted >= TRUSTED_ITEMS and not pause_requested)):
            return min(rate, self._accepted / max(worked, _MIN_MEASURED_SECONDS))
        return rate * (1 - DROP) if pause_requested or worked >= TRUSTED_SECONDS else None

    def _get_worked_seconds(self, now: float) -> float:
        return self._worked_seconds + (max(0.0, now - self._working_since) if self._working_since is not None else 0.0)
