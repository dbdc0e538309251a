# SPDX-License-Identifier: Apache-2.0
"""The allowance of broker users: the number of events that a user may send in a period. Pure.

Each user has a bucket of tokens (token bucket, RFC 3290 appendix A). An event costs one token, and a further token for
each 32 KiB of its body. The bucket refills at a rate that grows with the number of the user's workers. An honest
adapter merges changes of attributes and sends a few events for each action, so it stays far below the allowance. A
sender with an empty bucket publishes faster than a tenant may, and delays the events of all other tenants in the shared
queue.

No adapter sends events that are refused. They cost the broker and the operator the most, because they pass two queues.
A refused event therefore costs ten tokens more. Otherwise a busy operator could receive a flood of them more slowly
than the allowance, and never notice it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simyard_adapter.limits import KIB

EVENTS_PER_SECOND = 500.0
EVENTS_PER_SECOND_AND_WORKER = 5.0
BURST_SECONDS = 4.0
"""Time that it takes to fill an empty bucket."""
BYTES_PER_TOKEN = 32 * KIB
REFUSED_EVENT_BYTES = 9 * BYTES_PER_TOKEN
"""Size with which a refused event counts once more: ten further tokens."""
MAX_BUCKETS = 100_000


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at: float


class Allowances:
    """The buckets of all senders. ``workers`` returns the number of workers of a broker user."""

    def __init__(self, workers: Callable[[str], int]) -> None:
        self._workers = workers
        self._buckets: dict[str, _Bucket] = {}

    def spend(self, user: str, now: float, size: int = 0) -> bool:
        """Spend the tokens for an event of ``size`` bytes, and return whether the bucket had tokens.

        ``now`` is monotonic.

        The last event may cost more tokens than the bucket has. The bucket is then negative for a while, so that events
        larger than a bucket are possible.
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
        """Forget the bucket of a user; the next event of the user begins a full bucket."""
        self._buckets.pop(user, None)

    def _open(self, user: str, now: float) -> _Bucket:
        if len(self._buckets) >= MAX_BUCKETS:
            self._buckets.pop(next(iter(self._buckets)))
        bucket = self._buckets[user] = _Bucket(self._rate(user) * BURST_SECONDS, now)
        return bucket

    def _rate(self, user: str) -> float:
        return EVENTS_PER_SECOND + EVENTS_PER_SECOND_AND_WORKER * self._workers(user)
