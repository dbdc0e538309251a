"""Messages of workers that were refused: counted each, logged once per sender and while."""

from __future__ import annotations

import logging
from collections.abc import Callable

from prometheus_client import Counter

from simyard.guest.reading import Refusal, RefusedError
from simyard.guest.text import printable_line

log = logging.getLogger(__name__)

LOG_SECONDS = 60.0
MAX_SENDERS = 1000
"""Senders that are remembered; the oldest are forgotten, and would be logged again."""


class Refusals:
    """Counts and logs refusals of one kind of message: ``event``, ``attribute``."""

    def __init__(self, what: str, counter: Counter, clock: Callable[[], float]) -> None:
        """``counter`` has the label ``reason``."""
        self._what = what
        self._counter = counter
        self._clock = clock
        self._logged: dict[str, tuple[float, int]] = {}

    def note(self, sender: str, error: Exception) -> None:
        """Count a refusal, and log it unless that sender's last one was logged less than a minute ago."""
        is_refused = isinstance(error, RefusedError)
        self._counter.labels((error.refusal if isinstance(error, RefusedError) else Refusal.FAILED).value).inc()
        now = self._clock()
        since, unlogged = self._logged.pop(sender, (now - LOG_SECONDS, 0))
        if now - since < LOG_SECONDS:
            self._logged[sender] = since, unlogged + 1
            return
        self._logged[sender] = now, 0
        if len(self._logged) > MAX_SENDERS:
            del self._logged[next(iter(self._logged))]
        more = f"; {unlogged} more since the last line" if unlogged else ""
        said = str(error) if is_refused else "handling it failed, this is a defect"
        log.warning("%s of %s refused: %s%s", self._what, printable_line(sender, 200), said, more)
        if not is_refused:
            log.error("the defect", exc_info=error)
