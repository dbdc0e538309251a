# SPDX-License-Identifier: Apache-2.0
"""Checks the operator's own work and clock at intervals, and reports new and solved problems to all sites."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NoReturn

from simyard.fleet.registry import get_time
from simyard.fleet.timing import PRODUCTION, Timing
from simyard.plan.platform import PlatformProblem, choose_problem, find_problem


class PlatformHealth:
    """Component that checks the platform; :mod:`simyard.plan.platform` decides whether there is a problem."""

    def __init__(
        self,
        overdue: Callable[[], tuple[str, float]],
        skew: Callable[[], float | None],
        clock: Callable[[], float],
        timing: Timing = PRODUCTION,
    ) -> None:
        """``overdue`` returns the part of the work that is most overdue, and by how many seconds.

        ``skew`` returns the seconds by which the API server's clock is ahead, ``clock`` a steady time. The functions in
        ``on_change`` are called with the new problem.
        """
        self.on_change: list[Callable[[PlatformProblem | None], None]] = []
        self._overdue = overdue
        self._skew = skew
        self._clock = clock
        self._timing = timing
        self._shown: PlatformProblem | None = None
        self._healthy_since = clock()

    async def run(self) -> NoReturn:
        """Check the platform at intervals until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(self._timing.platform_look_seconds)

    def look(self) -> None:
        """Check the platform once."""
        found = find_problem(*self._overdue(), self._skew(), get_time())
        if found is not None:
            self._healthy_since = self._clock()
        healthy_seconds = self._clock() - self._healthy_since
        shown = choose_problem(self._shown, found, healthy_seconds, self._timing.platform_healed_seconds)
        if shown != self._shown:
            self._shown = shown
            for changed in self.on_change:
                changed(shown)
