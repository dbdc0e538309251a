# SPDX-License-Identifier: Apache-2.0
"""Refusals of workers' messages: every refusal is counted, and each sender gets at most one log line per minute."""

from __future__ import annotations

import logging
from collections.abc import Callable

from prometheus_client import Counter

from simyard.guest.reading import Refusal, RefusedError
from simyard.guest.text import make_printable_line

log = logging.getLogger(__name__)

LOG_SECONDS = 60.0
MAX_SENDERS = 1000
"""Maximum number of senders whose last log line is remembered; a forgotten sender may get a log line earlier."""


class Refusals:
    """Recorder of the refusals of one kind of message (``event``, ``attribute``). It counts all, and logs some."""

    def __init__(self, what: str, counter: Counter, clock: Callable[[], float]) -> None:
        """Create a recorder. ``what`` is the kind of message; ``counter`` must have the label ``reason``."""
        self._what = what
        self._counter = counter
        self._clock = clock
        self._logged: dict[str, tuple[float, int]] = {}

    def note(self, sender: str, error: Exception) -> None:
        """Count a refusal. Log it, unless the sender got a log line less than a minute ago."""
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
        said = str(error) if is_refused else "handling it failed; this is a defect of Simyard, please report it"
        log.warning("%s of %s refused: %s%s", self._what, make_printable_line(sender, 200), said, more)
        if not is_refused:
            log.error("the defect that made the handler of a message fail", exc_info=error)
