# SPDX-License-Identifier: Apache-2.0
"""Circuit breaker of a site: it stops the requests to a site that fails, and resumes them after a probe."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from simyard.plan.pace import get_retry_after
from simyard_adapter.backoff import compute_delay
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
"""The breaker opens when this number of the last :data:`REMEMBERED_CALLS` calls have failed."""
REMEMBERED_CALLS = 10
MAX_PAUSE_SECONDS = 60.0
JITTER = 0.2
"""Maximum random variation of a pause, as a share; it keeps operators of many clusters from retrying at one time."""
_BROKEN = (UnavailableError, UnauthenticatedError, PermissionDeniedError, UnknownOutcomeError, InternalError)


class DefectError(InternalError):
    """Error for a defect of a provider: the provider raised an exception that is not a SiteError."""

    scope = ErrorScope.SITE

    @property
    def reason(self) -> str:
        """The reason that users see."""
        return "Internal"


class BreakerState(enum.StrEnum):
    """State of a breaker: Closed permits all requests, Open permits none, HalfOpen permits one at a time as a test."""

    CLOSED = "Closed"
    OPEN = "Open"
    HALF_OPEN = "HalfOpen"


def judge_call(errors: Iterable[SiteError | None], *, whole: bool) -> SiteError | Literal[True] | None:
    """Judge from one call whether a site works.

    A site that throttles, is full, or refuses an invalid request still works. A single failed item can be invalid
    itself. The site is broken if all of several items fail, or if the error is about the whole site.

    Args:
        errors: Error of each item of the call, None for an item that succeeded.
        whole: True if the call as a whole failed.

    Returns:
        An error if the site is broken, True if the site works, None if the call shows neither.
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
    """Circuit breaker of one site. Times are seconds of a monotonic clock.

    Attributes:
        first_pause_seconds: Duration of the first pause. Each further opening doubles the pause. The first duration
            applies again after :data:`REMEMBERED_CALLS` successful calls in a row.
        until: Time of the next probe while the breaker is open.
        cause: Error that opened the breaker; while the breaker is closed, the newest error of a failed call.
    """

    first_pause_seconds: float = 1.0
    state: BreakerState = BreakerState.CLOSED
    until: float = 0.0
    cause: SiteError | None = None
    _openings: int = 0
    _calls: tuple[bool, ...] = ()

    @property
    def permitted(self) -> int | None:
        """Maximum number of items under way at the same time; None if only the site's limits apply."""
        return {BreakerState.CLOSED: None, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 0}[self.state]

    def record_success(self) -> Breaker:
        """Return the breaker after a successful call; an open breaker stays open, because the call began before."""
        if self.state is BreakerState.OPEN:
            return self
        if self.state is BreakerState.HALF_OPEN:
            return Breaker(self.first_pause_seconds, _openings=self._openings, _calls=(False,))
        calls = (*self._calls, False)[-REMEMBERED_CALLS:]
        if len(calls) == REMEMBERED_CALLS and not any(calls):
            return Breaker(self.first_pause_seconds, _calls=calls)
        return replace(self, _calls=calls)

    def record_failure(self, error: SiteError, now: float, chance: float) -> Breaker:
        """Return the breaker after a failed call.

        An error about credentials opens the breaker at once, because repeated attempts can lock the account at the
        site. ``chance`` is a random number from 0 to 1; the duration of the pause depends on it.
        """
        if self.state is BreakerState.OPEN:
            return self
        calls = (*self._calls, True)[-REMEMBERED_CALLS:]
        at_once = self.state is BreakerState.HALF_OPEN or isinstance(error, UnauthenticatedError)
        if at_once or sum(calls) >= OPENING_FAILURES:
            return self._open(error, now, chance)
        return replace(self, _calls=calls, cause=error)

    def record_probe(self, error: SiteError | None, now: float, chance: float, *, waiting: bool) -> Breaker:
        """Return the breaker after a probe of the site.

        A successful probe half-opens the breaker if requests are ``waiting``, and closes it if none are. A failed probe
        opens the breaker at once.
        """
        if error is not None:
            return self if self.state is BreakerState.OPEN and now < self.until else self._open(error, now, chance)
        if self.state is BreakerState.CLOSED or (self.state is BreakerState.OPEN and now < self.until):
            return self
        state = BreakerState.HALF_OPEN if waiting else BreakerState.CLOSED
        return replace(self, state=state, until=0.0, _calls=())

    def _open(self, error: SiteError, now: float, chance: float) -> Breaker:
        pause = compute_delay(self._openings, self.first_pause_seconds, MAX_PAUSE_SECONDS)
        pause = max(pause * (1 + JITTER * (2 * chance - 1)), get_retry_after(error) or 0.0)
        return Breaker(self.first_pause_seconds, BreakerState.OPEN, now + pause, error, self._openings + 1)
