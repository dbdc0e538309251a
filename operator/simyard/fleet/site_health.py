"""Whether a site can be used: its probes, its stream of events, and what its answers to requests say."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import NoReturn

from simyard.api.cloud_site import SiteWorkers
from simyard.fleet.registry import now
from simyard.plan.site import SiteObservation
from simyard_sites.base import (
    CapacityExhaustedError,
    Machine,
    QuotaExhaustedError,
    Site,
    SiteError,
    Stage,
    UnavailableError,
)

PROBE_SECONDS = 60.0
PROBE_DEADLINE_SECONDS = 30.0
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0


def pause_after(failures: int) -> float:
    """Seconds to wait after so many failures in a row."""
    return min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(failures - 1, 16))


class SiteHealth:
    """What is known of a site as a whole; ``changed`` is called when its status may be different."""

    def __init__(self, provider: Site, changed: Callable[[], None]) -> None:
        self._provider = provider
        self._changed = changed
        self._version = ""
        self._probed: datetime | None = None
        self._probe_error: SiteError | None = None
        self._stream_error: SiteError | None = None
        self._exhausted: SiteError | None = None
        self._exhausted_until = 0.0
        self._clock = asyncio.get_running_loop().time
        self._boot_seconds: deque[float] = deque(maxlen=101)
        self._failures = 0
        self._probe_wanted = asyncio.Event()

    @property
    def exhausted_seconds(self) -> float:
        """How long the site still counts as full, or its quota as used up; then it is tried again."""
        return max(0.0, self._exhausted_until - self._clock()) if self._exhausted is not None else 0.0

    @property
    def boot_seconds(self) -> float | None:
        """The median time from accepting a machine to running it, of the newest ones."""
        return statistics.median(self._boot_seconds) if self._boot_seconds else None

    def observation(self, machines: SiteWorkers, desired: int) -> SiteObservation:
        """What the site's status is made from."""
        return SiteObservation(
            workers=machines,
            desired=desired,
            version=self._version,
            error=self._probe_error or self._stream_error,
            exhausted=self._exhausted if self.exhausted_seconds else None,
            probed=self._probed,
        )

    def stream(self, error: SiteError | None) -> None:
        """The stream of events broke, or (None) works."""
        self._stream_error = error
        self._changed()

    def booted(self, machine: Machine) -> None:
        """A machine has begun to run."""
        if Stage.RUNNING in machine.entered and Stage.PENDING in machine.entered:
            self._boot_seconds.append(machine.entered[Stage.RUNNING] - machine.entered[Stage.PENDING])

    def served(self) -> None:
        """The site created a machine."""
        self._failures = 0
        if self._exhausted is not None:
            self._exhausted = None
            self._changed()

    def refused(self, error: SiteError) -> float:
        """The site as a whole refused a request; after how many seconds to try again."""
        self._failures += 1
        seconds = error.retry_after_seconds or pause_after(self._failures)
        if isinstance(error, QuotaExhaustedError | CapacityExhaustedError):
            self._exhausted, self._exhausted_until = error, self._clock() + seconds
        else:
            self._probe_wanted.set()
        self._changed()
        return seconds

    async def probe(self) -> NoReturn:
        """Probe now and then until cancelled; sooner after failures."""
        failures = 0
        while True:
            self._probe_wanted.clear()
            try:
                async with asyncio.timeout(PROBE_DEADLINE_SECONDS):
                    info = await self._provider.probe()
                self._version, self._probe_error, failures = info.version, None, 0
            except TimeoutError:
                self._probe_error = UnavailableError(f"no answer within {PROBE_DEADLINE_SECONDS:.0f} s")
            except SiteError as error:
                self._probe_error = error
            if self._probe_error is not None:
                failures += 1
            self._probed = now()
            self._changed()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_after(failures) if failures else PROBE_SECONDS):
                    await self._probe_wanted.wait()
