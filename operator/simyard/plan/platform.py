# SPDX-License-Identifier: Apache-2.0
"""Problems of the platform itself, which every CloudSite shows to its users.

Users of a pool do not see the operator's metrics. If the operator's work stands still, or if its clock differs from the
API server's clock, users would search for the fault in their site or pool. So the condition ``PlatformHealthy`` of
every CloudSite reports the problem. Its text does not change while the problem lasts, and the condition becomes True
only after :data:`HEALED_SECONDS` without a problem. So a problem causes two writes for each site, and no write for a
pool or Worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from simyard.api.names import Reason
from simyard.plan.times import filter_skew

MAX_OVERDUE_SECONDS = 120.0
"""If a part of the operator's work is overdue for this time, it counts as standing still."""
HEALED_SECONDS = 60.0
"""Time without a problem after which the last problem counts as solved."""


@dataclass(frozen=True, slots=True)
class PlatformProblem:
    """Problem of the platform itself, as reason and message of a condition."""

    reason: Reason
    message: str


def find_problem(
    queue: str, overdue_seconds: float, skew_seconds: float | None, now: datetime
) -> PlatformProblem | None:
    """Return the present problem of the platform; a standstill comes before a wrong clock. None: no problem.

    Args:
        queue: Name of the part of the operator's work that is most overdue.
        overdue_seconds: Time for which this part has been overdue.
        skew_seconds: Time by which the API server's clock is ahead of the operator's; None before its first answer.
        now: Present time.
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
    shown: PlatformProblem | None,
    found: PlatformProblem | None,
    healthy_seconds: float,
    healed_seconds: float = HEALED_SECONDS,
) -> PlatformProblem | None:
    """Return the problem to show.

    Args:
        shown: Problem that the CloudSites show now.
        found: Result of the newest check.
        healthy_seconds: Time since a check last found a problem.
        healed_seconds: Time without a problem after which the shown problem counts as solved.
    """
    if found is None:
        return shown if healthy_seconds < healed_seconds else None
    return shown if shown is not None and shown.reason == found.reason else found
