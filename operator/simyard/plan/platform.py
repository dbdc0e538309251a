# SPDX-License-Identifier: Apache-2.0
"""Whether the platform itself works: what every CloudSite tells its users about the operator.

Users of a pool do not see the operator's metrics. When its work stands still, or when its clock and that of the API
server differ, the objects of users look as if their site or their pool were at fault. So the condition
``PlatformHealthy`` of every CloudSite says it. The text of a problem stays the same while the problem lasts, and a
problem is over only after a while, so a problem costs two writes for each site: not one for each pool or Worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from simyard.api.names import Reason
from simyard.plan.times import filter_skew

MAX_OVERDUE_SECONDS = 120.0
"""A part of the work that is behind for longer stands still."""
HEALED_SECONDS = 60.0
"""A problem that was not found for so long is over."""


@dataclass(frozen=True, slots=True)
class PlatformProblem:
    """What is wrong with the platform itself: reason and message of a condition."""

    reason: Reason
    message: str


def find_problem(
    queue: str, overdue_seconds: float, skew_seconds: float | None, now: datetime
) -> PlatformProblem | None:
    """Return what is wrong at this moment, the most important first; None when nothing is.

    Args:
        queue: the part of the work that is behind most.
        overdue_seconds: for how long it is behind.
        skew_seconds: how far the API server's clock is ahead of the operator's; None before its first answer.
        now: the time.
    """
    if overdue_seconds >= MAX_OVERDUE_SECONDS:
        since = now - timedelta(seconds=overdue_seconds)
        return PlatformProblem(
            Reason.WORK_OVERDUE,
            f"the operator's work on {queue} has stood still since {since:%Y-%m-%dT%H:%M:%SZ}, so changes take effect"
            " late: the platform team finds the cause in the operator's log",
        )
    if skew := filter_skew(skew_seconds):
        return PlatformProblem(
            Reason.CLOCK_SKEW,
            f"the API server's clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the operator's, so"
            " times in statuses differ by that: the platform team sets the wrong clock",
        )
    return None


def choose_problem(
    shown: PlatformProblem | None, found: PlatformProblem | None, healthy_seconds: float
) -> PlatformProblem | None:
    """Return the problem to show.

    Args:
        shown: the problem that is shown until now.
        found: the problem at this moment.
        healthy_seconds: for how long none was found.
    """
    if found is None:
        return shown if healthy_seconds < HEALED_SECONDS else None
    return shown if shown is not None and shown.reason == found.reason else found
