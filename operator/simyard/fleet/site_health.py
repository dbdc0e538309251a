"""Whether a site can be used: its probes, its stream of events, its breaker, and what its answers to requests say."""

from __future__ import annotations

import asyncio
import contextlib
import random
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import NoReturn

from prometheus_client import Gauge

from simyard.api.cloud_site import SiteWorkers
from simyard.fleet.registry import now
from simyard.plan.breaker import Breaker, BreakerState, DefectError
from simyard.plan.pace import retry_after
from simyard.plan.site import BreakerName, BreakerObservation, CallObservation, SiteObservation, StageSeconds
from simyard_sites.base import (
    Machine,
    PermissionDeniedError,
    Site,
    SiteError,
    Stage,
    UnauthenticatedError,
    UnavailableError,
)

BREAKER = Gauge("simyard_site_breaker_open", "1 while the breaker of a site is open or half open, else 0.", ["site"])

PROBE_SECONDS = 60.0
PROBE_DEADLINE_SECONDS = 30.0
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
LONG_THROTTLE_SECONDS = 10.0
"""While a site wants to be left alone for so long or longer, new Workers go elsewhere."""
_STATES: Mapping[BreakerState, BreakerName] = {
    BreakerState.CLOSED: "Closed",
    BreakerState.OPEN: "Open",
    BreakerState.HALF_OPEN: "HalfOpen",
}
_STAGES = (Stage.PENDING, Stage.PROLOG, Stage.BOOT, Stage.RUNNING)


def forget_breaker(name: str) -> None:
    """Drop the gauge of a site that has no breaker any more."""
    with contextlib.suppress(KeyError):
        BREAKER.remove(name)


def pause_after(failures: int) -> float:
    """Seconds to wait after so many failures in a row."""
    return min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(failures - 1, 16))


class SiteHealth:
    """What is known of a site as a whole.

    ``changed`` is called when its status may be different, ``permitted_changed`` when its breaker permits more than
    before; ``waits`` says whether a request to it waits to be sent.
    """

    def __init__(
        self,
        name: str,
        provider: Site,
        *,
        changed: Callable[[], None],
        permitted_changed: Callable[[], None],
        waits: Callable[[], bool],
    ) -> None:
        self._name = name
        self._provider = provider
        self._changed = changed
        self._permitted_changed = permitted_changed
        self._waits = waits
        self._version = ""
        self._capacity: int | None = None
        self._full_at: int | None = None
        self._probed: datetime | None = None
        self._probe_error: SiteError | None = None
        self._stream_error: SiteError | None = None
        self._defect: DefectError | None = None
        self._defect_until = 0.0
        self._exhausted: SiteError | None = None
        self._exhausted_until = 0.0
        self._throttled: SiteError | None = None
        self._throttled_until = 0.0
        self._paused_until: datetime | None = None
        self._clock = asyncio.get_running_loop().time
        self._stages: dict[Stage, deque[float]] = {stage: deque(maxlen=101) for stage in _STAGES}
        self._full = 0
        self._breaker = Breaker(FIRST_PAUSE_SECONDS)
        self._breaker_seen = BreakerObservation()
        self._probe_wanted = asyncio.Event()
        self._permits = asyncio.Event()
        self._permits.set()
        BREAKER.labels(name).set(0)

    @property
    def exhausted_seconds(self) -> float:
        """How long no new Workers go there: it is full, its quota is used up, or it wants to be left alone."""
        return max(self._full_seconds, self._throttled_seconds)

    @property
    def _full_seconds(self) -> float:
        return max(0.0, self._exhausted_until - self._clock()) if self._exhausted is not None else 0.0

    @property
    def _throttled_seconds(self) -> float:
        return max(0.0, self._throttled_until - self._clock())

    @property
    def capacity(self) -> int | None:
        """How many machines fit there in all, as the site says; None when it does not."""
        return self._capacity

    @property
    def full_at(self) -> int | None:
        """With how many machines the site was full, if nothing has shown since that more fit."""
        return self._full_at

    @property
    def boot_seconds(self) -> float | None:
        """The median time from accepting a machine to running it, of the newest ones."""
        return self._median(Stage.RUNNING)

    @property
    def permitted(self) -> int | None:
        """How many items may be under way at once because of the breaker; None: as many as the limits say."""
        return self._breaker.permitted

    def observation(self, machines: SiteWorkers, desired: int, calls: Iterable[CallObservation]) -> SiteObservation:
        """What the site's status is made from."""
        pending, prolog, boot, running = (self._median(stage) for stage in _STAGES)
        throttled = self._throttled_seconds > 0
        return SiteObservation(
            workers=machines,
            desired=desired,
            version=self._version,
            capacity=self._capacity,
            error=self._probe_error
            or self._stream_error
            or (self._defect if self._clock() < self._defect_until else None),
            exhausted=self._throttled if throttled else self._exhausted if self._full_seconds else None,
            paused_until=self._paused_until if throttled else None,
            probed=self._probed,
            calls=tuple(calls),
            stages=StageSeconds(pending, prolog, boot, running),
            breaker=self._breaker_seen,
        )

    def stream(self, error: SiteError | None) -> None:
        """The stream of events broke, or (None) works. It has the same credentials as the calls."""
        self._stream_error = error
        if isinstance(error, UnauthenticatedError | PermissionDeniedError):
            self.failed(error)
        self._changed()

    async def until_permitted(self) -> None:
        """Wait until the breaker lets something through."""
        await self._permits.wait()

    def booted(self, machine: Machine) -> None:
        """A machine has begun to run."""
        entered = machine.entered
        if Stage.RUNNING not in entered or Stage.PENDING not in entered:
            return
        self._stages[Stage.RUNNING].append(entered[Stage.RUNNING] - entered[Stage.PENDING])
        ends = entered[Stage.RUNNING]
        for stage in (Stage.BOOT, Stage.PROLOG, Stage.PENDING):
            begins = entered.get(stage, ends)
            self._stages[stage].append(max(0.0, ends - begins))
            ends = begins

    def created(self, machines: int) -> None:
        """The site created a machine, its ``machines``-th: it is not full."""
        self._full = 0
        if self._full_at is not None and machines > self._full_at:
            self._full_at = machines if self._full_seconds else None
        if self._exhausted is not None:
            self._exhausted = None
            self._changed()

    def full(self, error: SiteError, machines: int) -> float:
        """The site, or a quota there, has no room beside ``machines``; after how many seconds to try again."""
        self._full_at = machines
        if not self._full_seconds:
            self._full += 1
            seconds = retry_after(error) or pause_after(self._full)
            self._exhausted_until = self._clock() + seconds
        self._exhausted = error
        self._changed()
        return self._full_seconds

    def throttled(self, error: SiteError, seconds: float) -> None:
        """The site wants to be left alone for so long."""
        until = self._clock() + seconds
        if seconds < LONG_THROTTLE_SECONDS or until <= self._throttled_until:
            return
        self._throttled, self._throttled_until = error, until
        self._paused_until = now() + timedelta(seconds=seconds)
        self._changed()

    def served(self) -> None:
        """A call showed that the site works."""
        self._breaks(self._breaker.served())

    def failed(self, error: SiteError) -> None:
        """A call showed that the site does not work. A provider's defect is shown until the second probe from now."""
        if isinstance(error, DefectError):
            self._defect, self._defect_until = error, self._clock() + 1.5 * PROBE_SECONDS
            self._changed()
        self._breaks(self._breaker.failed(error, self._clock(), random.random()))  # noqa: S311
        self._probe_wanted.set()

    async def probe(self) -> NoReturn:
        """Probe now and then until cancelled; sooner after failures, and when the breaker's pause is over."""
        while True:
            self._probe_wanted.clear()
            error = await self._probe_once()
            chance = random.random()  # noqa: S311
            self._probe_error = error
            self._probed = now()
            self._breaks(self._breaker.probed(error, self._clock(), chance, waiting=self._waits()))
            self._changed()
            await self._until_next_probe()

    async def _until_next_probe(self) -> None:
        """After an open breaker's pause; else after a failed call, or after a minute."""
        await asyncio.sleep(FIRST_PAUSE_SECONDS)
        if self._breaker.state is not BreakerState.OPEN:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PROBE_SECONDS):
                    await self._probe_wanted.wait()
        await asyncio.sleep(self._breaker.until - self._clock())

    async def _probe_once(self) -> SiteError | None:
        try:
            async with asyncio.timeout(PROBE_DEADLINE_SECONDS):
                info = await self._provider.probe()
        except TimeoutError:
            return UnavailableError(f"no answer within {PROBE_DEADLINE_SECONDS:.0f} s")
        except SiteError as error:
            return error
        self._version = info.version
        self._take_capacity(info.capacity)
        return None

    def _take_capacity(self, capacity: int | None) -> None:
        """What was full is not any more when more fits than before."""
        before, self._capacity = self._capacity, capacity
        if before is not None and (capacity is None or capacity > before):
            self._exhausted = self._full_at = None

    def _breaks(self, breaker: Breaker) -> None:
        """Take over the breaker's new state."""
        old, self._breaker = self._breaker, breaker
        if (breaker.state, breaker.until) == (old.state, old.until):
            return
        time = now()
        probes = time + timedelta(seconds=breaker.until - self._clock()) if breaker.until else None
        since = self._breaker_seen.since if breaker.state is old.state else time
        self._breaker_seen = BreakerObservation(_STATES[breaker.state], since, breaker.cause, probes)
        BREAKER.labels(self._name).set(0 if breaker.state is BreakerState.CLOSED else 1)
        if breaker.permitted == 0:
            self._permits.clear()
        else:
            self._permits.set()
            self._permitted_changed()
        self._changed()

    def _median(self, stage: Stage) -> float | None:
        seconds = self._stages[stage]
        return statistics.median(seconds) if seconds else None
