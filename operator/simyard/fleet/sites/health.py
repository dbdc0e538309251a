# SPDX-License-Identifier: Apache-2.0
"""Decides whether a site can be used.

The decision depends on the site's probes, its stream of events, and its answers to requests. It sets the state of the
breaker and the condition ``Ready`` of the CloudSite, and decides whether pools place new Workers at the site.
"""

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
from simyard.fleet.registry import get_time
from simyard.fleet.sites.batch_queue import BatchQueue
from simyard.fleet.timing import PRODUCTION
from simyard.plan.breaker import Breaker, BreakerState, DefectError
from simyard.plan.pace import get_retry_after
from simyard.plan.site import BreakerName, BreakerObservation, CallObservation, SiteObservation, StageSeconds
from simyard_adapter.backoff import compute_delay
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
MAX_PAUSE_SECONDS = 60.0
LONG_THROTTLE_SECONDS = 10.0
"""If a site asks for a pause of at least this time, pools place new Workers at other sites during the pause."""
_STATES: Mapping[BreakerState, BreakerName] = {
    BreakerState.CLOSED: "Closed",
    BreakerState.OPEN: "Open",
    BreakerState.HALF_OPEN: "HalfOpen",
}
_STAGES = (Stage.PENDING, Stage.PROLOG, Stage.BOOT, Stage.RUNNING)


def forget_breaker(name: str) -> None:
    """Remove the gauge of a site's breaker after its runner has ended."""
    with contextlib.suppress(KeyError):
        BREAKER.remove(name)


class SiteHealth:
    """The health of one site: its version, capacity, breaker and pauses, and the durations of starts.

    The breaker limits ``requests``, the queue of requests to the site. The object calls ``changed`` when the status of
    the CloudSite may have changed.
    """

    def __init__(
        self,
        name: str,
        provider: Site,
        requests: BatchQueue,
        changed: Callable[[], None],
        first_pause_seconds: float = PRODUCTION.site_retry_first_seconds,
    ) -> None:
        self._first_pause_seconds = first_pause_seconds
        self._name = name
        self._provider = provider
        self._requests = requests
        self._changed = changed
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
        self._breaker = Breaker(self._first_pause_seconds)
        self._breaker_seen = BreakerObservation()
        self._probe_wanted = asyncio.Event()
        self._permits = asyncio.Event()
        self._permits.set()
        BREAKER.labels(name).set(0)

    def compute_pause(self, failures: int) -> float:
        """Return the seconds to wait after a number of failures in a row."""
        return compute_delay(failures - 1, self._first_pause_seconds, MAX_PAUSE_SECONDS)

    @property
    def exhausted_seconds(self) -> float:
        """Seconds for which pools place no new Workers at the site, because it is full or asked for a pause."""
        return max(self._full_seconds, self._throttled_seconds)

    @property
    def _full_seconds(self) -> float:
        return max(0.0, self._exhausted_until - self._clock()) if self._exhausted is not None else 0.0

    @property
    def _throttled_seconds(self) -> float:
        return max(0.0, self._throttled_until - self._clock())

    @property
    def capacity(self) -> int | None:
        """The total number of machines for which the site has room; None if the site does not report it."""
        return self._capacity

    @property
    def full_at(self) -> int | None:
        """The number of machines at which the site last refused another one; None if it has accepted more since."""
        return self._full_at

    @property
    def boot_seconds(self) -> float | None:
        """The median time from the site's acceptance of a machine until it runs, over the newest machines."""
        return self._median(Stage.RUNNING)

    @property
    def permitted(self) -> int | None:
        """The breaker's maximum number of items under way; None if the breaker is closed."""
        return self._breaker.permitted

    def observe(self, machines: SiteWorkers, desired: int, calls: Iterable[CallObservation]) -> SiteObservation:
        """Return the observations from which the status of the CloudSite is planned."""
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

    def record_stream(self, error: SiteError | None) -> None:
        """Record the error that broke the stream of events; None: the stream works again.

        The stream uses the same credentials as all calls. So an error about credentials counts as a failed call.
        """
        self._stream_error = error
        if isinstance(error, UnauthenticatedError | PermissionDeniedError):
            self.record_failure(error)
        self._changed()

    async def wait_until_permitted(self) -> None:
        """Wait until the breaker permits a request."""
        await self._permits.wait()

    def record_boot(self, machine: Machine) -> None:
        """Record the durations of the start of a machine that has begun to run."""
        entered = machine.entered
        if Stage.RUNNING not in entered or Stage.PENDING not in entered:
            return
        self._stages[Stage.RUNNING].append(entered[Stage.RUNNING] - entered[Stage.PENDING])
        ends = entered[Stage.RUNNING]
        for stage in (Stage.BOOT, Stage.PROLOG, Stage.PENDING):
            begins = entered.get(stage, ends)
            self._stages[stage].append(max(0.0, ends - begins))
            ends = begins

    def record_creation(self, machines: int) -> None:
        """Record that the site has created a machine, and so is not full; it now has ``machines`` machines."""
        self._full = 0
        if self._full_at is not None and machines > self._full_at:
            self._full_at = machines if self._full_seconds else None
        if self._exhausted is not None:
            self._exhausted = None
            self._changed()

    def record_full(self, error: SiteError, machines: int) -> float:
        """Record that the site is full with ``machines`` machines; return the seconds until the next attempt."""
        self._full_at = machines
        if not self._full_seconds:
            self._full += 1
            seconds = get_retry_after(error) or self.compute_pause(self._full)
            self._exhausted_until = self._clock() + seconds
        self._exhausted = error
        self._changed()
        return self._full_seconds

    def record_throttling(self, error: SiteError, seconds: float) -> None:
        """Record that the site asked for a pause of ``seconds``."""
        until = self._clock() + seconds
        if seconds < LONG_THROTTLE_SECONDS or until <= self._throttled_until:
            return
        self._throttled, self._throttled_until = error, until
        self._paused_until = get_time() + timedelta(seconds=seconds)
        self._changed()

    def record_success(self) -> None:
        """Record that a call has shown that the site works."""
        self._replace(self._breaker.record_success())

    def record_failure(self, error: SiteError) -> None:
        """Record that a call has shown that the site does not work.

        The status of the CloudSite reports a defect of the provider until the second probe after it.
        """
        if isinstance(error, DefectError):
            self._defect, self._defect_until = error, self._clock() + 1.5 * PROBE_SECONDS
            self._changed()
        self._replace(self._breaker.record_failure(error, self._clock(), random.random()))  # noqa: S311
        self._probe_wanted.set()

    async def probe(self) -> NoReturn:
        """Probe the site until cancelled: at intervals, after a failed call, and after each pause of the breaker."""
        while True:
            self._probe_wanted.clear()
            error = await self._probe_once()
            chance = random.random()  # noqa: S311
            self._probe_error = error
            self._probed = get_time()
            self._replace(self._breaker.record_probe(error, self._clock(), chance, waiting=self._requests.has_waiting))
            self._changed()
            await self._until_next_probe()

    async def _until_next_probe(self) -> None:
        """Wait until the next probe is due.

        If the breaker is open, the probe is due at the end of its pause; else after a failed call or an interval.
        """
        await asyncio.sleep(self._first_pause_seconds)
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
        self._apply_capacity(info.capacity)
        return None

    def _apply_capacity(self, capacity: int | None) -> None:
        """Store the capacity that the site reports. If it has grown, the site is not full any more."""
        before, self._capacity = self._capacity, capacity
        if before is not None and (capacity is None or capacity > before):
            self._exhausted = self._full_at = None

    def _replace(self, breaker: Breaker) -> None:
        """Store the new state of the breaker, and apply its limit to the queue of requests."""
        old, self._breaker = self._breaker, breaker
        if (breaker.state, breaker.until) == (old.state, old.until):
            return
        time = get_time()
        probes = time + timedelta(seconds=breaker.until - self._clock()) if breaker.until else None
        since = self._breaker_seen.since if breaker.state is old.state else time
        self._breaker_seen = BreakerObservation(_STATES[breaker.state], since, breaker.cause, probes)
        BREAKER.labels(self._name).set(0 if breaker.state is BreakerState.CLOSED else 1)
        self._requests.permit(breaker.permitted)
        if breaker.permitted == 0:
            self._permits.clear()
        else:
            self._permits.set()
        self._changed()

    def _median(self, stage: Stage) -> float | None:
        seconds = self._stages[stage]
        return statistics.median(seconds) if seconds else None
