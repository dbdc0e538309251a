# SPDX-License-Identifier: Apache-2.0
"""The allowance of broker users: the number of events that a user may send in a time. The module does no I/O.

Each user has a bucket of tokens (token bucket, RFC 3290 appendix A). An event costs one token, and a further token for
each 32 KiB of its body. The bucket refills at a rate that grows with the number of the user's workers. An honest
adapter stays far below the allowance, because it merges changes of attributes and sends only a few events for each
action. A user whose bucket is empty has sent more events than a tenant may, and has delayed the events of all other
tenants in the shared queue.

An honest adapter sends no events that the operator refuses. Such events cost the broker and the operator the most work,
because they pass two queues. So a refused event costs ten further tokens. Otherwise, a busy operator could receive a
flood of such events more slowly than the allowance permits, and would not notice the flood.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simyard_adapter.limits import KIB

EVENTS_PER_SECOND = 500.0
EVENTS_PER_SECOND_AND_WORKER = 5.0
BURST_SECONDS = 4.0
"""Time in which an empty bucket becomes full."""
BYTES_PER_TOKEN = 32 * KIB
REFUSED_EVENT_BYTES = 9 * BYTES_PER_TOKEN
"""Additional size with which a refused event counts, so that it costs ten further tokens."""
MAX_BUCKETS = 100_000


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at: float


class Allowances:
    """The buckets of all broker users. ``workers`` returns the number of workers of a user."""

    def __init__(self, workers: Callable[[str], int]) -> None:
        self._workers = workers
        self._buckets: dict[str, _Bucket] = {}

    def spend(self, user: str, now: float, size: int = 0) -> bool:
        """Spend the tokens for an event of ``size`` bytes; return whether the bucket had at least one token.

        ``now`` is the time on a monotonic clock, in seconds.

        An event may cost more tokens than the bucket has. The bucket is then negative for some time. So a user can also
        send an event that costs more than a full bucket.
        """
        bucket = self._buckets.get(user)
        if bucket is None:
            bucket = self._open(user, now)
        if bucket.tokens < 1:
            rate = self._rate(user)
            bucket.tokens = min(rate * BURST_SECONDS, bucket.tokens + rate * (now - bucket.filled_at))
            bucket.filled_at = now
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1 + size / BYTES_PER_TOKEN
        return True

    def forget(self, user: str) -> None:
        """Forget the bucket of a user. With its next event, the user gets a full bucket."""
        self._buckets.pop(user, None)

    def _open(self, user: str, now: float) -> _Bucket:
        if len(self._buckets) >= MAX_BUCKETS:
            self._buckets.pop(next(iter(self._buckets)))
        bucket = self._buckets[user] = _Bucket(self._rate(user) * BURST_SECONDS, now)
        return bucket

    def _rate(self, user: str) -> float:
        return EVENTS_PER_SECOND + EVENTS_PER_SECOND_AND_WORKER * self._workers(user)
