"""What requests and responses may hold in memory at a time, so that many large ones cannot end the process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from simyard.occi.errors import OcciError

MOST_BYTES = 64 * 1024 * 1024
MOST_OF_ONE_BYTES = 16 * 1024 * 1024


class BodyBudget:
    """Bytes of requests' bodies that have arrived and are not answered yet; of one user at most a part of them."""

    def __init__(self, most_bytes: int = MOST_BYTES, most_of_one_bytes: int = MOST_OF_ONE_BYTES) -> None:
        self._most_bytes = most_bytes
        self._most_of_one_bytes = most_of_one_bytes
        self._held = 0
        self._of: Counter[str] = Counter()

    def take(self, user: str, size: int) -> None:
        """So much more has arrived.

        Raises:
            OcciError: 503, that is too much now; nothing was taken.
        """
        if self._of[user] + size > self._most_of_one_bytes or self._held + size > self._most_bytes:
            whose = "your requests hold" if self._held + size <= self._most_bytes else "requests hold"
            raise OcciError(503, f"bodies of {whose} too much memory now; try again when others are answered")
        self._held += size
        self._of[user] += size

    def give_back(self, user: str, size: int) -> None:
        """So much is not held any more."""
        self._held -= size
        self._of[user] -= size
        if not self._of[user]:
            del self._of[user]


class SendingBudget:
    """Bytes of large responses that are being sent. One that many clients get, a kept listing, counts once."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._held = 0
        self._readers: Counter[int] = Counter()

    def check(self, body: bytes) -> None:
        """Refuse to send one more; one alone may be of any size.

        Raises:
            OcciError: 503.
        """
        if self._held and id(body) not in self._readers and self._held + len(body) > self._most_bytes:
            raise OcciError(503, "too many large listings are being sent; try again, or ask for pages")

    @contextmanager
    def sending(self, body: bytes) -> Iterator[None]:
        """While it is being sent."""
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
