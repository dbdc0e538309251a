# SPDX-License-Identifier: Apache-2.0
"""Limits the memory of requests and responses, so that many large messages cannot end the process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from simyard.occi.errors import OcciError

MAX_BYTES = 64 * 1024 * 1024
MAX_BYTES_PER_USER = 16 * 1024 * 1024


class BodyBudget:
    """The bytes of unanswered request bodies: a counter with limits per user and in total."""

    def __init__(self, max_bytes: int = MAX_BYTES, max_bytes_per_user: int = MAX_BYTES_PER_USER) -> None:
        self._max_bytes = max_bytes
        self._max_bytes_per_user = max_bytes_per_user
        self._held = 0
        self._of: Counter[str] = Counter()

    def reserve(self, user: str, size: int) -> None:
        """Reserve memory for a part of a body that has arrived.

        Raises:
            OcciError: 503, a limit would be exceeded; nothing was reserved.
        """
        if self._of[user] + size > self._max_bytes_per_user or self._held + size > self._max_bytes:
            whose = "your requests" if self._held + size <= self._max_bytes else "all requests"
            raise OcciError(
                503, f"the bodies of {whose} occupy too much memory now; try again when some of them are answered"
            )
        self._held += size
        self._of[user] += size

    def release(self, user: str, size: int) -> None:
        """Release memory that was reserved."""
        self._held -= size
        self._of[user] -= size
        if not self._of[user]:
            del self._of[user]


class SendingBudget:
    """The bytes of the large responses that are being sent. A cached listing that many clients receive counts once."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._held = 0
        self._readers: Counter[int] = Counter()

    def check(self, body: bytes) -> None:
        """Raise an error if this large response would exceed the limit. A single response may have any size.

        Raises:
            OcciError: 503.
        """
        if self._held and id(body) not in self._readers and self._held + len(body) > self._max_bytes:
            raise OcciError(503, "too many large listings are being sent; try again, or ask for pages")

    @contextmanager
    def sending(self, body: bytes) -> Iterator[None]:
        """Count a body while it is being sent."""
        key = id(body)
        self._held += 0 if self._readers[key] else len(body)
        self._readers[key] += 1
        try:
            yield
        finally:
            self._readers[key] -= 1
            if not self._readers[key]:
                del self._readers[key]
                self._held -= len(body)
