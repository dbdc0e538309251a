"""The circuit breaker of a site: when it is left alone, and when it is tried again."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from simyard.plan.pace import retry_after
from simyard_sites.base import (
    ErrorScope,
    InternalError,
    PermissionDeniedError,
    SiteError,
    UnauthenticatedError,
    UnavailableError,
    UnknownOutcomeError,
)

OPENING_FAILURES = 5
"""So many failed calls among the last :data:`REMEMBERED_CALLS` open it: in a row, or half of them."""
REMEMBERED_CALLS = 10
LONGEST_PAUSE_SECONDS = 60.0
JITTER = 0.2
"""A pause varies by up to this share, so that operators of many clusters do not come back together."""
_BROKEN = (UnavailableError, UnauthenticatedError, PermissionDeniedError, UnknownOutcomeError, InternalError)


class DefectError(InternalError):
    """A provider raised what no provider may raise: somebody must mend it. Every machine of the site may meet it."""

    scope = ErrorScope.SITE

    @property
    def reason(self) -> str:
        """The reason of the error that it is for users."""
        return "Internal"


class BreakerState(enum.StrEnum):
    """Closed: requests go through. Open: none does. HalfOpen: one at a time, to see whether the site works again."""

    CLOSED = "Closed"
    OPEN = "Open"
    HALF_OPEN = "HalfOpen"


def verdict(errors: Iterable[SiteError | None], *, whole: bool) -> SiteError | Literal[True] | None:
    """What the outcomes of a call's items say about the site: the error that shows that it is broken, True when it
    works, None when they say neither.

    ``whole``: the call itself failed. A throttled site, a full one and one that refuses a bad request work. One item
    that fails alone may be the item's fault; several that all fail are the site's.
    """
    failed: SiteError | None = None
    count = 0
    for error in errors:
        if error is None or not isinstance(error, _BROKEN):
            return True
        failed, count = error, count + 1
    if failed is None:
        return None
    return failed if whole or count > 1 or failed.scope is ErrorScope.SITE else None


@dataclass(frozen=True, slots=True)
class Breaker:
    """Of one site. Times are seconds of a monotonic clock.

    Attributes:
        first_pause_seconds: how long it stays open at first; each further time twice as long, until ten calls in a row
            succeeded.
        until: while it is open: when the site is probed next.
        cause: why it is not closed, or the newest failure.
    """

    first_pause_seconds: float = 1.0
    state: BreakerState = BreakerState.CLOSED
    until: float = 0.0
    cause: SiteError | None = None
    _openings: int = 0
    _calls: tuple[bool, ...] = ()

    @property
    def permitted(self) -> int | None:
        """How many items may be under way at once; None: as many as the site's limits say."""
        return {BreakerState.CLOSED: None, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 0}[self.state]

    def served(self) -> Breaker:
        """A call showed that the site works. Answers to what was sent before it opened do not close it."""
        if self.state is BreakerState.OPEN:
            return self
        if self.state is BreakerState.HALF_OPEN:
            return Breaker(self.first_pause_seconds, _openings=self._openings, _calls=(False,))
        calls = (*self._calls, False)[-REMEMBERED_CALLS:]
        if len(calls) == REMEMBERED_CALLS and not any(calls):
            return Breaker(self.first_pause_seconds, _calls=calls)
        return replace(self, _calls=calls)

    def failed(self, error: SiteError, now: float, chance: float) -> Breaker:
        """A call failed. Wrong credentials open at once: repeating them may lock the account.

        ``chance`` is a random number from 0 to 1.
        """
        if self.state is BreakerState.OPEN:
            return self
        calls = (*self._calls, True)[-REMEMBERED_CALLS:]
        at_once = self.state is BreakerState.HALF_OPEN or isinstance(error, UnauthenticatedError)
        if at_once or sum(calls) >= OPENING_FAILURES:
            return self._opened(error, now, chance)
        return replace(self, _calls=calls, cause=error)

    def probed(self, error: SiteError | None, now: float, chance: float, *, waiting: bool) -> Breaker:
        """The site was probed. When it works one request may try; when none waits (``waiting``) it closes.

        A failed probe opens at once; it is what a probe is for.
        """
        if error is not None:
            return self if self.state is BreakerState.OPEN and now < self.until else self._opened(error, now, chance)
        if self.state is BreakerState.CLOSED or (self.state is BreakerState.OPEN and now < self.until):
            return self
        state = BreakerState.HALF_OPEN if waiting else BreakerState.CLOSED
        return replace(self, state=state, until=0.0, _calls=())

    def _opened(self, error: SiteError, now: float, chance: float) -> Breaker:
        pause = min(LONGEST_PAUSE_SECONDS, self.first_pause_seconds * 2.0 ** min(self._openings, 16))
        pause = max(pause * (1 + JITTER * (2 * chance - 1)), retry_after(error) or 0.0)
        return Breaker(self.first_pause_seconds, BreakerState.OPEN, now + pause, error, self._openings + 1)
